# Code objects for AMD GPUs, which tests inspect: clang 19, and headers and device libraries of
# the distribution (libamdhip64-dev, rocm-device-libs; in Debian 13 rocm-device-libs-17).
#
# Sets ARLAB_ROCM_TOOLS to the folder of LLVM's tools when they can be built, ARLAB_COMPILE_CODE_OBJECT to what compiles them, and
# defines
#   arlab_code_object(OUTPUT SOURCE ARCHITECTURE)

set(ARLAB_ROCM_TOOLS "")
find_program(ARLAB_HIP_CLANG clang++-19)
find_program(ARLAB_LLVM_READELF llvm-readelf-19)
find_program(ARLAB_LLD ld.lld-19)
find_path(ARLAB_HIP_HEADERS hip/hip_runtime.h)
find_path(ARLAB_ROCM_BITCODE ockl.bc PATHS /usr/lib/x86_64-linux-gnu/amdgcn/bitcode
  /usr/lib/amdgcn/bitcode /usr/lib/llvm-17/lib/clang/17/amdgcn/bitcode /opt/rocm/amdgcn/bitcode)
foreach(needed ARLAB_HIP_CLANG ARLAB_LLVM_READELF ARLAB_LLD ARLAB_HIP_HEADERS ARLAB_ROCM_BITCODE)
  if(NOT ${needed})
    arlab_left_out("kernels for AMD GPUs (${needed} was not found; packages clang-19 lld-19 llvm-19 libamdhip64-dev rocm-device-libs)")
    return()
  endif()
endforeach()

# The tools have no suffix where they really are.
file(REAL_PATH ${ARLAB_LLVM_READELF} readelf)
get_filename_component(ARLAB_ROCM_TOOLS ${readelf} DIRECTORY)

# Debian's device libraries end at gfx940; what says "this is gfx942" is one constant.
set(ARLAB_ROCM_DEVICE_LIBRARIES ${CMAKE_CURRENT_BINARY_DIR}/device_libraries CACHE INTERNAL "")
file(MAKE_DIRECTORY ${ARLAB_ROCM_DEVICE_LIBRARIES})
file(GLOB files ${ARLAB_ROCM_BITCODE}/*.bc)
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  file(CREATE_LINK ${file} ${ARLAB_ROCM_DEVICE_LIBRARIES}/${name} SYMBOLIC)
endforeach()
if(NOT EXISTS ${ARLAB_ROCM_BITCODE}/oclc_isa_version_942.bc)
  file(WRITE ${ARLAB_ROCM_DEVICE_LIBRARIES}/isa_942.ll "target triple = \"amdgcn-amd-amdhsa\"\n"
    "@__oclc_ISA_version = linkonce_odr hidden local_unnamed_addr addrspace(4) constant i32 9402, align 4\n")
  execute_process(COMMAND ${ARLAB_HIP_CLANG} -x ir -c -emit-llvm -nogpulib -Wno-override-module
      --target=amdgcn-amd-amdhsa ${ARLAB_ROCM_DEVICE_LIBRARIES}/isa_942.ll -o ${ARLAB_ROCM_DEVICE_LIBRARIES}/oclc_isa_version_942.bc
    COMMAND_ERROR_IS_FATAL ANY)
endif()

# -fuse-cuid=none: the same bytes at every build. Everything is inlined, as hipcc has it: a call passes its arguments by way of
# scratch memory.
set(ARLAB_COMPILE_CODE_OBJECT ${ARLAB_HIP_CLANG} -x hip --cuda-device-only --no-gpu-bundle-output -fno-gpu-rdc -fuse-cuid=none
  --rocm-path=/usr --rocm-device-lib-path=${ARLAB_ROCM_DEVICE_LIBRARIES} -std=c++20 -O3 -mllvm -amdgpu-early-inline-all=true
  -mllvm -amdgpu-function-calls=false -ffp-contract=off -Wall -Wextra ${ARLAB_WARNING_AS_ERROR} -DARLAB_PLATFORM=rocm
  -I${PROJECT_SOURCE_DIR} -c)
set(ARLAB_COMPILE_CODE_OBJECT ${ARLAB_COMPILE_CODE_OBJECT} PARENT_SCOPE)

function(arlab_code_object output source architecture)
  add_custom_command(OUTPUT ${output}
    COMMAND ${ARLAB_COMPILE_CODE_OBJECT} --offload-arch=${architecture} -MD -MT ${output} -MF ${output}.d ${source} -o ${output}
    DEPENDS ${source} DEPFILE ${output}.d VERBATIM
    COMMENT "${architecture} ${source}")
endfunction()

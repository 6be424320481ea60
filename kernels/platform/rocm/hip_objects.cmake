# The kernels for AMD GPUs, linked into the program (ARLAB_ROCM=ON): objects with code for the host and
# for every architecture in ARLAB_ROCM_ARCHITECTURES.
#
# With ROCm (6 or 7): its own compiler and find_package(hip); set ROCM_PATH when it is not in /opt/rocm.
# Without it, as on Debian 12: clang 19 with clang-tools-19, libamdhip64-dev and rocm-device-libs. That
# program links and starts, and would run on gfx90a and gfx942.
#
# CMake's language HIP is not used. On Debian 12 enable_language(HIP) fails (CMake 3.25 looks for hip-lang in lib/cmake, the package has it in
# the folder of the architecture; found there, it does not find amd_comgr), and sources of one target may have one language only, while
# the same .hip files are C++ on the host platform.
#
# Defines
#   arlab_hip_object(OBJECT SOURCE FLAG...)
#   arlab_hip_objects(OUT SOURCE...), which sets OUT to the objects
#   ARLAB_HIP_RUNTIME, what to link them with

set(ROCM_PATH "$ENV{ROCM_PATH}" CACHE PATH "Where ROCm is installed")
if(NOT ROCM_PATH AND EXISTS /opt/rocm)
  set(ROCM_PATH /opt/rocm)
endif()

# ---- the compiler
if(ROCM_PATH)
  find_program(ARLAB_ROCM_CLANG NAMES amdclang++ clang++ PATHS ${ROCM_PATH}/llvm/bin ${ROCM_PATH}/lib/llvm/bin
    ${ROCM_PATH}/bin NO_DEFAULT_PATH)
endif()
set(ARLAB_HIP_FLAGS -x hip -std=c++20 -O3 ${ARLAB_AMDGPU_FLAGS} -fPIC -ffp-contract=off -fno-gpu-rdc -Wall -Wextra
  -DARLAB_PLATFORM=rocm -DFMT_CONSTEVAL= -I${PROJECT_SOURCE_DIR})
if(ARLAB_ROCM_CLANG)
  set(ARLAB_HIP_COMPILE ${ARLAB_ROCM_CLANG})
  set(ARLAB_HIP_COMPILER_NAME ${ARLAB_ROCM_CLANG})
  list(APPEND ARLAB_HIP_FLAGS --rocm-path=${ROCM_PATH})
elseif(ARLAB_ROCM_TOOLS)  # of code_objects.cmake
  if(NOT EXISTS ${ARLAB_ROCM_TOOLS}/clang-offload-bundler)
    message(FATAL_ERROR "ARLAB_ROCM: clang-offload-bundler is not in ${ARLAB_ROCM_TOOLS}; package clang-tools-19 has it")
  endif()
  set(ARLAB_HIP_COMPILER_NAME ${ARLAB_HIP_CLANG})
  # Found by name, which has no suffix only there.
  set(ARLAB_HIP_COMPILE ${CMAKE_COMMAND} -E env "PATH=${ARLAB_ROCM_TOOLS}:$ENV{PATH}" ${ARLAB_HIP_CLANG})
  list(APPEND ARLAB_HIP_FLAGS --rocm-path=/usr --rocm-device-lib-path=${ARLAB_ROCM_DEVICE_LIBRARIES} ${ARLAB_WARNING_AS_ERROR})
else()
  message(FATAL_ERROR "ARLAB_ROCM: neither ROCm (set ROCM_PATH) nor clang 19 for AMD GPUs was found")
endif()

# ---- the runtime
find_program(ARLAB_HIPCC hipcc HINTS ${ROCM_PATH}/bin)
if(ARLAB_HIPCC)  # without hipcc, Debian's package ends the configuration
  list(APPEND CMAKE_PREFIX_PATH ${ROCM_PATH})  # also where it looks for what it needs itself
  find_package(hip REQUIRED CONFIG)
  # Its compile options are for whole targets of HIP sources; the host platform is in the same library.
  set(ARLAB_HIP_RUNTIME $<LINK_ONLY:hip::amdhip64>)
else()
  find_library(ARLAB_HIP_LIBRARY amdhip64 REQUIRED)
  set(ARLAB_HIP_RUNTIME ${ARLAB_HIP_LIBRARY})
endif()

# ---- the architectures: MI200, MI300, MI350
function(arlab_knows_architecture architecture result)
  execute_process(COMMAND ${ARLAB_HIP_COMPILE} -x hip --offload-arch=${architecture} --cuda-device-only
      -nogpulib -nogpuinc --no-gpu-bundle-output -c /dev/null -o /dev/null
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    set(${result} FALSE PARENT_SCOPE)
  else()
    set(${result} TRUE PARENT_SCOPE)
  endif()
endfunction()
set(architectures ${ARLAB_ROCM_ARCHITECTURES})
if(NOT architectures)
  foreach(architecture gfx90a gfx942 gfx950)
    arlab_knows_architecture(${architecture} is_known)
    if(is_known)
      list(APPEND architectures ${architecture})
    endif()
  endforeach()
endif()
if(NOT architectures)
  message(FATAL_ERROR "ARLAB_ROCM: ${ARLAB_HIP_COMPILER_NAME} knows none of gfx90a, gfx942 and gfx950")
endif()
foreach(architecture ${architectures})
  list(APPEND ARLAB_HIP_FLAGS --offload-arch=${architecture})
endforeach()
message(STATUS "kernels for AMD GPUs can be linked: ${architectures}, by ${ARLAB_HIP_COMPILER_NAME}")

# Flags are ahead of all others.
function(arlab_hip_object object source)
  # A name for the compilation: the default is one of the path of the source.
  get_filename_component(name ${source} NAME_WE)
  add_custom_command(OUTPUT ${object}
    COMMAND ${ARLAB_HIP_COMPILE} ${ARGN} ${ARLAB_HIP_FLAGS} -cuid=${name} -MD -MT ${object} -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d VERBATIM COMMENT "hip ${source}")
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
endfunction()
function(arlab_hip_objects out)
  set(objects)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/rocm/${name}.o)
    arlab_hip_object(${object} ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

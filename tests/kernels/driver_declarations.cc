// Our own declarations of libcuda and NVRTC are those of the toolkit's headers. It is compiled, and never run.
#define __CUDA_API_VERSION_INTERNAL 1  // all versions of a function under their own names
#include <cuda.h>

#include <type_traits>

#include "kernels/platform/cuda/driver.h"
#include "kernels/platform/cuda/driver/hip/hip_runtime.h"

namespace arlab::cuda_driver {
namespace {

/// Passed alike: both are pointers, or both numbers or structs of one size.
template <class Ours, class Theirs>
constexpr bool kPassedAlike =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
    std::is_class_v<Ours> == std::is_class_v<Theirs>;
template <class Ours, class Theirs>
constexpr bool kCalledAlike = false;
template <class... Ours, class... Theirs>
constexpr bool kCalledAlike<Error(Ours...), CUresult(Theirs...)> = [] {
  if constexpr (sizeof...(Ours) == sizeof...(Theirs)) return (kPassedAlike<Ours, Theirs> && ...);
  return false;
}();

#define ARLAB_ASSERT_CALLED_ALIKE(name, parameters) \
  static_assert(kCalledAlike<std::remove_pointer_t<decltype(Functions::name)>, decltype(::name)>);
ARLAB_DRIVER_FUNCTIONS(ARLAB_ASSERT_CALLED_ALIKE)
ARLAB_DRIVER_FUNCTIONS_OF_12_4(ARLAB_ASSERT_CALLED_ALIKE)

#define ARLAB_ASSERT_SAME(ours, theirs) \
  static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
ARLAB_ASSERT_SAME(kSuccess, CUDA_SUCCESS);
ARLAB_ASSERT_SAME(kInvalidValue, CUDA_ERROR_INVALID_VALUE);
ARLAB_ASSERT_SAME(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
ARLAB_ASSERT_SAME(kNoDevice, CUDA_ERROR_NO_DEVICE);
ARLAB_ASSERT_SAME(kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
ARLAB_ASSERT_SAME(kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
ARLAB_ASSERT_SAME(hipErrorInvalidValue, CUDA_ERROR_INVALID_VALUE);
ARLAB_ASSERT_SAME(hipErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
ARLAB_ASSERT_SAME(hipErrorNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
ARLAB_ASSERT_SAME(hipErrorNoDevice, CUDA_ERROR_NO_DEVICE);
ARLAB_ASSERT_SAME(hipErrorInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
ARLAB_ASSERT_SAME(hipErrorPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
ARLAB_ASSERT_SAME(hipErrorLaunchFailure, CUDA_ERROR_LAUNCH_FAILED);
ARLAB_ASSERT_SAME(hipErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED);
ARLAB_ASSERT_SAME(hipErrorStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
ARLAB_ASSERT_SAME(kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
ARLAB_ASSERT_SAME(kComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
ARLAB_ASSERT_SAME(kComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
ARLAB_ASSERT_SAME(HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
ARLAB_ASSERT_SAME(HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
ARLAB_ASSERT_SAME(HIP_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_NUM_REGS);
ARLAB_ASSERT_SAME(kMostDynamicSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
ARLAB_ASSERT_SAME(kRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS);
ARLAB_ASSERT_SAME(hipStreamCaptureModeGlobal, CU_STREAM_CAPTURE_MODE_GLOBAL);
ARLAB_ASSERT_SAME(hipStreamCaptureModeThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
ARLAB_ASSERT_SAME(hipStreamCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
ARLAB_ASSERT_SAME(hipStreamCaptureStatusNone, CU_STREAM_CAPTURE_STATUS_NONE);
ARLAB_ASSERT_SAME(hipStreamCaptureStatusActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
ARLAB_ASSERT_SAME(hipStreamNonBlocking, CU_STREAM_NON_BLOCKING);
ARLAB_ASSERT_SAME(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
ARLAB_ASSERT_SAME(hipEventDefault, CU_EVENT_DEFAULT);
ARLAB_ASSERT_SAME(hipEventDisableTiming, CU_EVENT_DISABLE_TIMING);
ARLAB_ASSERT_SAME(hipIpcMemLazyEnablePeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
ARLAB_ASSERT_SAME(kIpcLazyPeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
ARLAB_ASSERT_SAME(kSplitIgnoresCoscheduling, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING);
ARLAB_ASSERT_SAME(kGreenDefaultStream, CU_GREEN_CTX_DEFAULT_STREAM);
ARLAB_ASSERT_SAME(kMultiprocessors, CU_DEV_RESOURCE_TYPE_SM);
ARLAB_ASSERT_SAME(kProgrammaticStreamSerialization,
                  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

#define ARLAB_ASSERT_SAME_PLACE(ours, our_member, theirs, their_member) \
  static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member))
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(hipIpcMemHandle_t) == sizeof(CUipcMemHandle));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
ARLAB_ASSERT_SAME_PLACE(LaunchConfig, grid, CUlaunchConfig, gridDimX);
ARLAB_ASSERT_SAME_PLACE(LaunchConfig, block, CUlaunchConfig, blockDimX);
ARLAB_ASSERT_SAME_PLACE(LaunchConfig, shared_bytes, CUlaunchConfig, sharedMemBytes);
ARLAB_ASSERT_SAME_PLACE(LaunchConfig, stream, CUlaunchConfig, hStream);
ARLAB_ASSERT_SAME_PLACE(LaunchConfig, attributes, CUlaunchConfig, attrs);
ARLAB_ASSERT_SAME_PLACE(LaunchConfig, attribute_count, CUlaunchConfig, numAttrs);
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
ARLAB_ASSERT_SAME_PLACE(LaunchAttribute, is_allowed, CUlaunchAttribute,
                        value.programmaticStreamSerializationAllowed);
static_assert(sizeof(Resource) == sizeof(CUdevResource));
ARLAB_ASSERT_SAME_PLACE(Resource, multiprocessors.count, CUdevResource, sm.smCount);

}  // namespace
}  // namespace arlab::cuda_driver

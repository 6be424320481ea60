// Our own declarations of HIP are those of its header. It is compiled, and never run.
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ours {
#define ARLAB_HIP_NAMESPACE declared
#include "kernels/platform/hip_api.h"

// HIP has macros of these names.
constexpr unsigned kFlags[] = {hipStreamNonBlocking, hipEventDefault, hipEventDisableTiming,
                               hipDeviceMallocFinegrained};
}  // namespace ours

// The header's templates of the same names are left out.
#define __HIP_DISABLE_CPP_FUNCTIONS__
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>

namespace {

static_assert(ours::kFlags[0] == hipStreamNonBlocking);
static_assert(ours::kFlags[1] == hipEventDefault);
static_assert(ours::kFlags[2] == hipEventDisableTiming);
static_assert(ours::kFlags[3] == hipDeviceMallocFinegrained);

#define ARLAB_ASSERT_SAME(name) \
  static_assert(static_cast<int>(ours::name) == static_cast<int>(::name))
ARLAB_ASSERT_SAME(hipSuccess);
ARLAB_ASSERT_SAME(hipErrorInvalidValue);
ARLAB_ASSERT_SAME(hipErrorOutOfMemory);
ARLAB_ASSERT_SAME(hipErrorNotInitialized);
ARLAB_ASSERT_SAME(hipErrorInsufficientDriver);
ARLAB_ASSERT_SAME(hipErrorNoDevice);
ARLAB_ASSERT_SAME(hipErrorInvalidDevice);
ARLAB_ASSERT_SAME(hipErrorPeerAccessAlreadyEnabled);
ARLAB_ASSERT_SAME(hipErrorLaunchFailure);
ARLAB_ASSERT_SAME(hipErrorNotSupported);
ARLAB_ASSERT_SAME(hipErrorStreamCaptureUnsupported);
ARLAB_ASSERT_SAME(hipMemcpyHostToDevice);
ARLAB_ASSERT_SAME(hipMemcpyDeviceToHost);
ARLAB_ASSERT_SAME(hipMemcpyDeviceToDevice);
ARLAB_ASSERT_SAME(hipMemcpyDefault);
ARLAB_ASSERT_SAME(hipDeviceAttributeMultiprocessorCount);
ARLAB_ASSERT_SAME(HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
ARLAB_ASSERT_SAME(HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
ARLAB_ASSERT_SAME(HIP_FUNC_ATTRIBUTE_NUM_REGS);
ARLAB_ASSERT_SAME(HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
ARLAB_ASSERT_SAME(hipStreamCaptureModeGlobal);
ARLAB_ASSERT_SAME(hipStreamCaptureModeThreadLocal);
ARLAB_ASSERT_SAME(hipStreamCaptureModeRelaxed);
ARLAB_ASSERT_SAME(hipStreamCaptureStatusNone);
ARLAB_ASSERT_SAME(hipStreamCaptureStatusActive);

/// Passed alike: both are pointers, or both numbers or structs of one size.
template <class Ours, class Theirs>
constexpr bool kPassedAlike =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
    std::is_class_v<Ours> == std::is_class_v<Theirs>;
template <class Ours, class Theirs>
constexpr bool kCalledAlike = false;
template <class OurResult, class... Ours, class TheirResult, class... Theirs>
constexpr bool kCalledAlike<OurResult(Ours...), TheirResult(Theirs...)> = [] {
  if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
    return kPassedAlike<OurResult, TheirResult> && (kPassedAlike<Ours, Theirs> && ...);
  }
  return false;
}();
#define ARLAB_ASSERT_CALLED_ALIKE(name) \
  static_assert(kCalledAlike<decltype(ours::name), decltype(::name)>)
ARLAB_ASSERT_CALLED_ALIKE(hipGetDeviceCount);
ARLAB_ASSERT_CALLED_ALIKE(hipDeviceGetAttribute);
ARLAB_ASSERT_CALLED_ALIKE(hipDeviceGetName);
ARLAB_ASSERT_CALLED_ALIKE(hipSetDevice);
ARLAB_ASSERT_CALLED_ALIKE(hipGetDevice);
ARLAB_ASSERT_CALLED_ALIKE(hipDeviceGetPCIBusId);
ARLAB_ASSERT_CALLED_ALIKE(hipDeviceCanAccessPeer);
ARLAB_ASSERT_CALLED_ALIKE(hipDeviceEnablePeerAccess);
ARLAB_ASSERT_CALLED_ALIKE(hipDeviceSynchronize);
ARLAB_ASSERT_CALLED_ALIKE(hipMalloc);
ARLAB_ASSERT_CALLED_ALIKE(hipFree);
ARLAB_ASSERT_CALLED_ALIKE(hipExtMallocWithFlags);
ARLAB_ASSERT_CALLED_ALIKE(hipMemset);
ARLAB_ASSERT_CALLED_ALIKE(hipMemcpy);
ARLAB_ASSERT_CALLED_ALIKE(hipMemcpyAsync);
ARLAB_ASSERT_CALLED_ALIKE(hipIpcGetMemHandle);
ARLAB_ASSERT_CALLED_ALIKE(hipIpcOpenMemHandle);
ARLAB_ASSERT_CALLED_ALIKE(hipIpcCloseMemHandle);
ARLAB_ASSERT_CALLED_ALIKE(hipStreamCreateWithFlags);
ARLAB_ASSERT_CALLED_ALIKE(hipExtStreamCreateWithCUMask);
ARLAB_ASSERT_CALLED_ALIKE(hipStreamDestroy);
ARLAB_ASSERT_CALLED_ALIKE(hipStreamSynchronize);
ARLAB_ASSERT_CALLED_ALIKE(hipStreamWaitEvent);
ARLAB_ASSERT_CALLED_ALIKE(hipStreamIsCapturing);
ARLAB_ASSERT_CALLED_ALIKE(hipStreamBeginCapture);
ARLAB_ASSERT_CALLED_ALIKE(hipStreamEndCapture);
ARLAB_ASSERT_CALLED_ALIKE(hipThreadExchangeStreamCaptureMode);
ARLAB_ASSERT_CALLED_ALIKE(hipEventCreateWithFlags);
ARLAB_ASSERT_CALLED_ALIKE(hipEventRecord);
ARLAB_ASSERT_CALLED_ALIKE(hipEventElapsedTime);
ARLAB_ASSERT_CALLED_ALIKE(hipEventDestroy);
ARLAB_ASSERT_CALLED_ALIKE(hipGraphInstantiateWithFlags);
ARLAB_ASSERT_CALLED_ALIKE(hipGraphLaunch);
ARLAB_ASSERT_CALLED_ALIKE(hipGraphExecDestroy);
ARLAB_ASSERT_CALLED_ALIKE(hipGraphDestroy);
ARLAB_ASSERT_CALLED_ALIKE(hipModuleLoadData);
ARLAB_ASSERT_CALLED_ALIKE(hipModuleUnload);
ARLAB_ASSERT_CALLED_ALIKE(hipModuleGetFunction);
ARLAB_ASSERT_CALLED_ALIKE(hipFuncGetAttribute);
ARLAB_ASSERT_CALLED_ALIKE(hipGetLastError);
ARLAB_ASSERT_CALLED_ALIKE(hipGetErrorString);

}  // namespace

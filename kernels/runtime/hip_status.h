// Errors of HIP's API as values.
#pragma once

#include <fmt/format.h>

#include "kernels/platform/platform.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

inline Status status_of(hipError_t error, const char* what) {
  if (error == hipSuccess) return {};
  return Status::error(fmt::format("{}: {}", what, hipGetErrorString(error)));
}

#if defined(ARLAB_KERNELS_ON_DEMAND)
std::string take_kernel_failure();  // kernels/compile/store.h
#endif

/// The status of a launch.
inline Status started(hipError_t error) {
#if defined(ARLAB_KERNELS_ON_DEMAND)
  if (std::string failure = take_kernel_failure(); !failure.empty()) return Status::error(failure);
#endif
  return status_of(error, "a kernel cannot be started");
}

/// While it lives, this thread may make calls that have nothing to do with streams which are captured; else they would end a
/// capture, of any thread.
#if defined(__HIP_PLATFORM_HOST__)
struct RelaxedCaptureMode {
  RelaxedCaptureMode() {}
};
#else
class RelaxedCaptureMode {
 public:
  RelaxedCaptureMode() { (void)hipThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCaptureMode() { (void)hipThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  hipStreamCaptureMode mode_ = hipStreamCaptureModeRelaxed;
};
#endif

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

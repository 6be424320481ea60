// How the host starts kernels.
#pragma once

#include "kernels/platform/platform.h"

#if !defined(ARLAB_KERNELS_ON_DEMAND)  // which kernels/compile/store.h starts

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// While there is one, launches of this thread start nothing, but load their kernels onto the device. Without, a driver loads a
/// kernel when it is launched first, and waits with that for kernels that run: for ever, if these wait for what the thread
/// launches next on another rank.
class LoadsKernels {
 public:
  LoadsKernels() { on_ = true; }
  ~LoadsKernels() { on_ = false; }
  LoadsKernels(const LoadsKernels&) = delete;
  LoadsKernels& operator=(const LoadsKernels&) = delete;

  /// Loads a kernel, if there is one; whether that is all.
  template <class... Parameters>
  static bool take(void (*kernel)(Parameters...)) {
    if (!on_) return false;
    hipFuncAttributes attributes{};
    (void)hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
    return true;
  }

 private:
  static inline thread_local bool on_ = false;
};

/// Starts a kernel with blocks of kThreads.
template <class... Parameters, class... Arguments>
void launch_blocks(void (*kernel)(Parameters...), dim3 blocks, hipStream_t stream,
                   const Arguments&... arguments) {
  if (LoadsKernels::take(kernel)) return;
  hipLaunchKernelGGL(kernel, blocks, dim3(kThreads), 0, stream, arguments...);
}

/// Starts a kernel whose first act is pdl_wait(). On CUDA it may be started, and wait
/// there, while the one before it on the stream still runs, from pdl_trigger() on.
template <class... Parameters>
void launch_pdl(void (*kernel)(Parameters...), unsigned blocks, hipStream_t stream,
                const Parameters&... parameters) {
  if (LoadsKernels::take(kernel)) return;
  hipLaunchKernelGGL(kernel, dim3(blocks), dim3(kThreads), 0, stream, parameters...);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

#endif

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

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

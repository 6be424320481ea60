// <hip/hip_runtime.h> for AMD GPUs, of the host's code: HIP's own library, which is loaded by name.
#pragma once

#define __HIP_PLATFORM_AMD__ 1  // NOLINT(bugprone-reserved-identifier): HIP's own name
#define ARLAB_HIP_NAMESPACE arlab_hip_on_rocm
#include "kernels/platform/hip_api.h"

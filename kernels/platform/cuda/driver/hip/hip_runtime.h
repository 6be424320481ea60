// <hip/hip_runtime.h> for NVIDIA GPUs, of the host's code, on the driver's API (../../driver.h). As with the CUDA runtime, each
// thread has a device that it uses, whose primary context PyTorch shares.
#pragma once

#define __HIP_PLATFORM_NVIDIA__ 1  // NOLINT(bugprone-reserved-identifier): HIP's own name
#define ARLAB_HIP_NAMESPACE arlab_hip_on_cuda
#include "kernels/platform/hip_api.h"

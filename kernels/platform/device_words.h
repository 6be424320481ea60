// Words of device code for host compilers, which parse headers that kernels and host share, and run none of the kernels.
// Every name here is HIP's own.
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier)
#define __global__
#define __device__
#define __host__
#define __shared__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)

/// Apart from those of emulated GPUs in the same program.
inline namespace arlab_device_words {

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
};
extern const dim3 threadIdx;
extern const dim3 blockIdx;
extern const dim3 blockDim;
extern const dim3 gridDim;
void __syncthreads();

}  // namespace arlab_device_words
// NOLINTEND(bugprone-reserved-identifier)

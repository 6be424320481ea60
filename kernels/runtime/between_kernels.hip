#include "kernels/runtime/between.h"
#include "kernels/runtime/between_kernels.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

__global__ void __launch_bounds__(kThreads)
    matrix_product_kernel(const float* a, const float* b, float* c, int side) {
  multiply_matrices(a, b, c, side);
}

__global__ void __launch_bounds__(kThreads)
    overwrite_kernel(std::uint8_t* memory, std::size_t bytes, std::uint32_t word) {
  overwrite(memory, bytes, word);
}

}  // namespace

hipError_t launch_matrix_product(const float* a, const float* b, float* c, int side,
                                 hipStream_t stream) {
  const int blocks = side / kBlockSide;
  hipLaunchKernelGGL(matrix_product_kernel, dim3(static_cast<unsigned>(blocks * blocks)),
                     dim3(kThreads), 0, stream, a, b, c, side);
  return hipGetLastError();
}

hipError_t launch_overwrite(std::uint8_t* memory, std::size_t bytes, std::uint32_t word,
                            unsigned blocks, hipStream_t stream) {
  hipLaunchKernelGGL(overwrite_kernel, dim3(blocks), dim3(kThreads), 0, stream, memory, bytes,
                     word);
  return hipGetLastError();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

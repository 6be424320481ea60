// Work of a model's GPUs between two collectives: a product of matrices, and stores to more memory than caches hold.
#pragma once

#include "kernels/platform/platform.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

constexpr int kBlockSide = 64;  // the product's, for each block: 4 x 4 elements per thread
constexpr int kDepth = 16;      // the matrices', in shared memory

struct MatrixMemory {
  float a[kDepth][kBlockSide];
  float b[kDepth][kBlockSide];
};

/// Multiplies matrices of side `side`, a multiple of kBlockSide.
ARLAB_DEVICE void multiply_matrices(const float* a, const float* b, float* c, int side) {
  ARLAB_SHARED_ARRAY(MatrixMemory, memory, 1);
  const int blocks = side / kBlockSide;
  const int row = static_cast<int>(blockIdx.x) / blocks * kBlockSide;
  const int column = static_cast<int>(blockIdx.x) % blocks * kBlockSide;
  const int thread = static_cast<int>(thread_index());
  const int y = thread / 16 * 4;
  const int x = thread % 16 * 4;
  float sum[4][4] = {};
#pragma unroll 1
  for (int depth = 0; depth < side; depth += kDepth) {
    for (int i = thread; i < kDepth * kBlockSide; i += kThreads) {
      memory[0].a[i % kDepth][i / kDepth] = a[(row + i / kDepth) * side + depth + i % kDepth];
      memory[0].b[i / kBlockSide][i % kBlockSide] =
          b[(depth + i / kBlockSide) * side + column + i % kBlockSide];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] += memory[0].a[k][y + i] * memory[0].b[k][x + j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) c[(row + y + i) * side + column + x + j] = sum[i][j];
  }
}

/// Overwrites memory, 16 bytes per thread at a time.
ARLAB_DEVICE void overwrite(std::uint8_t* memory, std::size_t bytes, std::uint32_t word) {
  const std::size_t step = std::size_t{gridDim.x} * kThreads * 16;
#pragma unroll 1
  for (std::size_t at = (blockIdx.x * std::size_t{kThreads} + thread_index()) * 16; at < bytes;
       at += step) {
    store_128(memory + at, {{word, word, word, word}});
  }
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// Hadamard transforms of more elements than a wave holds: 512 to 65536, a power of two. In the
// order of reference/codecs/SPEC.md, "Hadamard (had-*)": strides 1, 2, 4, ..., one rounding per
// addition, then the scale.
#pragma once

#include "kernels/codecs/groups.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

inline constexpr int kLargestHadamardTiles = 32;  // 65536 elements

/// The strides inside a tile, up to `group` elements. `shared`: as many floats as a tile has
/// elements. All threads of the block take part.
ARLAB_DEVICE void transform_tile(Float8& x, std::size_t group, float* shared) {
  transform_thread(x);
  const unsigned lanes = static_cast<unsigned>((group < kTile ? group : kTile) / kPerThread);
#pragma unroll 1
  for (unsigned mask = 1; mask < lanes; mask *= 2) {
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < kPerThread; ++i) shared[i * kThreads + threadIdx.x] = x.value[i];
    __syncthreads();
    const bool upper = (threadIdx.x & mask) != 0;
#pragma unroll
    for (unsigned i = 0; i < kPerThread; ++i) {
      const float other = shared[i * kThreads + (threadIdx.x ^ mask)];
      x.value[i] = upper ? other - x.value[i] : x.value[i] + other;
    }
  }
}

/// This thread's eight elements of tile `tile` of the transformed group. `load(k)` returns its
/// eight of tile k of the group; a group of less than a tile is part of tile 0, as others may be.
///
/// Nothing holds a group of many tiles, so every result is summed up from all tiles again: the
/// tiles are the leaves of a tree of additions and subtractions, of which one path is kept.
template <class Load>
ARLAB_DEVICE Float8 transform_group(std::size_t group, std::size_t tile, float scale, float* shared,
                                    Load load) {
  constexpr unsigned kLevels = 5;
  static_assert(1 << kLevels == kLargestHadamardTiles);
  const auto tiles = static_cast<unsigned>(group < kTile ? 1 : group / kTile);
  Float8 waiting[kLevels] = {};
  Float8 x = {};
#pragma unroll 1
  for (unsigned k = 0; k < tiles; ++k) {
    x = load(k);
    transform_tile(x, group, shared);
    bool done = false;
#pragma unroll
    for (unsigned level = 0; level < kLevels; ++level) {
      if (done) continue;
      if ((k >> level & 1) == 0) {
        waiting[level] = x;
        done = true;
        continue;
      }
      const bool minus = (tile >> level & 1) != 0;
#pragma unroll
      for (std::size_t i = 0; i < kPerThread; ++i) {
        const float a = waiting[level].value[i];
        x.value[i] = minus ? a - x.value[i] : a + x.value[i];
      }
    }
  }
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) x.value[i] *= scale;
  return x;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

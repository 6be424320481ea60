// Statistics of a group, for its scale, where it is more than a wave can hold: kernels of
// their own measure them, in parts, before elements are encoded.
#pragma once

#include "kernels/codecs/groups.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Measurements of the values of a group, or of a part of it. Merging parts gives the same in any
/// order.
struct alignas(16) Statistics {
  float low;         ///< the smallest; infinity of no values
  float second_low;  ///< the smallest of the others
  float high;
  float second_high;
  std::uint32_t low_index;  ///< in the group, of the first of the smallest
  std::uint32_t high_index;
  std::uint32_t non_finite;  ///< 1 when there is a NaN or an infinity; then nothing else counts
  std::uint32_t unused;

  static constexpr std::uint32_t kNoIndex = 0xFFFFFFFFu;

  ARLAB_DEVICE static Statistics none() {
    return {kInfinity32, kInfinity32, -kInfinity32, -kInfinity32, kNoIndex, kNoIndex, 0, 0};
  }

  /// Values must come with ascending index.
  ARLAB_DEVICE void include_low(float value, std::uint32_t index) {
    const bool first = value < low;
    second_low = first ? low : min_of(second_low, value);
    low_index = first ? index : low_index;
    low = first ? value : low;
  }
  ARLAB_DEVICE void include_high(float value, std::uint32_t index) {
    const bool first = value > high;
    second_high = first ? high : max_of(second_high, value);
    high_index = first ? index : high_index;
    high = first ? value : high;
  }
};
static_assert(sizeof(Statistics) == 32);

ARLAB_DEVICE Statistics merge(const Statistics& a, const Statistics& b) {
  Statistics result = a;
  if (b.low < a.low || (b.low == a.low && b.low_index < a.low_index)) {
    result.low = b.low;
    result.low_index = b.low_index;
    result.second_low = min_of(a.low, b.second_low);
  } else {
    result.second_low = min_of(a.second_low, b.low);
  }
  if (b.high > a.high || (b.high == a.high && b.high_index < a.high_index)) {
    result.high = b.high;
    result.high_index = b.high_index;
    result.second_high = max_of(a.high, b.second_high);
  } else {
    result.second_high = max_of(a.second_high, b.high);
  }
  result.non_finite |= b.non_finite;
  return result;
}

ARLAB_DEVICE Statistics load_statistics(const Statistics* from) {
  struct Halves {
    Uint4 words[2];
  };
  const Halves halves{{load_128(from), load_128(reinterpret_cast<const Uint4*>(from) + 1)}};
  return __builtin_bit_cast(Statistics, halves);
}
ARLAB_DEVICE void store_statistics(Statistics* to, const Statistics& statistics) {
  struct Halves {
    Uint4 words[2];
  };
  const auto halves = __builtin_bit_cast(Halves, statistics);
  store_128(to, halves.words[0]);
  store_128(reinterpret_cast<Uint4*>(to) + 1, halves.words[1]);
}

/// Merges those of all threads of the block, for thread 0. `shared`: one per thread.
ARLAB_DEVICE Statistics merge_block(Statistics mine, Statistics* shared) {
  store_statistics(&shared[threadIdx.x], mine);
#pragma unroll 1
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      mine = merge(mine, load_statistics(&shared[threadIdx.x + half]));
      store_statistics(&shared[threadIdx.x], mine);
    }
  }
  __syncthreads();  // `shared` is free again
  return mine;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

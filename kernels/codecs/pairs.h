// Two elements of 16 bits at a time: what the any-bit codecs do with whole tiles.
//
// An element type's own packed instructions, one set for fp16 and one for bf16.
#pragma once

#include "kernels/codecs/groups.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The same 16 bits in both halves.
ARLAB_DEVICE constexpr std::uint32_t splat(std::uint32_t bits16) { return bits16 | bits16 << 16; }

/// Whether two elements are loaded as one word.
template <class Element>
inline constexpr bool kHasPairs = Element::kWords == 4;

template <class Element>
ARLAB_DEVICE std::uint32_t min_pair(std::uint32_t a, std::uint32_t b) {
  if constexpr (Element::kDType == DType::fp16) return min_half2(a, b);
  return min_bfloat2(a, b);
}
template <class Element>
ARLAB_DEVICE std::uint32_t max_pair(std::uint32_t a, std::uint32_t b) {
  if constexpr (Element::kDType == DType::fp16) return max_half2(a, b);
  return max_bfloat2(a, b);
}
/// As equal_pair(), of whole numbers below 2^10: as fp16 they are subnormal, and differ.
ARLAB_DEVICE std::uint32_t equal_small(std::uint32_t a, std::uint32_t b) {
  return equal_half2(a, b);
}

template <class Element>
ARLAB_DEVICE Pack8<Element> pairs_of_floats(const Float8& x) {
  Pack8<Element> result;
#pragma unroll
  for (std::size_t i = 0; i < 4; ++i)
    result.word[i] = pair_of_floats<Element>(x.value[2 * i], x.value[2 * i + 1]);
  return result;
}

/// The value of a half that is a finite number or an infinity.
template <class Element>
ARLAB_DEVICE bool half_is_finite(std::uint32_t bits16) {
  return (bits16 & 0x7FFF) < Element::kInfinity;
}

/// The smaller halves of an aligned group of lanes, by `smaller`. The size of the group is a
/// constant, kLog2Lanes, of up to 32, or else `log2_lanes`, as group_reduce() has it.
template <int kLog2Lanes, class Smaller>
ARLAB_DEVICE std::uint32_t smallest_of_lanes(std::uint32_t v, unsigned log2_lanes,
                                             Smaller smaller) {
  if constexpr (kLog2Lanes >= 0) {
    if constexpr (kLog2Lanes > 0) v = smaller(v, shuffle_xor<1, 32>(v));
    if constexpr (kLog2Lanes > 1) v = smaller(v, shuffle_xor<2, 32>(v));
    if constexpr (kLog2Lanes > 2) v = smaller(v, shuffle_xor<7, 32>(v));
    if constexpr (kLog2Lanes > 3) v = smaller(v, shuffle_xor<8, 32>(v));
    if constexpr (kLog2Lanes > 4) v = smaller(v, shuffle_xor<16, 32>(v));
  } else {
#pragma unroll
    for (unsigned step = 0; step < 5; ++step) {
      if (step < log2_lanes) v = smaller(v, shuffle_xor(v, 1 << step, 32));
    }
    if (log2_lanes > 5) v = combine_waves(v, 1u << (log2_lanes - 5), smaller);
  }
  return v;
}

/// The least value of a group in the low half, the greatest, negated, in the high one: one minimum
/// finds both. A NaN or an infinity among the elements shows as one of these.
template <class Element, int kLog2Lanes>
ARLAB_DEVICE std::uint32_t range_of_group(const Pack8<Element>& x, unsigned log2_lanes) {
  const auto smaller = [](std::uint32_t a, std::uint32_t b)
                           ARLAB_INLINED_LAMBDA { return min_pair<Element>(a, b); };
  const std::uint32_t least = smaller(smaller(x.word[0], x.word[1]), smaller(x.word[2], x.word[3]));
  const std::uint32_t greatest = max_pair<Element>(max_pair<Element>(x.word[0], x.word[1]),
                                                   max_pair<Element>(x.word[2], x.word[3]));
  const std::uint32_t negated = greatest ^ splat(0x8000);
  std::uint32_t range = smaller(low_halves(least, negated), high_halves(least, negated));
  if constexpr (!kMinimumsKeepNans) {
    bool non_finite = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      non_finite = non_finite || !half_is_finite<Element>(x.word[i] & 0xFFFF) ||
                   !half_is_finite<Element>(x.word[i] >> 16);
    }
    if (non_finite) range = splat(Element::kInfinity | 0x8000u);
  }
  return smallest_of_lanes<kLog2Lanes>(range, log2_lanes, smaller);
}

/// `range`, or a NaN where `other` is an infinity or a NaN.
template <class Element>
ARLAB_DEVICE std::uint32_t keep_non_finite(std::uint32_t other, std::uint32_t range) {
  if constexpr (Element::kDType == DType::fp16) {
    return add_half2(multiply_half2(other, 0), range);
  } else {
    const bool finite =
        half_is_finite<Element>(other & 0xFFFF) && half_is_finite<Element>(other >> 16);
    return finite ? range : splat(Element::kNaN);
  }
}

// ---------------------------------------------------------------- exact quotients

/// x / divisor, correctly rounded, for 2^-100 <= |x| < 2^127 and 0, with RN(1 / divisor); the
/// divisor is 2^b - 1 (a test tries all). A NaN where x is none of these.
ARLAB_DEVICE float divide_with_reciprocal(float x, float divisor, float reciprocal) {
  const float quotient = x * reciprocal;
  const float rest = fused_multiply_add(-quotient, divisor, x);
  return fused_multiply_add(rest, reciprocal, quotient);
}

/// round_stochastically(x, random) in the low bits, in two's complement, of |x| below 2^22: `behind` is 2^23 or 1.5 * 2^23, and
/// maybe an integer more. The sum is rounded to the nearest integer, and what that leaves is exact.
ARLAB_DEVICE std::uint32_t stochastic_sum(float x, float behind, std::uint32_t random) {
  const float sum = x + behind;
  const float rest = x - (sum - behind);
  const bool is_below = rest < 0;
  const bool up = static_cast<float>(random) < (is_below ? rest + 1 : rest) * 0x1p24f;
  return float_bits(sum) - (is_below ? 1 : 0) + (up ? 1 : 0);
}

/// 1 / x, correctly rounded, of a bf16 value x from 2^-100 to 2^100 (a test tries all); a NaN for 0
/// and for a NaN.
ARLAB_DEVICE float reciprocal_of_bfloat(float x) {
  const float estimate = approximate_reciprocal(x);
  const float rest = fused_multiply_add(-x, estimate, 1.0f);
  return fused_multiply_add(estimate, rest, estimate);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// Integer scales of spike reserving (Flash Communication V2, equation 1): a scale as the int8 s
// that stands for 2^(s / 10). SPEC.md, "Integer scales (-sr-is)".
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace arlab {

/// 2^(s / 10), correctly rounded to fp32. 2^(s / 10) = 2^floor(s / 10) * 2^((s mod 10) / 10), and
/// scaling by a power of two changes no mantissa, so ten mantissas make all 256 values.
constexpr float scale_of(std::int8_t s) {
  constexpr std::array<std::uint32_t, 10> kTenthPower = {
      0x3F800000, 0x3F892FDF, 0x3F93088C, 0x3F9D9624, 0x3FA8E5A3,
      0x3FB504F3, 0x3FC20300, 0x3FCFEFC6, 0x3FDEDC67, 0x3FEEDB40};
  const int shifted = s + 130;  // not negative, so that / and % round down
  const int exponent = shifted / 10 - 13;
  const std::uint32_t mantissa = kTenthPower[static_cast<std::size_t>(shifted % 10)];
  return std::bit_cast<float>(mantissa + (static_cast<std::uint32_t>(exponent) << 23));
}

/// The largest s in [-128, 127] with scale_of(s) <= scale; -128 when there is none. This is
/// clamp(floor(10 log2(scale)), -128, 127) without a logarithm, so that every platform agrees.
[[gnu::always_inline]] constexpr std::int8_t integer_scale(float scale) {
  // scale_of(low) <= scale, or low is the bound; scale_of(high) > scale, or high is.
  int low = -128;
  int high = 128;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (scale_of(static_cast<std::int8_t>(middle)) <= scale ? low : high) = middle;
  }
  return static_cast<std::int8_t>(low);
}

}  // namespace arlab

// log2 and exp2 in fp32, written with single correctly rounded operations (+ - * /) so that every
// compiler and processor gives the same bits. Accurate to a few units in the last place; being the
// same everywhere is the point: reference/codecs/SPEC.md, "LogFMT (logfmt*)".
#pragma once

#include <bit>
#include <cstdint>

namespace arlab {

/// log2 of a positive finite value, subnormals included.
constexpr float log2_fp32(float x) {
  int exponent = 0;
  if (std::bit_cast<std::uint32_t>(x) < 0x00800000u) {  // subnormal
    x *= 0x1p24f;
    exponent = -24;
  }
  // x = m * 2^exponent with m in [sqrt(1/2), sqrt(2)).
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  constexpr std::uint32_t kSqrtHalf = 0x3F3504F3u;
  const std::uint32_t above = bits - kSqrtHalf;
  exponent += static_cast<std::int32_t>(above) >> 23;
  const float m = std::bit_cast<float>((above & 0x007FFFFFu) + kSqrtHalf);
  // log2(m) = 2 / ln 2 * atanh(t), t = (m - 1) / (m + 1), |t| < 0.172.
  const float t = (m - 1.0f) / (m + 1.0f);
  const float t2 = t * t;
  const float series =
      t * (2.885390082f + t2 * (0.961796694f + t2 * (0.577078016f + t2 * 0.412198583f)));
  return static_cast<float>(exponent) + series;
}

/// 2^y for y in [-149, 128); below it is 0, from 128 on an infinity.
constexpr float exp2_fp32(float y) {
  if (!(y >= -150.0f)) return 0.0f;
  if (y >= 128.0f) return std::bit_cast<float>(0x7F800000u);
  // y = whole + part, whole the nearest integer: the addition rounds, the subtraction is exact.
  constexpr float kMagic = 0x1.8p23f;
  const float whole = (y + kMagic) - kMagic;
  const float f = (y - whole) * 0.693147181f;
  const float e =
      1.0f +
      f * (1.0f + f * (0.5f + f * (0.166666667f + f * (0.0416666667f + f * (0.00833333333f +
                                                                            f * 0.00138888889f)))));
  // Two factors, so that neither leaves fp32's range on the way to a subnormal or a large value.
  const int exponent = static_cast<int>(whole);
  const int half = exponent / 2;
  const auto power = [](int p) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(p + 127) << 23);
  };
  return e * power(half) * power(exponent - half);
}

}  // namespace arlab

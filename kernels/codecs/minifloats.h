// Eight codes of a small floating-point format at once, as minifloat_code() and minifloat_to_float() have them one by one.
#pragma once

#include "kernels/codecs/pairs.h"
#include "reference/codecs/scaled_format.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

#if defined(ARLAB_HAS_E4M3FN)
// Hopper converts to and from e4m3fn and e5m2. The six bits of e2m3 and e3m2 are codes of these two formats, too, of values
// that are smaller by a power of two; what is above them becomes their largest code. e2m1 has a bit of mantissa less than
// any format with an instruction: it is rounded as an integer.
inline constexpr bool kConvertsMinifloats = true;

/// For what kind of format a conversion is; no instruction depends on it where the format is a constant.
ARLAB_DEVICE bool is_six_bits(const Minifloat& f) { return f.exponent_bits + f.mantissa_bits == 5; }
/// The power of two between a format of six bits and that of eight with the same mantissa.
ARLAB_DEVICE float scale_of_six_bits(const Minifloat& f) {
  return f.mantissa_bits == 3 ? 0x1p-6f : 0x1p-12f;
}

/// Of a finite value.
ARLAB_DEVICE std::uint32_t e2m1_of_float(float value) {
  const float magnitude = magnitude_of(value);
  const std::uint32_t bits = float_bits(magnitude);
  // From 1 on: the exponent and one bit of the mantissa, rounded to even. Below, steps of a half.
  const std::uint32_t rounded = (bits + 0x1FFFFF + (bits >> 22 & 1)) >> 22;
  const std::uint32_t above = rounded < 259 ? rounded - 252 : 7;
  const std::uint32_t below = float_bits(magnitude + 0x1p22f) & 3;
  return (magnitude < 1 ? below : above) | (float_bits(value) >> 28 & 8);
}

/// Of finite values.
ARLAB_DEVICE Codes8 minifloat_codes(const Minifloat& f, const Float8& x) {
  Codes8 codes;
  if (f.mantissa_bits == 1) {
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) codes.set(i, e2m1_of_float(x.value[i]));
    return codes;
  }
  const float scale = is_six_bits(f) ? scale_of_six_bits(f) : 1.0f;
  const auto four = [&](std::size_t first) ARLAB_INLINED_LAMBDA {
    float v[4];
#pragma unroll
    for (std::size_t i = 0; i < 4; ++i) v[i] = x.value[first + 2 * i] * scale;
    std::uint32_t word = f.mantissa_bits == 3
                             ? e4m3fn_of_floats(v[0], v[1]) | e4m3fn_of_floats(v[2], v[3]) << 16
                             : e5m2_of_floats(v[0], v[1]) | e5m2_of_floats(v[2], v[3]) << 16;
    if (is_six_bits(f)) {
      const std::uint32_t magnitudes = word & 0x7F7F7F7Fu;
      const std::uint32_t too_large = (magnitudes + 0x60606060u) >> 7 & 0x01010101u;
      word = ((magnitudes | too_large * 0x1F) & 0x1F1F1F1Fu) | (word >> 2 & 0x20202020u);
    }
    return word;
  };
  codes.even = four(0);
  codes.odd = four(1);
  return codes;
}

/// Exact; a NaN for a NaN.
ARLAB_DEVICE Float8 minifloat_values(const Minifloat& f, const Codes8& codes) {
  Float8 x;
  const auto four = [&](std::uint32_t word, std::size_t first) ARLAB_INLINED_LAMBDA {
    std::uint32_t pair[2];
    if (f.mantissa_bits == 1) {
      // As fp16, exponent and mantissa in their places are the value times 2^-14.
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t two = i == 0 ? word : word >> 16;
        const std::uint32_t spread = (two & 0xFF) | (two & 0xFF00) << 8;
        pair[i] =
            multiply_half2((spread & splat(7)) << 9 | (spread & splat(8)) << 12, splat(0x7400));
      }
    } else {
      if (is_six_bits(f)) word = (word & 0x1F1F1F1Fu) | (word & 0x20202020u) << 2;
      pair[0] = f.mantissa_bits == 3 ? half2_of_e4m3fn(word) : half2_of_e5m2(word);
      pair[1] = f.mantissa_bits == 3 ? half2_of_e4m3fn(word >> 16) : half2_of_e5m2(word >> 16);
      if (is_six_bits(f)) {
        const std::uint32_t back =
            f.mantissa_bits == 3 ? splat(0x5400) : splat(0x6C00);  // 64; 4096
        pair[0] = multiply_half2(pair[0], back);
        pair[1] = multiply_half2(pair[1], back);
      }
    }
#pragma unroll
    for (std::size_t i = 0; i < 2; ++i) {
      x.value[first + 4 * i] = Fp16::to_float(pair[i] & 0xFFFF);
      x.value[first + 4 * i + 2] = Fp16::to_float(pair[i] >> 16);
    }
  };
  four(codes.even, 0);
  four(codes.odd, 1);
  return x;
}
#else
inline constexpr bool kConvertsMinifloats = false;
#endif

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// Codes of small floating-point formats, several at once, with the bits of minifloat_code() and minifloat_to_float(),
// which have them one by one.
#pragma once

#include "kernels/codecs/pairs.h"
#include "reference/codecs/scaled_format.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Codes of e2m1 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and sign) of a pair of finite elements, in the halves of a word.
///
/// A magnitude from 2^e on has steps of 2^(e - 1), and 1 and less those of 1. So the sum with a power of two whose last bit
/// is such a step is rounded as it should be, and its low bits count the steps.
template <class Element>
ARLAB_DEVICE std::uint32_t e2m1_of_pair(std::uint32_t x) {
  constexpr bool kIsBf16 = Element::kDType == DType::bf16;
  constexpr unsigned kMantissa = kIsBf16 ? 7 : 10;
  constexpr std::uint32_t kOne = kIsBf16 ? 0x3F80 : 0x3C00;
  constexpr std::uint32_t kSix = kIsBf16 ? 0x40C0 : 0x4600;
  constexpr std::uint32_t kAbove = (kMantissa - 1) << kMantissa;  // 2^(mantissa - 1) times as large
  const std::uint32_t magnitude = min_s16x2(x & splat(0x7FFF), splat(kSix));
  const std::uint32_t power = max_s16x2(magnitude, splat(kOne)) & splat(Element::kInfinity);
  const std::uint32_t sum = add_pair<Element>(magnitude, power + splat(kAbove));
  // Steps, and two more for each doubling of the power.
  const std::uint32_t less_one = sum - splat(kOne + kAbove);
  const std::uint32_t codes = (less_one & splat(7)) + (less_one >> (kMantissa - 1) & splat(6));
  return codes | (x >> 12 & splat(8));
}

/// The e2m1 code of any finite fp32 number.
ARLAB_DEVICE std::uint32_t e2m1_of_float(float x) {
  const float magnitude = magnitude_of(x) < 6.0f ? magnitude_of(x) : 6.0f;
  const std::uint32_t power = float_bits(magnitude > 1.0f ? magnitude : 1.0f) & 0x7F800000u;
  const std::uint32_t sum = float_bits(magnitude + float_of(power + (22u << 23)));
  return (sum & 7) + (sum >> 22) - 2 * (127 + 22) + (float_bits(x) >> 28 & 8);
}

/// The value of a code: exponent and mantissa in their places of an fp32 number are 2^-126 times as much.
ARLAB_DEVICE float float_of_e2m1(std::uint32_t code) {
  return float_of((code & 7) << 22 | (code & 8) << 28) * 0x1p126f;
}

/// The bf16 values of eight codes of e2m1, which are the nibbles of a word in the order of elements.
ARLAB_DEVICE Pack8<Bf16> bfloats_of_e2m1(std::uint32_t nibbles) {
  // Bytes of the values by magnitude: a permutation of bytes is a table of eight.
  constexpr std::uint32_t kHigh[2] = {0x3F3F3F00, 0x40404040};
  constexpr std::uint32_t kLow[2] = {0xC0800000, 0xC0804000};
  const std::uint32_t magnitudes = nibbles & 0x77777777u;
  const std::uint32_t even_signs = nibbles << 4 & in_each_byte(0x80);
  const std::uint32_t odd_signs = nibbles & in_each_byte(0x80);
  Pack8<Bf16> x;
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    const std::uint32_t which = magnitudes >> (16 * i);
    const std::uint32_t signs = permute_bytes(even_signs, odd_signs, i == 0 ? 0x5140 : 0x7362);
    const std::uint32_t high = permute_bytes(kHigh[0], kHigh[1], which) | signs;
    const std::uint32_t low = permute_bytes(kLow[0], kLow[1], which);
    x.word[2 * i] = permute_bytes(low, high, 0x5140);
    x.word[2 * i + 1] = permute_bytes(low, high, 0x7362);
  }
  return x;
}

/// minifloat_code(f, x, random) of any finite number up to 2^12, where f's exponents are those of fp32 numbers, but for fewer.
///
/// The bits of a number behind its code are the fraction of the way to the next one. Below the smallest normal number, all steps are
/// alike.
ARLAB_DEVICE std::uint32_t stochastic_minifloat_code(const Minifloat& f, float x,
                                                     std::uint32_t random) {
  const std::uint32_t magnitude = float_bits(x) & 0x7FFFFFFFu;
  const int behind = 23 - f.mantissa_bits;
  const std::uint32_t fraction = magnitude << (32 - behind) >> 8;
  const auto less = static_cast<std::uint32_t>(127 - f.bias) << f.mantissa_bits;
  const std::uint32_t normal = (magnitude >> behind) - less + (random < fraction ? 1 : 0);

  const auto power = static_cast<std::uint32_t>(127 + f.bias - 1 + f.mantissa_bits) << 23;
  const float steps = float_of(magnitude) * float_of(power);
  const std::uint32_t tiny = stochastic_sum(steps, 0x1p23f, random) & 0x7FFFFFu;

  const bool is_normal = magnitude >> 23 > static_cast<std::uint32_t>(127 - f.bias);
  const std::uint32_t code = is_normal ? normal : tiny;
  const std::uint32_t sign = float_bits(x) >> 31 << (f.exponent_bits + f.mantissa_bits);
  return sign | (code < f.max_finite() ? code : f.max_finite());
}

#if defined(ARLAB_HAS_FP8_CONVERSIONS)
// There are instructions to and from e4m3fn and e5m2. The six bits of e2m3 and e3m2 are codes of these two formats, too, of
// values that are smaller by a power of two; what is above them becomes their largest code.
inline constexpr bool kConvertsMinifloats = true;

ARLAB_DEVICE bool is_six_bits(const Minifloat& f) { return f.exponent_bits + f.mantissa_bits == 5; }
/// The power of two between a format of six bits and that of eight with the same mantissa.
ARLAB_DEVICE float scale_of_six_bits(const Minifloat& f) {
  return f.mantissa_bits == 3 ? 0x1p-6f : 0x1p-12f;
}

/// The codes of eight finite values. No instruction depends on the format where it is a constant.
ARLAB_DEVICE Codes8 minifloat_codes(const Minifloat& f, const Float8& x) {
  Codes8 codes;
  if (f.mantissa_bits == 1) {
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) codes.set(i, e2m1_of_float(x.value[i]));
    return codes;
  }
  const auto four = [&](std::size_t first) ARLAB_INLINED_LAMBDA {
    float v[4];
#pragma unroll
    for (std::size_t i = 0; i < 4; ++i) {
      v[i] = x.value[first + 2 * i];
      if (is_six_bits(f)) v[i] *= scale_of_six_bits(f);
    }
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

/// Exact; a NaN for a NaN. Of formats of six and eight bits.
ARLAB_DEVICE Float8 minifloat_values(const Minifloat& f, const Codes8& codes) {
  Float8 x;
  const auto four = [&](std::uint32_t word, std::size_t first) ARLAB_INLINED_LAMBDA {
    if (is_six_bits(f)) word = (word & 0x1F1F1F1Fu) | (word & 0x20202020u) << 2;
#pragma unroll
    for (std::size_t i = 0; i < 2; ++i) {
      const std::uint32_t two = i == 0 ? word : word >> 16;
      std::uint32_t pair = f.mantissa_bits == 3 ? half2_of_e4m3fn(two) : half2_of_e5m2(two);
      if (is_six_bits(f))
        pair = multiply_half2(pair, f.mantissa_bits == 3 ? splat(0x5400) : splat(0x6C00));
      x.value[first + 4 * i] = Fp16::to_float(pair & 0xFFFF);
      x.value[first + 4 * i + 2] = Fp16::to_float(pair >> 16);
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

// Small floating-point formats, and their exact conversion from and to fp32.
#pragma once

#include <bit>
#include <cstdint>

namespace arlab {

/// The result for a magnitude that rounds beyond the largest finite one. In every format: `ieee` gives infinity, or NaN where
/// there is no infinity; `saturate` gives the largest finite value of the same sign, also for an infinite input, while a NaN
/// stays a NaN. These are the non-saturating and saturating modes of OCP OFP8. A format with neither infinity nor NaN (fp6,
/// fp4) has only the second.
enum class Overflow { ieee, saturate };

/// Codes of a format that are not plain numbers.
enum class SpecialCodes {
  infinity_and_nan,   // IEEE 754: the largest exponent
  largest_is_nan,     // "fn" with NaN: only the all-ones magnitude, no infinity
  minus_zero_is_nan,  // "fnuz": only the code of -0, so zero is unsigned; no infinity
  none,               // every code is a number
};

/// Sign, exponent and mantissa from the high bits down, with subnormals.
/// "Magnitude" below means a code without its sign bit; magnitudes order as the values do.
struct Minifloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  SpecialCodes special;

  constexpr std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }

  constexpr std::uint32_t infinity() const {  // exists only with SpecialCodes::infinity_and_nan
    return ((1u << exponent_bits) - 1) << mantissa_bits;
  }

  constexpr std::uint32_t max_finite() const {
    if (special == SpecialCodes::infinity_and_nan) return infinity() - 1;
    if (special == SpecialCodes::largest_is_nan) return sign_bit() - 2;
    return sign_bit() - 1;
  }

  constexpr bool is_nan(std::uint32_t code) const {
    const std::uint32_t magnitude = code & (sign_bit() - 1);
    switch (special) {
      case SpecialCodes::infinity_and_nan:
        return magnitude > infinity();
      case SpecialCodes::largest_is_nan:
        return magnitude == sign_bit() - 1;
      case SpecialCodes::minus_zero_is_nan:
        return code == sign_bit();
      case SpecialCodes::none:
        break;
    }
    return false;
  }

  /// The one NaN that conversions produce, as in ml_dtypes. Without a NaN it is a zero of the
  /// opposite sign: also what ml_dtypes does, for OCP MX leaves it open. A codec has to treat NaN
  /// before its elements reach such a format.
  constexpr std::uint32_t nan(std::uint32_t sign) const {
    switch (special) {
      case SpecialCodes::infinity_and_nan:
        return sign | infinity() | 1u << (mantissa_bits - 1);
      case SpecialCodes::largest_is_nan:
        return sign | (sign_bit() - 1);
      case SpecialCodes::minus_zero_is_nan:
        return sign_bit();
      case SpecialCodes::none:
        break;
    }
    return sign ^ sign_bit();
  }

  constexpr std::uint32_t overflowed(std::uint32_t sign, Overflow overflow) const {
    if (overflow == Overflow::saturate || special == SpecialCodes::none) return sign | max_finite();
    return special == SpecialCodes::infinity_and_nan ? sign | infinity() : nan(sign);
  }
};

/// The exact value of a code; bits above the sign are ignored. A NaN becomes the quiet fp32 NaN of
/// the same sign.
constexpr float minifloat_to_float(const Minifloat& f, std::uint32_t code) {
  code &= 2 * f.sign_bit() - 1;
  const std::uint32_t magnitude = code & (f.sign_bit() - 1);
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const std::uint32_t implicit_one = exponent == 0 ? 0 : 1u << f.mantissa_bits;
  const std::uint32_t mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
  // Few bits times a power of two: the product is exact.
  const int scale = (exponent > 1 ? exponent : 1) - f.bias - f.mantissa_bits;
  const float unsigned_value = static_cast<float>(mantissa | implicit_one) *
                               std::bit_cast<float>(static_cast<std::uint32_t>(scale + 127) << 23);

  std::uint32_t bits = std::bit_cast<std::uint32_t>(unsigned_value);
  if (f.is_nan(code)) {
    bits = 0x7FC00000;
  } else if (magnitude > f.max_finite()) {
    bits = 0x7F800000;
  }
  return std::bit_cast<float>((code & f.sign_bit()) == 0 ? bits : bits | 0x80000000);
}
template <Minifloat F>
constexpr float minifloat_to_float(std::uint32_t code) {
  static_assert(F.bias + F.mantissa_bits <= 126, "every value must be a normal fp32 number");
  return minifloat_to_float(F, code);
}

/// The magnitude of the nearest value, ties to the even code, subnormals kept, as if exponents had
/// no end; of a value that is not NaN.
constexpr std::uint32_t minifloat_magnitude(const Minifloat& f, float value) {
  const std::uint32_t fp32_magnitude = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFF;
  // The fp32 exponent that codes like the smallest normal; everything below shares its spacing.
  const int min_exponent = 127 + 1 - f.bias;
  const int fp32_exponent = static_cast<int>(fp32_magnitude >> 23);
  const std::uint32_t implicit_one = fp32_exponent == 0 ? 0 : 1u << 23;
  const std::uint32_t significand = (fp32_magnitude & 0x7FFFFF) | implicit_one;
  const int exponent = fp32_exponent > min_exponent ? fp32_exponent : min_exponent;

  // A shift by 25 leaves less than a half of any significand, as every longer shift does.
  const int distance = 23 - f.mantissa_bits + exponent - fp32_exponent;
  const int shift = distance < 25 ? distance : 25;
  const std::uint32_t is_odd = (significand >> shift) & 1;
  const std::uint32_t rounded = (significand + (1u << (shift - 1)) - 1 + is_odd) >> shift;

  // The implicit one and a carry out of the mantissa both land in the exponent, where they belong.
  return (static_cast<std::uint32_t>(exponent - min_exponent) << f.mantissa_bits) + rounded;
}

/// The magnitude of the neighbour below the value, or of the one above it: up if and only if the 24 random bits are below the
/// fraction of the way. As minifloat_magnitude() else.
constexpr std::uint32_t minifloat_magnitude(const Minifloat& f, float value, std::uint32_t random) {
  const std::uint32_t fp32_magnitude = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFF;
  const int min_exponent = 127 + 1 - f.bias;
  const int fp32_exponent = static_cast<int>(fp32_magnitude >> 23);
  const std::uint64_t significand =
      (fp32_magnitude & 0x7FFFFF) | (fp32_exponent == 0 ? 0 : 1u << 23);
  const int exponent = fp32_exponent > min_exponent ? fp32_exponent : min_exponent;
  // From a shift by 48 on only random bits of 0 are below the fraction, as they are at a shift by 48.
  const int distance = 23 - f.mantissa_bits + exponent - (fp32_exponent == 0 ? 1 : fp32_exponent);
  const int shift = distance < 48 ? distance : 48;
  const std::uint64_t rest = significand & ((std::uint64_t{1} << shift) - 1);
  const std::uint64_t drawn = random;
  const bool up = shift <= 24 ? drawn << shift < rest << 24 : drawn << (shift - 24) < rest;
  const auto kept = static_cast<std::uint32_t>(significand >> shift) + (up ? 1 : 0);
  return (static_cast<std::uint32_t>(exponent - min_exponent) << f.mantissa_bits) + kept;
}

/// The code of the nearest value, ties to the even code, subnormals kept.
constexpr std::uint32_t minifloat_from_float(const Minifloat& f, float value, Overflow overflow) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 31) != 0 ? f.sign_bit() : 0;
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return f.nan(sign);
  const std::uint32_t magnitude = minifloat_magnitude(f, value);
  if (magnitude > f.max_finite()) return f.overflowed(sign, overflow);
  if (f.special == SpecialCodes::minus_zero_is_nan && magnitude == 0) return 0;
  return sign | magnitude;
}
template <Minifloat F>
constexpr std::uint32_t minifloat_from_float(float value, Overflow overflow) {
  return minifloat_from_float(F, value, overflow);
}

}  // namespace arlab

// e8m0, the scale format of OCP Microscaling (MX) v1.0: a power of two and nothing else.
//
// Code c is 2^(c - 127), so 2^-127 ... 2^127; 0xFF is NaN. There is no sign, zero or infinity.
#pragma once

#include <bit>
#include <cstdint>

namespace arlab {

inline constexpr std::uint8_t kE8m0Nan = 0xFF;

constexpr float e8m0_to_float(std::uint8_t code) {
  // Code 0 is a subnormal fp32.
  const std::uint32_t power = code == 0 ? 0x400000u : static_cast<std::uint32_t>(code) << 23;
  return std::bit_cast<float>(code == kE8m0Nan ? 0x7FC00000u : power);
}

/// 1 / e8m0_to_float(code), exactly; `code` is not NaN's.
constexpr float e8m0_reciprocal(std::uint8_t code) {
  return e8m0_to_float(static_cast<std::uint8_t>(254 - code));
}

/// floor(log2(value)) of a positive finite value, subnormals included: exact, unlike std::log2.
constexpr int floor_log2(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const int exponent = static_cast<int>(bits >> 23);
  return exponent != 0 ? exponent - 127 : static_cast<int>(std::bit_width(bits)) - 150;
}

/// The code of 2^exponent, clamped to what there is, as MX requires of a shared exponent.
constexpr std::uint8_t e8m0_from_exponent(int exponent) {
  // Not std::clamp(): that of libstdc++ 14 is not for device code of clang.
  const int there = exponent < -127 ? -127 : exponent > 127 ? 127 : exponent;
  return static_cast<std::uint8_t>(there + 127);
}

/// The nearest power of two; a tie (1.5 * 2^n) goes up, since the significand 1 is odd. Positive
/// values below 2^-127 become 2^-127. What no code can stand for becomes NaN: zero, negative
/// values, 1.5 * 2^127 and above, infinity, NaN. As in ml_dtypes, except that version 0.6 rounds up
/// all between 2^-127 and 1.5 * 2^-127, where fp32 is subnormal.
constexpr std::uint8_t e8m0_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  constexpr std::uint32_t kOverflow = (254u << 23) | 0x400000;
  if (bits == 0 || bits >= kOverflow) return kE8m0Nan;  // a sign bit is above kOverflow, too
  const int exponent = floor_log2(value);
  if (exponent < -127) return 0;
  const std::uint32_t half = exponent == -127 ? 0x200000 : 0x400000;
  return e8m0_from_exponent((bits & half) == 0 ? exponent : exponent + 1);
}

static_assert(e8m0_to_float(0) == 0x1p-127f && e8m0_to_float(254) == 0x1p127f);
static_assert(e8m0_to_float(127) == 1.0f && e8m0_from_float(1.0f) == 127);
static_assert(e8m0_from_float(1.5f) == 128 && e8m0_from_float(0x1.7FFFFEp0f) == 127);
static_assert(e8m0_from_float(0x1p-149f) == 0 && e8m0_from_float(0x1.8p127f) == kE8m0Nan);
static_assert(floor_log2(0x1.FFFFFCp-127f) == -127 && floor_log2(0x1p-149f) == -149);

}  // namespace arlab

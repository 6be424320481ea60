// What the conversions must give, worked out from the definition of each format and not from our
// headers: a code's value by ldexp, and for each code the interval of fp32 patterns that round to
// it. An interval needs no arithmetic per pattern, so all 2^32 patterns are checked in seconds.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <vector>

#include "reference/formats/minifloat.h"

namespace arlab::testing {

constexpr std::uint32_t kFp32Sign = 0x80000000;
constexpr std::uint32_t kFp32Infinity = 0x7F800000;
constexpr std::uint32_t kFp32Nan = 0x7FC00000;

/// A format as its specification tabulates it.
struct Format {
  const char* name;
  int code_bits;
  int mantissa_bits;
  int bias;
  std::uint32_t largest;  // code of the largest finite value
  double largest_value;
  double smallest_value;                  // the smallest subnormal
  std::array<std::uint32_t, 2> overflow;  // Overflow::ieee, for + and -
  bool has_minus_zero;
  bool (*is_nan)(std::uint32_t code);
  std::uint32_t (*nan_to_float)(std::uint32_t code);  // fp32 bits
  std::uint32_t (*nan_from_float)(std::uint32_t fp32_bits);

  std::uint32_t sign_bit() const { return 1u << (code_bits - 1); }
  std::uint32_t codes() const { return 1u << code_bits; }
};

inline const Format kOracleHalf{
    "half",
    16,
    10,
    15,
    0x7BFF,
    65504.0,
    0x1p-24,
    {0x7C00, 0xFC00},
    true,
    [](std::uint32_t code) { return (code & 0x7FFF) > 0x7C00; },
    [](std::uint32_t code) { return (code & 0x8000) << 16 | kFp32Nan | (code & 0x1FF) << 13; },
    [](std::uint32_t bits) { return (bits >> 31) << 15 | 0x7E00 | (bits & 0x3FFFFF) >> 13; }};

inline const Format kOracleBfloat16{"bfloat16",
                                    16,
                                    7,
                                    127,
                                    0x7F7F,
                                    0x1.FEp127,
                                    0x1p-133,
                                    {0x7F80, 0xFF80},
                                    true,
                                    [](std::uint32_t code) { return (code & 0x7FFF) > 0x7F80; },
                                    [](std::uint32_t code) { return code << 16; },
                                    [](std::uint32_t bits) { return bits >> 16 | 0x0040; }};

inline const Format kOracleE4m3fn{
    "e4m3fn",
    8,
    3,
    7,
    0x7E,
    448.0,
    0x1p-9,
    {0x7F, 0xFF},
    true,
    [](std::uint32_t code) { return code == 0x7F || code == 0xFF; },
    [](std::uint32_t code) { return code == 0x7F ? 0x7FC00000 : 0xFFC00000; },
    [](std::uint32_t bits) { return bits < kFp32Sign ? 0x7Fu : 0xFFu; }};

inline const Format kOracleE4m3fnuz{"e4m3fnuz",
                                    8,
                                    3,
                                    8,
                                    0x7F,
                                    240.0,
                                    0x1p-10,
                                    {0x80, 0x80},
                                    false,
                                    [](std::uint32_t code) { return code == 0x80; },
                                    [](std::uint32_t) { return 0xFFC00000; },
                                    [](std::uint32_t) { return 0x80u; }};

inline const Format kOracleE5m2{
    "e5m2",
    8,
    2,
    15,
    0x7B,
    57344.0,
    0x1p-16,
    {0x7C, 0xFC},
    true,
    [](std::uint32_t code) { return (code & 0x7F) > 0x7C; },
    [](std::uint32_t code) { return code < 0x80 ? 0x7FC00000 : 0xFFC00000; },
    [](std::uint32_t bits) { return bits < kFp32Sign ? 0x7Eu : 0xFEu; }};

inline bool never_nan(std::uint32_t) { return false; }
inline std::uint32_t no_nan(std::uint32_t) { throw std::logic_error("this format has no NaN"); }

inline const Format kOracleE2m3{
    "e2m3", 6,         3,      1,
    0x1F,   7.5,       0x1p-3, {0x1F, 0x3F},
    true,   never_nan, no_nan, [](std::uint32_t bits) { return bits < kFp32Sign ? 0x20u : 0x00u; }};

inline const Format kOracleE3m2{
    "e3m2", 6,         2,      3,
    0x1F,   28.0,      0x1p-4, {0x1F, 0x3F},
    true,   never_nan, no_nan, [](std::uint32_t bits) { return bits < kFp32Sign ? 0x20u : 0x00u; }};

inline const Format kOracleE2m1{
    "e2m1", 4,         1,      1,
    0x7,    6.0,       0x1p-1, {0x7, 0xF},
    true,   never_nan, no_nan, [](std::uint32_t bits) { return bits < kFp32Sign ? 0x8u : 0x0u; }};

/// A magnitude's value; one above the largest continues the pattern, to find where overflow begins.
inline double value_of(const Format& format, std::uint32_t magnitude) {
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const std::uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  if (exponent == 0) return std::ldexp(mantissa, 1 - format.bias - format.mantissa_bits);
  return std::ldexp(mantissa + (1u << format.mantissa_bits),
                    exponent - format.bias - format.mantissa_bits);
}

/// The fp32 bits of a code.
inline std::uint32_t float_bits_of(const Format& format, std::uint32_t code) {
  if (format.is_nan(code)) return format.nan_to_float(code);
  const std::uint32_t sign = (code & format.sign_bit()) != 0 ? kFp32Sign : 0;
  const std::uint32_t magnitude = code & (format.sign_bit() - 1);
  if (magnitude > format.largest) return sign | kFp32Infinity;
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(value_of(format, magnitude)));
}

/// The fp32 patterns first..last all convert to `code`.
struct Interval {
  std::uint32_t first;
  std::uint32_t last;
  std::uint32_t code;
};

/// Round to nearest, ties to even, for all patterns that are not NaN.
inline std::vector<Interval> rounding_intervals(const Format& format, Overflow overflow) {
  std::vector<Interval> intervals;
  for (const bool negative : {false, true}) {
    const std::uint32_t fp32_sign = negative ? kFp32Sign : 0;
    const std::uint32_t sign = negative ? format.sign_bit() : 0;
    std::uint32_t first = 0;
    for (std::uint32_t magnitude = 0; magnitude <= format.largest; ++magnitude) {
      const double tie = (value_of(format, magnitude) + value_of(format, magnitude + 1)) / 2;
      const float exact_tie = static_cast<float>(tie);
      if (exact_tie != tie) throw std::logic_error("a tie must be an fp32 number");
      const bool tie_is_ours = magnitude % 2 == 0;
      const std::uint32_t end = std::bit_cast<std::uint32_t>(exact_tie) + (tie_is_ours ? 1 : 0);
      const bool unsigned_zero = magnitude == 0 && !format.has_minus_zero;
      intervals.push_back(
          {fp32_sign | first, fp32_sign | (end - 1), unsigned_zero ? 0 : sign | magnitude});
      first = end;
    }
    const std::uint32_t too_large =
        overflow == Overflow::saturate ? sign | format.largest : format.overflow[negative ? 1 : 0];
    intervals.push_back({fp32_sign | first, fp32_sign | kFp32Infinity, too_large});
  }
  return intervals;
}

/// One wrong answer; `input` and the others are bit patterns.
struct Mismatch {
  std::uint32_t input;
  std::uint32_t expected;
  std::uint32_t actual;

  friend std::ostream& operator<<(std::ostream& out, const Mismatch& mismatch) {
    return out << std::hex << "input 0x" << mismatch.input << " gives 0x" << mismatch.actual
               << ", not 0x" << mismatch.expected << std::dec;
  }
};

/// Both ends of an interval, their neighbours inside, and every stride-th pattern between.
template <typename FromFloat>
std::optional<Mismatch> find_mismatch(const Interval& interval, std::uint32_t stride,
                                      FromFloat from_float) {
  const auto difference = [&](std::uint32_t bits) {
    return static_cast<std::uint32_t>(from_float(std::bit_cast<float>(bits))) ^ interval.code;
  };
  const auto mismatch = [&](std::uint32_t bits) {
    return Mismatch{bits, interval.code, interval.code ^ difference(bits)};
  };
  for (const std::uint32_t bits :
       {interval.first, interval.last, std::min(interval.first + 1, interval.last),
        std::max(interval.last, interval.first + 1) - 1}) {
    if (difference(bits) != 0) return mismatch(bits);
  }
  const std::uint32_t count = (interval.last - interval.first) / stride + 1;
  std::uint32_t differences = 0;  // gathered without a branch, to vectorise
  std::uint32_t bits = interval.first;
  for (std::uint32_t i = 0; i < count; ++i, bits += stride) differences |= difference(bits);
  if (differences == 0) return std::nullopt;
  bits = interval.first;
  while (difference(bits) == 0) bits += stride;
  return mismatch(bits);
}

/// Checks a conversion from fp32, `from_float(float) -> code`.
template <typename FromFloat>
std::optional<Mismatch> check_from_float(const Format& format, Overflow overflow,
                                         std::uint32_t stride, FromFloat from_float) {
  for (const Interval& interval : rounding_intervals(format, overflow)) {
    if (const auto mismatch = find_mismatch(interval, stride, from_float)) return mismatch;
  }
  for (const std::uint32_t sign : {0u, kFp32Sign}) {
    // 1 is a NaN whose payload lies below everything that a short format keeps.
    for (std::uint32_t payload = 1; payload < 0x800000; payload += stride) {
      const std::uint32_t bits = sign | kFp32Infinity | payload;
      const std::uint32_t expected = format.nan_from_float(bits);
      const std::uint32_t actual = from_float(std::bit_cast<float>(bits));
      if (actual != expected) return Mismatch{bits, expected, actual};
    }
  }
  return std::nullopt;
}

/// Checks a conversion to fp32, `to_float(code) -> float`, for every code.
template <typename ToFloat>
std::optional<Mismatch> check_to_float(const Format& format, ToFloat to_float) {
  for (std::uint32_t code = 0; code < format.codes(); ++code) {
    const std::uint32_t expected = float_bits_of(format, code);
    const std::uint32_t actual = std::bit_cast<std::uint32_t>(to_float(code));
    if (actual != expected) return Mismatch{code, expected, actual};
  }
  return std::nullopt;
}

}  // namespace arlab::testing

// Properties of every conversion by definition. Its numbers are checked by test_formats_oracle.py, at both ends of every
// interval of fp32 that rounds to one code; what is right there and monotonic is right between, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include "reference/formats/portable_log.h"
#include "tests/formats/conversions.h"

namespace arlab::testing {
namespace {

constexpr std::uint32_t kStride = ARLAB_FORMATS_STRIDE;  // for the two hot formats
constexpr std::uint32_t kCoarseStride = kStride == 1 ? 31 : kStride;

/// Returns whether, among every stride-th positive number and infinity, no code is less than the one before, and that of its
/// negative is the negative of it.
template <typename FromFloat, typename Negative>
bool is_monotonic_and_odd(std::uint32_t stride, FromFloat from_float, Negative negative) {
  constexpr std::uint32_t kInfinity = 0x7F800000;
  const auto code_of = [&](std::uint32_t bits) {
    return static_cast<std::uint32_t>(from_float(std::bit_cast<float>(bits)));
  };
  std::uint32_t wrong = 0;  // gathered without a branch, to vectorise
  const std::uint32_t count = (kInfinity - 1) / stride;
  std::uint32_t bits = 1;
  for (std::uint32_t i = 0; i < count; ++i, bits += stride) {
    wrong |= static_cast<std::uint32_t>(code_of(bits + stride) < code_of(bits));
    wrong |= code_of(bits | 0x80000000) ^ negative(code_of(bits));
  }
  wrong |= static_cast<std::uint32_t>(code_of(kInfinity) < code_of(bits));
  return wrong == 0;
}

TEST(Formats, ConversionIsMonotonicAndOdd) {
  for_each_format([](std::string_view name, auto, auto from_float) {
    const bool is_hot = name == "half" || name == "bfloat16";
    const std::uint32_t sign = from_float(-1, Overflow::ieee) ^ from_float(1, Overflow::ieee);
    const std::uint32_t nan = name == "e8m0" ? kE8m0Nan : 0;  // which has no negative numbers
    const bool has_minus_zero = name != "e4m3fnuz";
    const auto negative = [=](std::uint32_t code) {
      return nan | (code ^ (has_minus_zero || (code & 0x7F) != 0 ? sign : 0));
    };
    for (const Overflow overflow : {Overflow::ieee, Overflow::saturate}) {
      const std::uint32_t stride = is_hot && overflow == Overflow::ieee ? kStride : kCoarseStride;
      EXPECT_TRUE(is_monotonic_and_odd(
          stride, [=](float value) { return from_float(value, overflow); }, negative))
          << name;
    }
  });
}

TEST(Formats, OneWrongPatternIsSeen) {
  for (const std::uint32_t wrong : {0x3F3F0001u, 0xBF3F0001u}) {
    EXPECT_FALSE(is_monotonic_and_odd(
        0x101,
        [=](float value) {
          return half_from_float(value) ^ (std::bit_cast<std::uint32_t>(value) == wrong);
        },
        [](std::uint32_t code) { return code ^ 0x8000; }));
  }
}

TEST(Formats, BitsAboveTheSignOfASmallCodeAreIgnored) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    const auto low_6 = static_cast<std::uint8_t>(code & 0x3F);
    const auto low_4 = static_cast<std::uint8_t>(code & 0xF);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(e2m3_to_float(byte)),
              std::bit_cast<std::uint32_t>(e2m3_to_float(low_6)));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(e3m2_to_float(byte)),
              std::bit_cast<std::uint32_t>(e3m2_to_float(low_6)));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(e2m1_to_float(byte)),
              std::bit_cast<std::uint32_t>(e2m1_to_float(low_4)));
  }
}

TEST(E8m0, FloorLog2IsExact) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    EXPECT_EQ(floor_log2(power), exponent);
    if (exponent > -149) {
      EXPECT_EQ(floor_log2(std::nextafter(power, 0.0f)), exponent - 1);
    }
  }
  EXPECT_EQ(floor_log2(std::numeric_limits<float>::max()), 127);
}

TEST(E8m0, ExponentsAreClamped) {
  for (int exponent = -400; exponent <= 400; ++exponent) {
    const int expected = exponent < -127 ? 0 : exponent > 127 ? 254 : exponent + 127;
    EXPECT_EQ(e8m0_from_exponent(exponent), expected);
  }
}

TEST(PortableLog, IsCloseToTheLogarithmEverywhere) {
  double worst = 0;
  for (std::uint32_t bits = 1; bits < 0x7F800000u; bits += 40503) {
    const float x = std::bit_cast<float>(bits);
    const double exact = std::log2(static_cast<double>(x));
    worst = std::max(worst, std::abs(log2_fp32(x) - exact) / std::max(1.0, std::abs(exact)));
  }
  EXPECT_LT(worst, 2.5e-7);
  EXPECT_EQ(log2_fp32(1.0f), 0.0f);
  EXPECT_EQ(log2_fp32(0x1p-149f), -149.0f);
}

TEST(PortableLog, ExponentialIsCloseEverywhere) {
  double worst = 0;
  for (float y = -126; y < 128; y += 0.00097f) {
    const double exact = std::exp2(static_cast<double>(y));
    worst = std::max(worst, std::abs(exp2_fp32(y) - exact) / exact);
  }
  EXPECT_LT(worst, 4e-7);
  for (int n = -149; n < 128; ++n) {
    EXPECT_EQ(exp2_fp32(static_cast<float>(n)), std::ldexp(1.0f, n)) << n;
  }
  EXPECT_EQ(exp2_fp32(-200.0f), 0.0f);
  EXPECT_TRUE(std::isinf(exp2_fp32(128.0f)));
}

}  // namespace
}  // namespace arlab::testing

// Every conversion against the oracle, plus what holds by definition: round trips, order, extremes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/formats/e8m0.h"
#include "reference/formats/portable_log.h"
#include "tests/formats/conversions.h"

namespace arlab::testing {
namespace {

constexpr std::uint32_t kStride = ARLAB_FORMATS_STRIDE;  // of the two hot formats
constexpr std::uint32_t kCoarseStride = kStride == 1 ? 31 : kStride;

void expect_none(const std::optional<Mismatch>& mismatch) {
  EXPECT_FALSE(mismatch.has_value()) << *mismatch;
}

TEST(Formats, ValuesOfAllCodes) {
  for_each_format([](const Format& format, auto to_float, auto) {
    SCOPED_TRACE(format.name);
    expect_none(check_to_float(format, to_float));
  });
}

TEST(Formats, RoundingOfSampledPatternsAndAllBoundaries) {
  for_each_format([](const Format& format, auto, auto from_float) {
    for (const Overflow overflow : {Overflow::ieee, Overflow::saturate}) {
      SCOPED_TRACE(format.name);
      expect_none(check_from_float(format, overflow, kCoarseStride,
                                   [=](float value) { return from_float(value, overflow); }));
    }
  });
}

TEST(Formats, HalfOfAllPatterns) {
  expect_none(check_from_float(kOracleHalf, Overflow::ieee, kStride,
                               [](float value) { return half_from_float(value); }));
}

TEST(Formats, Bfloat16OfAllPatterns) {
  expect_none(check_from_float(kOracleBfloat16, Overflow::ieee, kStride,
                               [](float value) { return bfloat16_from_float(value); }));
}

TEST(Formats, ExtremesOfTheSpecification) {
  for_each_format([](const Format& format, auto to_float, auto from_float) {
    SCOPED_TRACE(format.name);
    EXPECT_EQ(to_float(format.largest), format.largest_value);
    EXPECT_EQ(to_float(1), format.smallest_value);
    EXPECT_EQ(from_float(static_cast<float>(format.largest_value), Overflow::ieee), format.largest);
    EXPECT_EQ(from_float(std::numeric_limits<float>::infinity(), Overflow::saturate),
              format.largest);
    const float min_normal = to_float(1u << format.mantissa_bits);
    EXPECT_EQ(min_normal, std::ldexp(1.0f, 1 - format.bias));
  });
}

TEST(Formats, EveryCodeSurvivesARoundTrip) {
  for_each_format([](const Format& format, auto to_float, auto from_float) {
    SCOPED_TRACE(format.name);
    for (std::uint32_t code = 0; code < format.codes(); ++code) {
      if (format.is_nan(code)) continue;
      ASSERT_EQ(from_float(to_float(code), Overflow::ieee), code);
    }
  });
}

TEST(Formats, MagnitudesOrderAsTheirValues) {
  for_each_format([](const Format& format, auto to_float, auto) {
    SCOPED_TRACE(format.name);
    for (std::uint32_t code = 0; code < format.largest; ++code) {
      ASSERT_LT(to_float(code), to_float(code + 1));
    }
  });
}

TEST(Formats, ConversionIsMonotonicAndOdd) {
  for_each_format([](const Format& format, auto to_float, auto from_float) {
    SCOPED_TRACE(format.name);
    float previous = 0;
    for (std::uint32_t bits = 0; bits <= kFp32Infinity; bits += 0x4001) {
      const float value = std::bit_cast<float>(bits);
      const float rounded = to_float(from_float(value, Overflow::saturate));
      ASSERT_GE(rounded, previous);
      ASSERT_EQ(to_float(from_float(-value, Overflow::saturate)), -rounded);
      previous = rounded;
    }
  });
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

TEST(E8m0, ValuesOfAllCodes) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(e8m0_to_float(static_cast<std::uint8_t>(code)), std::ldexp(1.0, code - 127));
  }
  EXPECT_TRUE(std::isnan(e8m0_to_float(0xFF)));
}

TEST(E8m0, RoundsToTheNearestPowerAndTiesUp) {
  std::vector<Interval> intervals;
  intervals.push_back({0, 0, 0xFF});
  std::uint32_t first = 1;  // everything positive below the first tie, however small, is code 0
  for (std::uint32_t code = 0; code < 255; ++code) {
    const double tie = 1.5 * std::ldexp(1.0, static_cast<int>(code) - 127);
    const std::uint32_t end = std::bit_cast<std::uint32_t>(static_cast<float>(tie));
    intervals.push_back({first, end - 1, code});
    first = end;
  }
  intervals.push_back({first, 0xFFFFFFFF, 0xFF});  // too large, infinite, NaN, negative
  for (const Interval& interval : intervals) {
    expect_none(find_mismatch(interval, kCoarseStride, e8m0_from_float));
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

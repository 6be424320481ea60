// Every conversion against the oracle, plus what holds by definition: round trips, order, extremes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference/formats/e8m0.h"
#include "tests/formats/conversions.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

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

TEST(Formats, HalfOfAllPatternsSaturating) {
  expect_none(check_from_float(kOracleHalf, Overflow::saturate, kStride, [](float value) {
    return half_from_float(value, Overflow::saturate);
  }));
}

TEST(Formats, Bfloat16OfAllPatterns) {
  expect_none(check_from_float(kOracleBfloat16, Overflow::ieee, kStride,
                               [](float value) { return bfloat16_from_float(value); }));
}

TEST(Formats, Bfloat16OfAllPatternsSaturating) {
  expect_none(check_from_float(kOracleBfloat16, Overflow::saturate, kStride, [](float value) {
    return bfloat16_from_float(value, Overflow::saturate);
  }));
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

#if defined(__x86_64__)

bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __builtin_cpu_supports("avx") != 0 && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
         (ecx & bit_F16C) != 0;
}

__attribute__((target("avx,f16c"))) void hardware_halves(const float* values,
                                                         std::uint16_t* codes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes),
                   _mm256_cvtps_ph(_mm256_loadu_ps(values), _MM_FROUND_TO_NEAREST_INT));
}

__attribute__((target("avx,f16c"))) void hardware_floats(const std::uint16_t* codes,
                                                         float* values) {
  _mm256_storeu_ps(values,
                   _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes))));
}

// The hardware also settles what becomes of a NaN's payload.
TEST(HalfAndF16c, AllCodesToFloat) {
  if (!has_f16c()) GTEST_SKIP() << "this processor has no F16C; the oracle tests cover the same";
  for (std::uint32_t first = 0; first < 0x10000; first += 8) {
    std::array<std::uint16_t, 8> codes;
    std::array<float, 8> values;
    for (std::uint32_t i = 0; i < 8; ++i) codes[i] = static_cast<std::uint16_t>(first + i);
    hardware_floats(codes.data(), values.data());
    for (std::uint32_t i = 0; i < 8; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(half_to_float(codes[i])),
                std::bit_cast<std::uint32_t>(values[i]))
          << codes[i];
    }
  }
}

TEST(HalfAndF16c, SampledPatternsFromFloat) {
  if (!has_f16c()) GTEST_SKIP() << "this processor has no F16C; the oracle tests cover the same";
  std::array<float, 8> values;
  std::array<std::uint16_t, 8> codes;
  for (std::uint64_t first = 0; first <= 0xFFFFFFFF; first += 8ull * kCoarseStride) {
    for (std::uint32_t i = 0; i < 8; ++i) {
      values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(first) + i);
    }
    hardware_halves(values.data(), codes.data());
    int differences = 0;
    for (std::size_t i = 0; i < 8; ++i) differences |= half_from_float(values[i]) ^ codes[i];
    ASSERT_EQ(differences, 0) << "within 8 patterns from " << first;
  }
}

#endif

}  // namespace
}  // namespace arlab::testing

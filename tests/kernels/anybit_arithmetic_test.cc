// Assumptions of the packed arithmetic of the any-bit kernels.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/codecs/anybit.h"
#include "kernels/codecs/minifloats.h"
#include "reference/formats/fp8.h"

namespace arlab::kernels {
namespace {

TEST(AnyBitArithmetic, QuotientsByTheLargestCodeAreExact) {
  // All mantissas of one binade, and the ends of the range.
  for (unsigned bits = 1; bits <= 8; ++bits) {  // symmetric formats have one bit less
    const auto top = static_cast<float>((1u << bits) - 1);
    for (std::uint32_t i = 0; i < 1u << 23; ++i) {
      const float x = float_of(0x3F800000u + i);
      ASSERT_EQ(float_bits(divide_with_reciprocal(x, top, 1.0f / top)), float_bits(x / top))
          << x << " / " << top;
    }
    for (const float x : {0.0f, 0x1p-100f, 0x1.FFFFFEp-100f, 0x1.FFFFFEp127f}) {
      EXPECT_EQ(float_bits(divide_with_reciprocal(x, top, 1.0f / top)), float_bits(x / top)) << x;
    }
    for (const float x : {INFINITY, -INFINITY, NAN}) {
      EXPECT_TRUE(std::isnan(divide_with_reciprocal(x, top, 1.0f / top))) << x;
    }
  }
}

/// reciprocal_of_bfloat(), from any reciprocal that is within 1 ulp.
float refined(float x, float estimate) {
  return fused_multiply_add(estimate, fused_multiply_add(-x, estimate, 1.0f), estimate);
}

TEST(AnyBitArithmetic, ReciprocalsOfBf16AreExactFromAnyEstimateWithinOneUlp) {
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const float x = Bf16::to_float(bits);
    if (x < 0x1p-100f || x > 0x1p100f) continue;
    const float exact = 1.0f / x;
    EXPECT_EQ(reciprocal_of_bfloat(x), exact) << x;
    for (const float estimate :
         {exact, std::nextafter(exact, 0.0f), std::nextafter(exact, INFINITY)}) {
      EXPECT_EQ(refined(x, estimate), exact) << x;
    }
  }
  EXPECT_TRUE(std::isnan(reciprocal_of_bfloat(0)));
  EXPECT_TRUE(std::isnan(reciprocal_of_bfloat(NAN)));
}

TEST(AnyBitArithmetic, IntegerScalesOfBf16AreThoseOfTheReference) {
  // Elements of both signs are less than twice the largest magnitude apart.
  for (std::uint32_t bits = 0; Bf16::to_float(bits) <= 2 * kMostOfIntegerScales; ++bits) {
    const float scale = Bf16::to_float(bits);
    EXPECT_EQ(integer_scale_of_bfloat(scale), integer_scale(scale)) << scale;
    if (bits < 0x80 || scale < 0x1p-13f) continue;  // subnormal, or below all scales
    // As far off as an instruction for logarithms may be.
    for (const float off : {-1e-5f, 1e-5f}) {
      const float tenths = (std::log2(scale) + off) * 10 + 128.0004f;
      EXPECT_EQ(std::max(static_cast<int>(tenths), 0) - 128, integer_scale(scale)) << scale;
    }
  }
}

TEST(AnyBitArithmetic, ProductsWithInversesOfIntegerScalesRoundAsQuotientsDo) {
  for (int code = -128; code <= 127; ++code) {
    const float scale = scale_of(static_cast<std::int8_t>(code));
    const float inverse = 1.0f / scale;
    for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
      for (const float x : {Fp16::to_float(bits % 0x7C00), Bf16::to_float(bits)}) {
        const float quotient = x / scale;
        if (quotient > 512) continue;  // codes and zeros end long before
        ASSERT_EQ(rounded_quotient(x, inverse), float_bits(std::rint(quotient) + 0x1.8p23f))
            << x << " " << scale;
      }
    }
  }
}

/// Product and sum of bf16 numbers, rounded once. The sum has to fit a long double.
std::uint32_t fused(float a, float b, float c) {
  const long double exact = static_cast<long double>(a) * b + c;
  const auto near = static_cast<float>(exact);
  std::uint32_t best = 0;
  long double least = INFINITY;
  // The nearest of the neighbours; of two as near, the even one.
  for (int step = -1; step <= 1; ++step) {
    const std::uint32_t bits = (float_bits(near) >> 16) + static_cast<std::uint32_t>(step);
    const long double off =
        std::abs(exact - static_cast<long double>(Bf16::to_float(bits & 0xFFFF)));
    if (off < least || (off == least && bits % 2 == 0)) {
      least = off;
      best = bits & 0xFFFF;
    }
  }
  return best;
}

TEST(AnyBitArithmetic, OneRoundingDecodesAsTwoDoUnlessZerosAreTiny) {
  std::mt19937 random(1);
  const auto next = [&](std::uint32_t most) { return static_cast<std::uint32_t>(random() % most); };
  int ties = 0;
  for (int i = 0; i < 3'000'000; ++i) {
    const float scale = Bf16::to_float(0x3F80 + next(128));
    const auto code = static_cast<float>(next(256));
    const float magnitude = Bf16::to_float(((127 - 16 + next(40)) << 7) + next(128));
    const float zero = next(16) == 0 ? 0.0f : next(2) == 0 ? magnitude : -magnitude;
    const float sum = zero + code * scale;
    const std::uint32_t twice = Bf16::from_float(sum);
    ties += (float_bits(sum) & 0xFFFF) == 0x8000 ? 1 : 0;
    const std::uint32_t once = fused_multiply_add_bfloat2(
        float_bits(code) >> 16, float_bits(scale) >> 16, float_bits(zero) >> 16);
    if (sum != 0) {
      ASSERT_EQ(once & 0xFFFF, fused(code, scale, zero)) << code << " " << scale << " " << zero;
    }
    if (zero == 0 || magnitude >= scale * 0x1p-16f) {
      ASSERT_EQ(once & 0xFFFF, twice) << code << " " << scale << " " << zero;
    }
  }
  EXPECT_GT(ties, 1000);
  // A zero that fp32 loses beside a tie decides it: 129 * 1.5 = 193.5.
  EXPECT_EQ(Bf16::from_float(-0x1p-30f + 193.5f), 0x4342u);
  EXPECT_EQ(fused_multiply_add_bfloat2(0x4301, 0x3FC0, float_bits(-0x1p-30f) >> 16) & 0xFFFF,
            0x4341u);
}

TEST(AnyBitArithmetic, SmallNumbersAreEqualToThemselvesOnly) {
  for (std::uint32_t a = 0; a <= kPerThread; ++a) {
    for (std::uint32_t b = 0; b <= kPerThread; ++b) {
      EXPECT_EQ(equal_small(splat(a), b | a << 16), 0xFFFF0000u | (a == b ? 0xFFFFu : 0)) << a << b;
    }
  }
}

/// Calls f with numbers of all exponents from 2^-40 to 2^12, some beside integers, and random bits, some at their ends.
template <class F>
void with_numbers_and_random_bits(F f) {
  std::mt19937 generator(7);
  for (int i = 0; i < 2000000; ++i) {
    const auto exponent = static_cast<std::uint32_t>(127 - 40 + i % 52) << 23;
    auto bits = static_cast<std::uint32_t>(generator() & 0x807FFFFFu) | exponent;
    if (i % 3 == 0) bits &= 0xFFFF0000u;
    const auto random = static_cast<std::uint32_t>(generator() >> 8);
    f(float_of(bits), i % 5 == 0 ? 0 : i % 5 == 1 ? 0xFFFFFFu : i % 5 == 2 ? random % 64 : random);
  }
}

TEST(AnyBitArithmetic, StochasticSumsAreThoseOfTheReference) {
  with_numbers_and_random_bits([](float x, std::uint32_t random) {
    const auto expected = static_cast<std::int32_t>(round_stochastically(x, random));
    const std::uint32_t sum = stochastic_sum(x, 0x1.8p23f + 8, random);
    ASSERT_EQ(static_cast<std::int32_t>(sum - float_bits(0x1.8p23f + 8)), expected)
        << x << " " << random;
  });
}

TEST(AnyBitArithmetic, StochasticCodesOfMinifloatsAreThoseOfTheReference) {
  with_numbers_and_random_bits([](float x, std::uint32_t random) {
    ASSERT_EQ(stochastic_minifloat_code(kE4m3fn, x, random),
              minifloat_code(kE4m3fn, x, random).bits)
        << x << " " << random;
  });
  EXPECT_EQ(stochastic_minifloat_code(kE4m3fn, -0.0f, 0), 0x80u);
}

TEST(AnyBitArithmetic, PlanesAreInElementOrderAndComeBack) {
  Codes8 codes;
  for (std::size_t i = 0; i < kPerThread; ++i) {
    codes.set(i, static_cast<std::uint32_t>(0x1B ^ 37 * i) & 0xFF);
  }
  for (unsigned width = 1; width <= 8; width *= 2) {
    for (unsigned shift = 0; shift + width <= 8; ++shift) {
      const std::uint64_t plane = plane_of(codes, width, shift);
      Codes8 back;
      add_plane(back, plane, width, shift);
      for (std::size_t i = 0; i < kPerThread; ++i) {
        const std::uint32_t part = codes[i] >> shift & ((1u << width) - 1);
        EXPECT_EQ(plane >> (width * i) & ((1u << width) - 1), part) << width << " " << i;
        EXPECT_EQ(back[i], part << shift) << width << " " << i;
      }
      if (width < 8) {
        EXPECT_EQ(plane >> (8 * width), 0u);
      }
    }
  }
}

}  // namespace
}  // namespace arlab::kernels

// What the packed arithmetic of the any-bit kernels takes for granted.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/codecs/anybit.h"

namespace arlab::kernels {
namespace {

TEST(AnyBitArithmetic, QuotientsByTheLargestCodeAreExact) {
  // All mantissas of one binade, and the ends of the range.
  for (unsigned bits = 2; bits <= 8; ++bits) {
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

TEST(AnyBitArithmetic, SmallNumbersAreEqualToThemselvesOnly) {
  for (std::uint32_t a = 0; a <= kPerThread; ++a) {
    for (std::uint32_t b = 0; b <= kPerThread; ++b) {
      EXPECT_EQ(equal_small(splat(a), b | a << 16), 0xFFFF0000u | (a == b ? 0xFFFFu : 0)) << a << b;
    }
  }
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

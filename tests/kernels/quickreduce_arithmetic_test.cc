// Assumptions of the packed arithmetic of the QuickReduce kernels.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/codecs/quickreduce.h"

namespace arlab::kernels {
namespace {

bool is_finite_half(std::uint32_t bits) { return (bits & 0x7C00) != 0x7C00; }

TEST(QuickReduceArithmetic, AnyReciprocalWithinOneUlpRoundsToTheSameHalf) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    if (!is_finite_half(bits) || (bits & 0x7FFF) == 0) continue;
    const float exact = 1.0f / Fp16::to_float(bits);
    const std::uint32_t expected = Fp16::from_float(exact);
    EXPECT_EQ(Fp16::from_float(std::nextafter(exact, INFINITY)), expected) << bits;
    EXPECT_EQ(Fp16::from_float(std::nextafter(exact, -INFINITY)), expected) << bits;
  }
}

template <class Element>
void expect_codes_of_e2m1() {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    if ((bits & 0x7FFF) >= Element::kInfinity) continue;
    const std::uint32_t expected = e2m1_from_float(Element::to_float(bits));
    ASSERT_EQ(e2m1_of_pair<Element>(bits), expected) << bits;
    ASSERT_EQ(e2m1_of_pair<Element>(bits << 16), expected << 16) << bits;
    ASSERT_EQ(e2m1_of_float(Element::to_float(bits)), expected) << bits;
  }
}

TEST(QuickReduceArithmetic, CodesOfE2m1) {
  expect_codes_of_e2m1<Fp16>();
  expect_codes_of_e2m1<Bf16>();
  // fp32 numbers beside every tie.
  for (const float tie : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f, 7.0f}) {
    for (const float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, INFINITY)}) {
      EXPECT_EQ(e2m1_of_float(x), e2m1_from_float(x)) << x;
      EXPECT_EQ(e2m1_of_float(-x), e2m1_from_float(-x)) << x;
    }
  }
  EXPECT_EQ(e2m1_of_float(INFINITY), 7u);
}

TEST(QuickReduceArithmetic, ValuesOfE2m1) {
  for (std::uint32_t code = 0; code < 16; ++code) {
    const float value = e2m1_to_float(static_cast<std::uint8_t>(code));
    EXPECT_EQ(float_bits(float_of_e2m1(code)), float_bits(value));
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const Pack8<Bf16> x = bfloats_of_e2m1(code << (4 * i) | 0x5u << (4 * ((i + 3) % kPerThread)));
      EXPECT_EQ(element_bits(x, i), float_bits(value) >> 16) << i;
      EXPECT_EQ(element_bits(x, (i + 3) % kPerThread), 0x4040u) << i;
    }
  }
}

TEST(QuickReduceArithmetic, ReciprocalsAreClamped) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    if (!is_finite_half(bits)) continue;
    const float x = Fp16::to_float(bits);
    const std::uint32_t expected =
        x == 0 ? 0x7BFF | (bits & 0x8000) : Fp16::from_float_clamped(1.0f / x);
    EXPECT_EQ(reciprocal_half2(splat(bits)), splat(expected)) << bits;
  }
}

/// How far below the least code, -L, an element of a block comes before it is moved to the codes.
/// The element that sets the scale comes farthest: products round monotonically.
template <int L>
int lowest_code() {
  std::uint32_t lowest = 0xFFFF;
  for (std::uint32_t m = 0; m < 65536; ++m) {
    if (!is_finite_half(m)) continue;
    const GroupScales group = scales_of_blocks<Fp16, IntegerCode<L, Fp16>>(splat(m));
    for (const std::uint32_t x : {m, m ^ 0x8000}) {
      const std::uint32_t w = multiply_half2(splat(x), group.inverse);
      const std::uint32_t sum = add_half2(w, splat(IntegerCode<L, Fp16>::kOffset + L));
      lowest = std::min(lowest, sum & 0xFFFF);
    }
  }
  return static_cast<int>(lowest) - static_cast<int>(IntegerCode<L, Fp16>::kOffset);
}

TEST(QuickReduceArithmetic, NothingIsBelowTheCodesUpTo32) {
  EXPECT_EQ(lowest_code<4>(), 0);
  EXPECT_EQ(lowest_code<8>(), 0);
  EXPECT_EQ(lowest_code<32>(), 0);
  EXPECT_LT(lowest_code<128>(), 0);  // so encode_pair() must look there
}

TEST(QuickReduceArithmetic, ClampFiniteLeavesFiniteNumbersAlone) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    if (!is_finite_half(bits)) continue;
    EXPECT_EQ(clamp_finite_half2(splat(bits)), splat(bits));
  }
  EXPECT_EQ(clamp_finite_half2(0xFC007C00), 0xFBFF7BFFu);
}

TEST(QuickReduceArithmetic, OneInfinityAmongEightElementsIsSeen) {
  for (const std::uint32_t special : {0x7C00u, 0xFC00u, 0x7E00u, 0xFE01u}) {
    for (int place = 0; place < 8; ++place) {
      std::uint32_t words[4] = {0x7BFFFBFF, 0x00010000, 0x80008001, 0x3C00BC00};
      EXPECT_FALSE(any_non_finite_halves(words));
      const int shift = place % 2 * 16;
      words[place / 2] = (words[place / 2] & ~(0xFFFFu << shift)) | special << shift;
      EXPECT_TRUE(any_non_finite_halves(words)) << special << " at " << place;
    }
  }
  for (const std::uint32_t special : {0x7F80u, 0xFF80u, 0x7FC0u, 0xFF81u}) {
    for (int place = 0; place < 8; ++place) {
      std::uint32_t words[4] = {0x7F7FFF7F, 0x00010000, 0x80008001, 0x3F80BF80};
      EXPECT_FALSE(any_non_finite_bfloats(words));
      const int shift = place % 2 * 16;
      words[place / 2] = (words[place / 2] & ~(0xFFFFu << shift)) | special << shift;
      EXPECT_TRUE(any_non_finite_bfloats(words)) << special << " at " << place;
    }
  }
}

// ---------------------------------------------------------------- bf16

bool is_finite_bfloat(std::uint32_t bits) { return (bits & 0x7F80) != 0x7F80; }

TEST(QuickReduceArithmetic, AnyReciprocalWithinOneUlpRoundsToTheSameBfloat) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = Bf16::to_float(bits);
    if (!is_finite_bfloat(bits) || !(std::abs(x) >= 0x1p-126f && std::abs(x) < 0x1p126f)) continue;
    const float exact = 1.0f / x;
    const std::uint32_t expected = Bf16::from_float(exact);
    EXPECT_EQ(Bf16::from_float(std::nextafter(exact, INFINITY)), expected) << bits;
    EXPECT_EQ(Bf16::from_float(std::nextafter(exact, -INFINITY)), expected) << bits;
    EXPECT_EQ(reciprocal_bfloat2(splat(bits)), splat(expected)) << bits;
  }
  EXPECT_EQ(reciprocal_bfloat2(0x80000000), 0xFF807F80);
}

/// Inverses of scales are infinities, or normal numbers.
template <class Code>
void expect_normal_inverses() {
  for (std::uint32_t m = 0; m < 65536; ++m) {
    if (!is_finite_bfloat(m)) continue;
    const std::uint32_t inverse = scales_of_blocks<Bf16, Code>(splat(m)).inverse & 0x7FFF;
    EXPECT_TRUE(inverse >= 0x0080 && inverse <= 0x7F80) << m;
  }
}

TEST(QuickReduceArithmetic, InversesOfBfloatScalesAreNotSubnormal) {
  expect_normal_inverses<IntegerCode<4, Bf16>>();
  expect_normal_inverses<IntegerCode<8, Bf16>>();
  expect_normal_inverses<IntegerCode<32, Bf16>>();
  expect_normal_inverses<IntegerCode<128, Bf16>>();
  expect_normal_inverses<Fp8Code<Bf16>>();
  expect_normal_inverses<Fp4Code<Bf16>>();
}

/// Pairs give what single elements give: codes of every number, and values of every code.
template <class Code>
void expect_pairs_as_singles(std::uint32_t codes) {
  for (std::uint32_t w = 0; w < 65536; ++w) {
    if ((w & 0x7FFF) > 0x7F80) continue;  // a NaN takes the scalar way
    ASSERT_EQ(Code::encode_pair(splat(w)), splat(Code::encode(Bf16::to_float(w)))) << w;
  }
  for (std::uint32_t code = 0; code < codes; ++code) {
    const std::uint32_t stored = Code::kOffset + code;
    const float value = Code::decode(stored);
    if (value != value) continue;
    ASSERT_EQ(Code::decode_pair(splat(stored)), splat(Bf16::from_float(value))) << code;
  }
}

TEST(QuickReduceArithmetic, CodesOfBfloatPairsAreThoseOfSingles) {
  expect_pairs_as_singles<IntegerCode<4, Bf16>>(8);
  expect_pairs_as_singles<IntegerCode<8, Bf16>>(16);
  expect_pairs_as_singles<IntegerCode<32, Bf16>>(64);
  expect_pairs_as_singles<IntegerCode<128, Bf16>>(256);
  expect_pairs_as_singles<Fp8Code<Bf16>>(256);
  expect_pairs_as_singles<Fp4Code<Bf16>>(16);
}

}  // namespace
}  // namespace arlab::kernels

// What the fp16 arithmetic of the QuickReduce kernels takes for granted.

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

TEST(QuickReduceArithmetic, ReciprocalsAreClamped) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    if (!is_finite_half(bits)) continue;
    const float x = Fp16::to_float(bits);
    const std::uint32_t expected =
        x == 0 ? 0x7BFF | (bits & 0x8000) : Fp16::from_float_clamped(1.0f / x);
    EXPECT_EQ(reciprocal_half2(both(bits)), both(expected)) << bits;
  }
}

/// How far below the least code, -L, an element of a block comes before it is moved to the codes.
/// The element that sets the scale comes farthest: products round monotonically.
template <int L>
int lowest_code() {
  std::uint32_t lowest = 0xFFFF;
  for (std::uint32_t m = 0; m < 65536; ++m) {
    if (!is_finite_half(m)) continue;
    const GroupScales group = scales_of_blocks<Fp16, IntegerCode<L>>(both(m));
    for (const std::uint32_t x : {m, m ^ 0x8000}) {
      const std::uint32_t w = multiply_half2(both(x), group.inverse);
      const std::uint32_t sum = add_half2(w, both(IntegerCode<L>::kOffset + L));
      lowest = std::min(lowest, sum & 0xFFFF);
    }
  }
  return static_cast<int>(lowest) - static_cast<int>(IntegerCode<L>::kOffset);
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
    EXPECT_EQ(clamp_finite_half2(both(bits)), both(bits));
  }
  EXPECT_EQ(clamp_finite_half2(0xFC007C00), 0xFBFF7BFFu);
}

TEST(QuickReduceArithmetic, OneInfinityAmongEightElementsIsSeen) {
  for (const std::uint32_t special : {0x7C00u, 0xFC00u, 0x7E00u, 0xFE01u}) {
    for (int place = 0; place < 8; ++place) {
      std::uint32_t words[4] = {0x7BFFFBFF, 0x00010000, 0x80008001, 0x3C00BC00};
      EXPECT_FALSE(any_non_finite(words));
      const int shift = place % 2 * 16;
      words[place / 2] = (words[place / 2] & ~(0xFFFFu << shift)) | special << shift;
      EXPECT_TRUE(any_non_finite(words)) << special << " at " << place;
    }
  }
}

}  // namespace
}  // namespace arlab::kernels

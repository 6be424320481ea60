// LogFMT: blocks worked out by hand, and the logarithm it is made of. That the bits are right
// everywhere is what the NumPy model checks (test_logfmt_oracle.py).

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/formats/portable_log.h"
#include "tests/codecs/round_trip.h"

namespace arlab::testing {
namespace {

using Floats = std::vector<float>;

TEST(LogFmt, TheRangeIsAtMost32Octaves) {
  const Floats x = {0x1p20f, 0x1p-12f, 0x1p-14f, 0x1p-11f, 0, 0, 0, 0};
  const Floats y = round_trip("logfmt8-g8", x);
  EXPECT_NEAR(y[0], 0x1p20f, 0x1p20f * 0.006f);  // 126 steps, each rounded to fp16
  EXPECT_EQ(y[1], 0x1p-12f);
  EXPECT_EQ(y[2], 0.0f);  // below half of the smallest value
}

TEST(LogFmt, TheLargestNumberStaysFinite) {
  // log2(65504) = 15.9993 becomes 16 in fp16, and 2^16 is no fp16.
  const Patterns x = {0x7BFF, 0xFBFF, 0x7BFF, 0x7BFF, 0x7BFF, 0x7BFF, 0x7BFF, 0xFBFF};
  for (const char* codec : {"logfmt2-g8", "logfmt4-g8", "logfmt8-g8"}) {
    EXPECT_EQ(round_trip(*find_codec(codec), DType::fp16, x), x) << codec;
  }
  // A step of foreign bytes reaches 2^200.
  const auto wire_of_metadata = [](std::uint16_t lo, std::uint16_t step) {
    Bytes wire(3 + 4, std::byte{0});
    wire[0] = std::byte{0b11'10'01'00};  // magnitudes 0 1 2 3 0 0 0 0, and the last is negative
    wire[2] = std::byte{0x80};
    wire[3] = static_cast<std::byte>(lo);
    wire[4] = static_cast<std::byte>(lo >> 8);
    wire[5] = static_cast<std::byte>(step);
    wire[6] = static_cast<std::byte>(step >> 8);
    return wire;
  };
  const CodecPtr codec = find_codec("logfmt3-g8");
  EXPECT_EQ(decode(*codec, DType::fp16, wire_of_metadata(0, 0x5640), 8),
            (Patterns{0, 0x3C00, 0x7BFF, 0x7BFF, 0, 0, 0, 0x8000}));
  constexpr float kTop = std::numeric_limits<float>::max();
  EXPECT_EQ(values_of("logfmt3-g8", wire_of_metadata(0, 0x5A40), 8),
            (Floats{0, 1, kTop, kTop, 0, 0, 0, 0}));
  // Metadata that is no number makes every element of its block a NaN, zeros too.
  for (const int bad : {0x7E00, 0x7C01, 0xFFFF, 0x7C00, 0xFC00}) {
    const auto bits = static_cast<std::uint16_t>(bad);
    EXPECT_EQ(decode(*codec, DType::fp16, wire_of_metadata(0, bits), 8), Patterns(8, 0x7E00))
        << bad;
    EXPECT_EQ(decode(*codec, DType::fp16, wire_of_metadata(bits, 0), 8), Patterns(8, 0x7E00))
        << bad;
    EXPECT_EQ(decode(*codec, DType::bf16, wire_of_metadata(bits, bits), 8), Patterns(8, 0x7FC0));
  }
}

TEST(LogFmt, NamesOutOfRange) {
  for (const char* name :
       {"logfmt1-g32", "logfmt9-g32", "logfmt4-g33", "logfmt4-g0", "logfmt4-g65544"}) {
    EXPECT_THROW(find_codec(name), InvalidInput) << name;
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

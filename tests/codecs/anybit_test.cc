// Any-bit integers: names, footprints, and blocks worked out by hand. That the bits are right
// everywhere is what the NumPy model checks (test_anybit_oracle.py).

#include "reference/codecs/anybit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/codecs/integer_scale.h"
#include "tests/codecs/round_trip.h"
#include "tests/refusal.h"

namespace arlab::testing {
namespace {

using Floats = std::vector<float>;

std::vector<int> bytes(const std::vector<std::byte>& wire) {
  std::vector<int> values;
  for (const std::byte b : wire) values.push_back(std::to_integer<int>(b));
  return values;
}

std::string error_of(const std::string& codec) {
  return refusal_of([&] { find_codec(codec); });
}

// ---- names

TEST(AnyBitNames, SayTheirParameters) {
  const auto f = parse_anybit("int3-g64-sr");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->bits, 3u);
  EXPECT_EQ(f->group, 64u);
  EXPECT_EQ(f->metadata, AnyBitFormat::Metadata::spikes);
  EXPECT_FALSE(f->symmetric || f->hadamard || f->given);
  EXPECT_TRUE(parse_anybit("had-int4-g32-sym")->hadamard);
  EXPECT_EQ(parse_anybit("int8-gtensor")->group, 0u);
  EXPECT_EQ(parse_anybit("int8-gtensor-static0.5:-3")->given->zero, -3.0f);
  EXPECT_EQ(parse_anybit("int8-gtensor-sym-static1e-3")->given->scale, 1e-3f);
  EXPECT_FALSE(parse_anybit("qr-q4"));
  EXPECT_FALSE(parse_anybit("int4"));
  EXPECT_FALSE(parse_anybit("int4-g32 "));
}

TEST(AnyBitNames, OutOfRangeIsSaidWithWhatIsAllowed) {
  EXPECT_EQ(error_of("int9-g32"), "codec 'int9-g32': 9 bits; allowed is 2 to 8");
  EXPECT_NE(error_of("int1-g32").find("allowed is 2 to 8"), std::string::npos);
  EXPECT_NE(error_of("int12-g32").find("allowed is 2 to 8"), std::string::npos);
  for (const char* name :
       {"int4-g0", "int4-g7", "int4-g12", "int4-g032", "int4-g99999999999999999999"}) {
    EXPECT_NE(error_of(name).find("allowed is a multiple of 8"), std::string::npos) << name;
  }
  EXPECT_NE(error_of("int4-g65544-sr").find("to 65536"), std::string::npos);
  EXPECT_NE(error_of("int4-g264-sr-is").find("to 256"), std::string::npos);
  EXPECT_NE(error_of("had-int4-g24").find("power of two"), std::string::npos);
  for (const char* name :
       {"int4-g32-is", "int4-g32-sym-sr-is", "had-int4-g32-sr", "int4-g32-static1:0",
        "int4-gtensor-sr", "had-int4-gtensor", "int8-gtensor-static1", "int8-gtensor-sym-static1:2",
        "int8-gtensor-static0:0", "int8-gtensor-sym-static-1", "int8-gtensor-sym-staticnan",
        "int8-gtensor-sym-static1e-40", "int8-gtensor-sym-static", "int8-gtensor-sym-static1x",
        "int8-grow"}) {
    EXPECT_EQ(error_of(name).find(std::string("codec '") + name + "': "), 0u) << error_of(name);
  }
}

TEST(AnyBitNames, ARowIsAGroup) {
  EXPECT_EQ(with_row_length("int8-grow", 384), "int8-g384");
  EXPECT_EQ(with_row_length("had-int4-grow-sym", 64), "had-int4-g64-sym");
  EXPECT_EQ(with_row_length("int4-grow-sr", 128), "int4-g128-sr");
  EXPECT_EQ(with_row_length("int8-g128", 384), "int8-g128");
  EXPECT_EQ(with_row_length("qr-q4", 7), "qr-q4");
  EXPECT_THROW(with_row_length("int8-grow", 7), InvalidInput);
}

// ---- the wire

TEST(AnyBitWire, StaticByHand) {
  const Floats x = {-1, -0.5f, 0, 0.5f, 1, 1.5f, 2, 2.5f};
  EXPECT_EQ(bytes(wire_of("int2-gtensor-static0.5:-1", x)), (std::vector<int>{0xE4, 0xFF, 0}));
  EXPECT_EQ(round_trip("int2-gtensor-static0.5:-1", x),
            (Floats{-1, -0.5f, 0, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f}));
}

// ---- what goes wrong

TEST(AnyBitErrors, AGivenScaleStillShowsANaN) {
  Floats x(5000, 1.0f);
  x[4990] = std::numeric_limits<float>::quiet_NaN();
  const Floats y = round_trip("int8-gtensor-sym-static0.1", x);
  EXPECT_FALSE(std::isnan(y[4095]));
  EXPECT_TRUE(std::isnan(y[4096]) && std::isnan(y[4999]));
}

// ---- the largest numbers

/// fp16 values after a trip.
Floats half_trip(const std::string& codec, const Floats& x) {
  return values(DType::fp16, round_trip(*find_codec(codec), DType::fp16, patterns(DType::fp16, x)));
}

TEST(AnyBitLimits, TheLargestNumberStaysFinite) {
  constexpr float kTop = 65504;
  const Floats constant(32, kTop);  // its zero is RN(65504, bf16) = 65536
  const Floats negative(32, -kTop);
  for (const char* codec :
       {"int8-g32", "int2-g32", "int8-gtensor", "int8-g32-sym", "int8-gtensor-static1:65536"}) {
    EXPECT_EQ(half_trip(codec, constant), constant) << codec;
  }
  EXPECT_EQ(half_trip("int8-g32", negative), negative);
  EXPECT_EQ(half_trip("int8-g32-sym", {kTop}), Floats{kTop});
  const Floats spikes = {1, kTop, -kTop, 2, kTop, -kTop, 3, -4};
  for (const char* codec : {"int4-g8-sr", "int4-g8-sym-sr", "int2-g8-sr-is"}) {
    const Floats back = half_trip(codec, spikes);
    EXPECT_EQ(back[1], kTop) << codec;
    EXPECT_EQ(back[2], -kTop) << codec;
    for (const float v : back) EXPECT_TRUE(std::isfinite(v)) << codec;
  }
  Floats both(32, kTop);
  for (std::size_t i = 1; i < both.size(); i += 2) both[i] = -kTop;
  for (const float v : half_trip("had-int4-g32", both)) EXPECT_TRUE(std::isfinite(v));
}

TEST(AnyBitLimits, Bf16AndFp32SaturateToo) {
  // Zero 0x1.FEp127 is the largest bf16; 15 scales more overflow in fp32 and have no other
  // rounding.
  Bytes wire(4 + 4, std::byte{0xFF});
  wire[4] = wire[6] = std::byte{0x7F};  // scale, zero: 0x7F7F
  wire[5] = wire[7] = std::byte{0x7F};
  EXPECT_EQ(values_of("int4-g8", wire, 8), Floats(8, std::numeric_limits<float>::max()));
  EXPECT_EQ(decode(*find_codec("int4-g8"), DType::bf16, wire, 8), Patterns(8, 0x7F7F));
  EXPECT_EQ(decode(*find_codec("int4-g8"), DType::fp16, wire, 8), Patterns(8, 0x7BFF));
  wire[5] = wire[7] = std::byte{0xFF};
  EXPECT_EQ(decode(*find_codec("int4-g8"), DType::fp16, wire, 8), Patterns(8, 0xFBFF));
  // A sum that rounds to the largest number and a bit, in bf16 only: 255 * 2^120 + 2^118.
  EXPECT_EQ(values(DType::bf16, round_trip(*find_codec("int8-g8-sym"), DType::bf16, {0x7F7F})),
            Floats{bfloat16_to_float(0x7F7F)});
}

TEST(AnyBitLimits, MetadataThatIsNotFiniteIsNotHidden) {
  // Foreign bytes: codes 15, scale 1, zero infinite; then scale 65536, and a spike that is
  // infinite.
  Bytes wire(4 + 4, std::byte{0xFF});
  wire[4] = std::byte{0x80};
  wire[5] = std::byte{0x3F};
  wire[6] = std::byte{0x80};
  wire[7] = std::byte{0x7F};
  EXPECT_EQ(decode(*find_codec("int4-g8"), DType::fp16, wire, 8), Patterns(8, 0x7C00));
  Bytes spikes(4 + 12, std::byte{0xFF});
  const std::vector<int> metadata = {0x80, 0x47, 0, 0, 0, 0x3C, 0, 0x7C, 0, 0, 1, 0};
  for (std::size_t i = 0; i < 12; ++i) spikes[4 + i] = static_cast<std::byte>(metadata[i]);
  Patterns expected(8, 0x7C00);
  expected[0] = 0x3C00;
  EXPECT_EQ(decode(*find_codec("int4-g8-sr"), DType::fp16, spikes, 8), expected);
  spikes[4 + 7] = std::byte{0x7B};  // finite: everything else saturates
  expected.assign(8, 0x7BFF);
  expected[0] = 0x3C00;
  expected[1] = 0x7B00;
  EXPECT_EQ(decode(*find_codec("int4-g8-sr"), DType::fp16, spikes, 8), expected);
}

TEST(AnyBitLimits, WhatOverflowsInATransformIsLimitedOrNaN) {
  // All elements of the transformed block are alike, and eight of them are more than fp32 holds.
  Floats x(32, 0.0f);
  x[0] = 3e38f;
  const Floats back = round_trip("had-int4-g32", x);
  EXPECT_EQ(back[0], std::numeric_limits<float>::max());
  for (const float v : back) EXPECT_FALSE(std::isinf(v));
}

// ---- parts

TEST(IntegerScale, IsTheLargestThatDoesNotExceed) {
  for (int s = -128; s <= 127; ++s) {
    const auto code = static_cast<std::int8_t>(s);
    const float value = scale_of(code);
    EXPECT_NEAR(value, std::exp2(s / 10.0), value * 6e-8);
    EXPECT_EQ(integer_scale(value), code);
    if (s > -128) {
      EXPECT_EQ(integer_scale(std::nextafter(value, 0.0f)), code - 1);
    }
  }
  EXPECT_EQ(integer_scale(0), -128);
  EXPECT_EQ(integer_scale(std::numeric_limits<float>::infinity()), 127);
}

}  // namespace
}  // namespace arlab::testing

// Any-bit integers: names, and the scales that travel as a byte. The NumPy model checks that the bits are right
// (test_anybit_oracle.py).

#include "reference/codecs/anybit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/codecs/integer_scale.h"
#include "reference/codecs/registry.h"
#include "tests/refusal.h"

namespace arlab::testing {
namespace {

std::string error_of(const std::string& codec) {
  return refusal_of([&] { find_codec(codec); });
}

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
  EXPECT_EQ(with_row_length("fp8-e4m3-grow-vllm", 576), "fp8-e4m3-g576-vllm");
  EXPECT_EQ(with_row_length("mine-growing", 576), "mine-growing");
  EXPECT_EQ(with_row_length("qr-q4", 7), "qr-q4");
  EXPECT_THROW(with_row_length("int8-grow", 7), InvalidInput);
}

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

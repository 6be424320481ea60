// MX and NVFP4: blocks worked out by hand, scale rules, what saturates. That the bits are right
// everywhere is what the NumPy model checks (test_microscaling_oracle.py).

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "reference/formats/fp8.h"
#include "tests/codecs/round_trip.h"
#include "tests/refusal.h"

namespace arlab::testing {
namespace {

using Floats = std::vector<float>;

/// The E8M0 code of a block of 32 with this largest magnitude, as the exponent it stands for.
int exponent_for(const std::string& codec, float amax) {
  Floats x(32, 0.0f);
  x[7] = -amax;
  return std::to_integer<int>(wire_of(codec, x).back()) - 127;
}

TEST(Microscaling, SizesAreElementsPlusOneByteAScale) {
  const auto bytes = [](const char* name, std::size_t n) {
    return find_codec(name)->wire_bytes(DType::fp16, n);
  };
  EXPECT_EQ(bytes("mxfp8-e4m3", 4096), 4096u + 128);
  EXPECT_EQ(bytes("mxfp6-e3m2", 4096), 3072u + 128);
  EXPECT_EQ(bytes("mxfp4", 4096), 2048u + 128);
  EXPECT_EQ(bytes("nvfp4", 4096), 4u + 2048 + 256);
  EXPECT_EQ(bytes("mxfp4", 33), 17u + 2);
  EXPECT_EQ(bytes("nvfp4", 1), 4u + 1 + 1);
}

TEST(Microscaling, ScaleRules) {
  // e2m1 has emax 2 and one mantissa bit: 1.75 rounds up to 2, 1.5 does not.
  EXPECT_EQ(exponent_for("mxfp4", 4.0f), 0);
  EXPECT_EQ(exponent_for("mxfp4", 7.9f), 0);
  EXPECT_EQ(exponent_for("mxfp4-floor", 7.9f), 0);
  EXPECT_EQ(exponent_for("mxfp4-ceil", 4.0f), 0);
  EXPECT_EQ(exponent_for("mxfp4-ceil", 4.1f), 1);
  EXPECT_EQ(exponent_for("mxfp4-even", 6.9f), 0);
  EXPECT_EQ(exponent_for("mxfp4-even", 7.0f), 1);
  EXPECT_EQ(exponent_for("mxfp8-e4m3", 448.0f), 0);
  EXPECT_EQ(exponent_for("mxfp8-e5m2", 32768.0f), 0);
  EXPECT_EQ(exponent_for("mxfp6-e2m3", 1.0f), -2);
  EXPECT_EQ(exponent_for("mxfp6-e3m2", 1.0f), -4);
  EXPECT_EQ(exponent_for("mxfp4", 0x1p-149f), -127);  // the smallest there is
}

TEST(NvFp4, TensorScaleMapsTheLargestBlockToTheLargestScale) {
  Floats x(64, 0.5f);
  x[20] = 24;
  const auto wire = wire_of("nvfp4", x);
  float g = 0;
  std::memcpy(&g, wire.data(), 4);
  EXPECT_EQ(g, 112.0f);  // 2688 / 24
  // Scales 0.5 * 112 / 6 = 9.33, in e4m3 9, but of block 1 448.
  EXPECT_EQ(e4m3fn_to_float(std::to_integer<std::uint8_t>(wire[4 + 32])), 9.0f);
  EXPECT_EQ(e4m3fn_to_float(std::to_integer<std::uint8_t>(wire[4 + 33])), 448.0f);
  EXPECT_EQ(round_trip("nvfp4", x)[20], 24.0f);
}

TEST(NvFp4, SmallAndHugeMessagesKeepTheirSize) {
  for (const float amplitude : {1e-36f, 1e-30f, 1.0f, 3e38f}) {
    const Floats y = round_trip("nvfp4", Floats(32, amplitude));
    EXPECT_NEAR(y[31] / amplitude, 1.0f, 0.07f) << amplitude;
  }
}

TEST(NvFp4, BelowTheBoundOfTheTensorScaleAMessageIsZero) {
  const Floats y = round_trip("nvfp4", Floats(32, 1e-40f));
  EXPECT_EQ(y, Floats(32, 0.0f));
}

TEST(NvFp4, AGivenTensorScaleIsNotOnTheWire) {
  EXPECT_EQ(find_codec("nvfp4-ts448")->wire_bytes(DType::fp16, 4096), 2048u + 256);
  EXPECT_EQ(find_codec("nvfp4-vllm-ts448")->wire_bytes(DType::fp16, 0), 0u);
  EXPECT_EQ(find_codec("nvfp4-vllm")->wire_bytes(DType::fp16, 4096), 4u + 2048 + 256);
  Floats x(64, 0.5f);
  x[20] = 24;  // whose message has g = 112
  const auto measured = wire_of("nvfp4", x);
  const auto given = wire_of("nvfp4-ts112", x);
  EXPECT_TRUE(std::equal(given.begin(), given.end(), measured.begin() + 4, measured.end()));
  // With another scale a block that is too large saturates, and others are not changed by it.
  x[20] = 3000;
  const Floats y = round_trip("nvfp4-ts112", x);
  EXPECT_EQ(y[20], 24.0f);
  EXPECT_EQ(y[3], round_trip("nvfp4-ts112", Floats(64, 0.5f))[3]);
}

TEST(NvFp4, TensorScalesHaveOneSpellingAndARange) {
  for (const char* name : {"nvfp4-ts1", "nvfp4-ts0.75", "nvfp4-ts827.0769", "nvfp4-vllm-ts1e-05",
                           "nvfp4-ts1e+20", "nvfp4-vllm-ts3.323e+35", "nvfp4-ts3.01e-36"}) {
    EXPECT_EQ(find_codec(name)->name(), name);
  }
  const std::pair<const char*, const char*> refused[] = {
      {"nvfp4-ts", "no tensor scale"},       {"nvfp4-tsx", "no tensor scale"},
      {"nvfp4-ts-1", "no tensor scale"},     {"nvfp4-ts0", "no tensor scale"},
      {"nvfp4-tsnan", "no tensor scale"},    {"nvfp4-tsinf", "no tensor scale"},
      {"nvfp4-ts1e99", "no tensor scale"},   {"nvfp4-ts3.5e+35", "from 2^-118 to 2^118"},
      {"nvfp4-vllm-ts3e-36", "2^-118"},      {"nvfp4-ts1 ", "no tensor scale"},
      {"nvfp4-ts1.0", "the shortest: -ts1"}, {"nvfp4-ts01", "the shortest: -ts1"},
      {"nvfp4-ts1e0", "the shortest: -ts1"}, {"nvfp4-ts0.00001", "the shortest: -ts1e-05"},
      {"nvfp4-ts827.07690", "-ts827.0769"},  {"nvfp4-ts0.750000001", "-ts0.75"},
      {"nvfp4-ts1-vllm", "no tensor scale"}, {"nvfp4-vllm-", "unknown codec"},
      {"nvfp4-vllm-vllm", "unknown codec"},  {"nvfp4ts1", "unknown codec"},
  };
  for (const auto& [name, message] : refused) {
    expect_contains(message_of([name = name] { find_codec(name); }), message);
  }
}

TEST(NvFp4, EveryScaleOfTheRangeKeepsNumbersFinite) {
  for (const char* codec : {"nvfp4-ts3.01e-36", "nvfp4-ts3.323e+35", "nvfp4-vllm-ts3.01e-36",
                            "nvfp4-vllm-ts3.323e+35"}) {
    for (const float amplitude : {0x1p-149f, 1e-30f, 1.0f, 3e38f}) {
      Floats x(32, amplitude);
      x[3] = 0;
      for (const float v : round_trip(codec, x)) EXPECT_TRUE(std::isfinite(v)) << codec;
    }
  }
}

TEST(Microscaling, ZerosStayZeros) {
  for (const char* codec : {"mxfp8-e4m3", "mxfp6-e2m3", "mxfp4", "nvfp4"}) {
    const Floats x(40, -0.0f);
    for (const std::byte b : wire_of(codec, x)) {
      EXPECT_TRUE(b == std::byte{0} || codec == std::string("nvfp4")) << codec;
    }
    for (const float v : round_trip(codec, x)) EXPECT_EQ(v, 0.0f);
  }
}

TEST(Microscaling, NamesThatAreNotThere) {
  for (const char* name :
       {"mxfp4-round", "mxfp8", "mxfp6", "mxfp8-e4m3-", "nvfp4-ceil", "mxfp4-e2m1"}) {
    EXPECT_THROW(find_codec(name), InvalidInput) << name;
  }
}

}  // namespace
}  // namespace arlab::testing

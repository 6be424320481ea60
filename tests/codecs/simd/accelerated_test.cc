// The accelerated codecs have the bits of the scalar ones, on every target.
#include "reference/codecs/simd/accelerated.h"

#include <gtest/gtest.h>

#include "tests/codecs/conformance.h"
#include "tests/codecs/round_trip.h"
#include "tests/codecs/simd/targets.h"

namespace arlab::testing {
namespace {

class EveryTarget : public ::testing::TestWithParam<std::tuple<std::int64_t, CodecAndDType>> {};

TEST_P(EveryTarget, HasTheBitsOfTheScalarCodec) {
  const auto& [target, param] = GetParam();
  const OnTarget on(target);
  const CodecPtr fast = accelerated(param.codec);
  ASSERT_NE(fast, param.codec);
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(nonconforming(*fast, *param.codec, param.dtype), std::nullopt);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryTarget,
    ::testing::Combine(
        ::testing::ValuesIn(supported_targets()),
        ::testing::ValuesIn(with_their_dtypes(
            {"qr-q3",           "qr-q4",           "qr-q6",           "qr-q8",
             "qr-fp4",          "qr-fp8",          "mxfp8-e4m3",      "mxfp8-e5m2",
             "mxfp6-e2m3",      "mxfp6-e3m2",      "mxfp4",           "mxfp8-e4m3-ceil",
             "mxfp8-e5m2-ceil", "mxfp6-e2m3-ceil", "mxfp6-e3m2-ceil", "mxfp4-ceil",
             "mxfp8-e4m3-even", "mxfp8-e5m2-even", "mxfp6-e2m3-even", "mxfp6-e3m2-even",
             "mxfp4-even",      "nvfp4",           "logfmt2-g32",     "logfmt3-g32",
             "logfmt4-g32",     "logfmt5-g32",     "logfmt6-g32",     "logfmt7-g32",
             "logfmt8-g32",     "logfmt4-g64",     "logfmt4-g96",     "logfmt3-g128",
             "logfmt5-g4096",   "logfmt4-g8192",   "logfmt3-g4128"}))),
    [](const auto& info) {
      return hwy::TargetName(std::get<0>(info.param)) + std::string("_") +
             test_name(::testing::TestParamInfo<CodecAndDType>(std::get<1>(info.param), 0));
    });

}  // namespace
}  // namespace arlab::testing

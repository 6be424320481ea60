// What users of QuickReduce were bitten by (reference/codecs/SPEC.md, "What must not happen"), one
// test each, with numbers.
#include <cmath>

#include "tests/codecs/round_trip.h"

namespace arlab::testing {
namespace {

constexpr std::size_t kElements = 64 * 2048;

/// How a payload fares on the wire.
struct Loss {
  double sqnr_db = 0;
  double clamped = 0;    ///< share of the elements
  double flushed = 0;    ///< share of the elements: not zero before, zero after
  double sign_lost = 0;  ///< share of the elements: of the other sign after
};

Loss loss_of(const char* codec_name, DType dtype, const std::string& spec) {
  const CodecPtr codec = find_codec(codec_name);
  const Patterns payload = synthetic(spec, dtype, kElements);
  EncodeCounts counts;
  const Bytes wire = encode(*codec, dtype, payload, &counts);
  const std::vector<float> before = values(dtype, payload);
  const std::vector<float> after = values(dtype, decode(*codec, dtype, wire, kElements));
  double signal = 0;
  double noise = 0;
  std::size_t flushed = 0;
  std::size_t sign_lost = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    const double x = before[i];
    const double error = after[i] - x;
    signal += x * x;
    noise += error * error;
    flushed += x != 0 && after[i] == 0 ? 1 : 0;
    sign_lost += x * after[i] < 0 ? 1 : 0;
  }
  constexpr double kCount = kElements;
  return {.sqnr_db = 10 * std::log10(signal / noise),
          .clamped = static_cast<double>(counts.clamped) / kCount,
          .flushed = static_cast<double>(flushed) / kCount,
          .sign_lost = static_cast<double>(sign_lost) / kCount};
}

Loss uniform_loss(const char* codec, DType dtype, double amplitude) {
  return loss_of(codec, dtype, fmt::format("uniform:low={},high={}", -amplitude, amplitude));
}

// Low amplitude, fp16: 1 / d does not fit into fp16 when |d| is below 2^-16, that is when the
// extreme of a block is below L * 2^-16 (Q8: 0.002). The reciprocal is then 65504 whatever d is,
// and codes shrink with the amplitude.

TEST(LowAmplitudeFp16, Q8FallsOffACliffBelow0_002) {
  EXPECT_GT(uniform_loss("qr-q8", DType::fp16, 1).sqnr_db, 48);
  EXPECT_GT(uniform_loss("qr-q8", DType::fp16, 1e-2).sqnr_db, 48);
  EXPECT_GT(uniform_loss("qr-q8", DType::fp16, 3e-3).sqnr_db, 45);
  EXPECT_LT(uniform_loss("qr-q8", DType::fp16, 1e-3).sqnr_db, 7);
  EXPECT_LT(uniform_loss("qr-q8", DType::fp16, 1e-4).sqnr_db, 0.5) << "almost everything is lost";
}

TEST(LowAmplitudeFp16, FewerBitsFallLater) {
  EXPECT_LT(uniform_loss("qr-fp8", DType::fp16, 1e-3).sqnr_db, 3);
  EXPECT_GT(uniform_loss("qr-q6", DType::fp16, 1e-3).sqnr_db, 36);
  EXPECT_LT(uniform_loss("qr-q6", DType::fp16, 1e-4).sqnr_db, 2);
  EXPECT_GT(uniform_loss("qr-q4", DType::fp16, 2e-4).sqnr_db, 23);
  EXPECT_LT(uniform_loss("qr-q4", DType::fp16, 3e-5).sqnr_db, 3);
  EXPECT_GT(uniform_loss("qr-q3", DType::fp16, 1e-4).sqnr_db, 17);
  EXPECT_GT(uniform_loss("qr-fp4", DType::fp16, 1e-4).sqnr_db, 19);
}

TEST(LowAmplitudeFp16, NothingIsClampedAndLittleIsFlushedAtTheCliff) {
  // Only an error figure shows this loss: codes are small, but neither out of range nor zero.
  const Loss at_cliff = uniform_loss("qr-q8", DType::fp16, 1e-3);
  EXPECT_EQ(at_cliff.clamped, 0);
  EXPECT_LT(at_cliff.flushed, 0.02);
  EXPECT_EQ(at_cliff.sign_lost, 0);
  const Loss below = uniform_loss("qr-q8", DType::fp16, 1e-4);
  EXPECT_EQ(below.clamped, 0);
  EXPECT_GT(below.flushed, 0.05);
  EXPECT_LT(below.flushed, 0.10);
}

TEST(LowAmplitudeFp16, FurtherBelowElementsAreFlushed) {
  for (const char* codec : {"qr-fp8", "qr-q8", "qr-q6", "qr-q4", "qr-q3", "qr-fp4"}) {
    EXPECT_GT(uniform_loss(codec, DType::fp16, 3e-6).flushed, 0.9) << codec;
  }
}

// Low amplitude, bf16: 1 / d fits, but eps is added to a d of either sign.

TEST(LowAmplitudeBf16, AccuracyFadesAsEpsilonOutweighsTheScale) {
  EXPECT_GT(uniform_loss("qr-q8", DType::bf16, 1e-2).sqnr_db, 45);
  EXPECT_LT(uniform_loss("qr-q8", DType::bf16, 1e-3).sqnr_db, 37);
  EXPECT_LT(uniform_loss("qr-q8", DType::bf16, 1e-4).sqnr_db, 19);
  EXPECT_LT(uniform_loss("qr-q8", DType::bf16, 1e-5).sqnr_db, 0) << "more noise than signal";
}

TEST(LowAmplitudeBf16, ClampedElementsAreReported) {
  EXPECT_LT(uniform_loss("qr-q8", DType::bf16, 1e-2).clamped, 0.01);
  EXPECT_GT(uniform_loss("qr-q8", DType::bf16, 1e-4).clamped, 0.05);
  EXPECT_GT(uniform_loss("qr-q8", DType::bf16, 1e-5).clamped, 0.25);
}

TEST(LowAmplitudeBf16, PositiveBlocksChangeTheirSignWhereEpsilonExceedsTheScale) {
  // d = -m / 128 = -7.8e-9, so d + eps = +9.2e-8: codes are positive, and the scale is not.
  const CodecPtr codec = find_codec("qr-q8");
  const Patterns payload(64, pattern(DType::bf16, 1e-6f));
  for (const float v : values(DType::bf16, round_trip(*codec, DType::bf16, payload))) {
    EXPECT_LT(v, 0);
  }
  EXPECT_GT(uniform_loss("qr-q8", DType::bf16, 1e-6).sign_lost, 0.4);
  EXPECT_EQ(uniform_loss("qr-q8", DType::bf16, 1e-3).sign_lost, 0);
}

TEST(LowAmplitudeBf16, WhereTheScaleIsExactlyMinusEpsilonZerosBecomeTheExtreme) {
  // 1 / (d + eps) is infinite, 0 * infinity is NaN, and clamping a NaN gives the lowest code.
  const CodecPtr codec = find_codec("qr-q4");
  const std::uint16_t eight_epsilon = 0x33D7 + 3 * 0x80;
  Patterns payload(64, 0);
  payload[0] = eight_epsilon;
  const Patterns back = round_trip(*codec, DType::bf16, payload);
  for (std::size_t i = 2; i < 64; i += 2) EXPECT_EQ(back[i], eight_epsilon) << i;
  EXPECT_LT(value(DType::bf16, back[0]), 0) << "infinite w, the highest code, a negative scale";
}

TEST(LowAmplitudeBf16, WhereTheScaleOfFp4IsExactlyMinusEpsilonZerosStayZeros) {
  const CodecPtr codec = find_codec("qr-fp4");
  std::size_t found = 0;
  for (std::uint16_t extreme = 0xB000; extreme < 0xB800; ++extreme) {
    Patterns payload(64, 0);
    payload[0] = extreme;
    const Bytes wire = encode(*codec, DType::bf16, payload);
    if (wire[1024] != std::byte{0xD7} || wire[1025] != std::byte{0xB3}) continue;  // not -eps
    ++found;
    const Patterns back = decode(*codec, DType::bf16, wire, 64);
    for (std::size_t i = 2; i < 64; i += 2) EXPECT_EQ(back[i], 0x0000) << i;
  }
  EXPECT_GT(found, 0u);
}

// bf16 values beyond fp16.

TEST(Bf16Above65504, IsNeverCastToFp16) {
  Patterns payload(64, pattern(DType::bf16, 65536.0f));
  payload[0] = payload[1] = pattern(DType::bf16, -1e30f);
  for (const char* name : {"bf16", "qr-fp8", "qr-q8", "qr-q6", "qr-q4", "qr-q3", "qr-fp4"}) {
    const std::vector<float> back =
        values(DType::bf16, round_trip(*find_codec(name), DType::bf16, payload));
    for (const float v : back) EXPECT_TRUE(std::isfinite(v)) << name;
    EXPECT_LT(back[0], -0.98e30f) << name;
    EXPECT_GT(back[0], -1.02e30f) << name;
  }
}

}  // namespace
}  // namespace arlab::testing

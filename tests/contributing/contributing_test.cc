// The codec and the algorithm that CONTRIBUTING.md adds work as the page says.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "example_codec.h"
#include "kernels/codecs/kernels_of_format.h"
#include "kernels/conformance/conform.h"
#include "reference/codecs/properties.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/check.h"
#include "reference/collectives/executor.h"
#include "reference/metrics/error.h"
#include "reference/tensors/synthetic.h"

namespace arlab {

Algorithm reduce_broadcast_algorithm();

namespace {

constexpr Rank kRanks = 5;
constexpr std::size_t kElements = 4096 + 17;

TEST(Contributing, CodecIsFoundListedAndRuns) {
  kernels::register_format<AbsMax8>();
  const std::vector<std::string> listed = listed_codecs();
  EXPECT_NE(std::find(listed.begin(), listed.end(), "absmax8-g64"), listed.end());

  const CodecPtr codec = find_codec("absmax8-g64");
  EXPECT_EQ(codec->wire_bytes(DType::fp16, 128), 128 + 2 * 4);
  const Tensor inputs = make_synthetic("gaussian", DType::fp16, kRanks, kElements);
  const ExactSum exact = exact_sum(DType::fp16, kRanks, inputs.bytes());
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != Collective::all_reduce) continue;
    const Schedule schedule = make_schedule(
        algorithm.name,
        {.world_size = kRanks, .elements = kElements, .alignment = codec->info().alignment});
    Tensor outputs = make_tensor(DType::fp16, inputs.shape);
    execute(schedule, *codec, DType::fp16, inputs.bytes(), outputs.bytes());
    EXPECT_FALSE(first_rank_difference(DType::fp16, kRanks, outputs.bytes())) << algorithm.name;
    EXPECT_GT(compare(exact.values, DType::fp16, outputs.rank_bytes(0)).sqnr_db.value(), 35)
        << algorithm.name;
  }

  // And kernels give the same bits: by itself, and through every algorithm.
  std::vector<std::string> algorithms;
  for (const Algorithm& algorithm : all_algorithms()) algorithms.push_back(algorithm.name);
  std::uint64_t compared = 0;
  const kernels::ConformanceRequest request = {
      .codecs = {"absmax8-g64"}, .algorithms = algorithms, .ranks = {2, 4}, .lengths = {kElements}};
  const kernels::Status status = kernels::run_conformance(
      *kernels::find_platform("host").value(), request, [&](const kernels::ConformanceRow& row) {
        EXPECT_EQ(row.mismatches, 0U) << mismatches_text(row);
        compared += row.compared_elements;
      });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_GT(compared, 3 * all_algorithms().size() * kElements);
}

TEST(Contributing, CodecHasEveryProperty) {
  const CodecPtr codec = scaled_codecs<AbsMax8>().find("absmax8-g64");
  for (const CodecProperty& property : codec_properties()) {
    const PropertyResult result = check_property(property.name, *codec, DType::fp16);
    EXPECT_EQ(result.verdict,
              property.name == "saturation" ? Verdict::not_promised : Verdict::holds)
        << property.name << ": " << result.detail;
  }
}

TEST(Contributing, CodecShowsNonFiniteValues) {
  const CodecPtr codec = scaled_codecs<AbsMax8>().find("absmax8-g64");
  Tensor payload = make_synthetic("gaussian", DType::fp16, 1, 128);
  payload.bits16()[3] = 0x7C00;  // an infinity in the first block of 64
  std::vector<std::byte> wire(codec->wire_bytes(DType::fp16, 128));
  codec->encode(DType::fp16, payload.bytes(), wire);
  codec->decode(DType::fp16, wire, payload.bytes());
  for (std::size_t i = 0; i < 128; ++i)
    EXPECT_EQ(to_float(payload, i) != to_float(payload, i), i < 64);
}

TEST(Contributing, AlgorithmRunsOnGpus) {
  const auto schedule = std::make_shared<const Schedule>(
      reduce_broadcast_algorithm().write({.world_size = 3, .elements = 9001, .alignment = 2048}));
  std::uint64_t compared = 0;
  const kernels::Status status = kernels::run_conformance(
      *kernels::find_platform("host").value(),
      {.codecs = {"qr-q4", "int4-g32", "int8-gtensor"}, .schedule = schedule},
      [&](const kernels::ConformanceRow& row) {
        EXPECT_EQ(row.mismatches, 0U) << mismatches_text(row);
        compared += row.compared_elements;
      });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_GT(compared, 3U * 9001U);
}

TEST(Contributing, AlgorithmIsCorrect) {
  const Algorithm algorithm = reduce_broadcast_algorithm();
  for (Rank world_size = 1; world_size <= 9; ++world_size) {
    const Schedule schedule =
        algorithm.write({.world_size = world_size, .elements = 1000, .alignment = 32});
    const CheckReport report = check(schedule);
    EXPECT_TRUE(report.correct) << report.violation;
    EXPECT_TRUE(report.ranks_identical) << report.divergence;
    EXPECT_EQ(volume_of(schedule, world_size).total, 2 * (world_size - 1.0));
  }
}

}  // namespace
}  // namespace arlab

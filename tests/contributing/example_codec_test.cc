// The codec absmax8-g64: what must hold of every codec, and its kernels against the reference.

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/conformance/conform.h"
#include "reference/codecs/formats/absmax8_g64.h"
#include "reference/codecs/properties.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/executor.h"
#include "reference/metrics/error.h"
#include "reference/tensors/synthetic.h"

namespace arlab {
namespace {

constexpr const char* kName = "absmax8-g64";
constexpr std::size_t kBlockOfCodec = AbsMax8::kBlock;

TEST(AbsMax8, IsListed) {
  const std::vector<std::string> listed = listed_codecs();
  EXPECT_NE(std::find(listed.begin(), listed.end(), kName), listed.end());
}

TEST(AbsMax8, HasEveryProperty) {
  const CodecPtr codec = find_codec(kName);
  for (const CodecProperty& property : codec_properties()) {
    for (const DType dtype : codec->info().dtypes) {
      const PropertyResult result = check_property(property.name, *codec, dtype);
      EXPECT_NE(result.verdict, Verdict::violated) << property.name << ": " << result.detail;
    }
  }
}

// Change the bounds when you change the codec: they say how good it is.
TEST(AbsMax8, LosesLittle) {
  const CodecPtr codec = find_codec(kName);
  const Tensor payload = make_synthetic("gaussian", DType::fp16, 1, 64 * kBlockOfCodec);
  std::vector<std::byte> wire(codec->wire_bytes(DType::fp16, 64 * kBlockOfCodec));
  codec->encode(DType::fp16, payload.bytes(), wire);
  Tensor decoded = make_tensor(DType::fp16, payload.shape);
  codec->decode(DType::fp16, wire, decoded.bytes());
  const ExactSum exact = exact_sum(DType::fp16, 1, payload.bytes());
  EXPECT_GT(compare(exact.values, DType::fp16, decoded.bytes()).sqnr_db.value(), 40);
}

// A sum with a NaN must show it: a block with an infinity has no numbers left.
TEST(AbsMax8, ShowsNonFiniteValues) {
  const CodecPtr codec = find_codec(kName);
  Tensor payload = make_synthetic("gaussian", DType::fp16, 1, 2 * kBlockOfCodec);
  payload.bits16()[3] = 0x7C00;  // an infinity in the first block
  std::vector<std::byte> wire(codec->wire_bytes(DType::fp16, 2 * kBlockOfCodec));
  codec->encode(DType::fp16, payload.bytes(), wire);
  codec->decode(DType::fp16, wire, payload.bytes());
  for (std::size_t i = 0; i < 2 * kBlockOfCodec; ++i) {
    EXPECT_EQ(to_float(payload, i) != to_float(payload, i), i < kBlockOfCodec) << i;
  }
}

// Kernels give the reference's bits, by themselves and through every algorithm, and all ranks of an
// all-reduce end with the same ones.
TEST(AbsMax8, RunsThroughEveryAlgorithm) {
  constexpr std::size_t kElements = 4096 + 17;
  constexpr Rank kRanks = 5;
  const CodecPtr codec = find_codec(kName);
  const Tensor inputs = make_synthetic("gaussian", DType::fp16, kRanks, kElements);
  std::vector<std::string> algorithms;
  for (const Algorithm& algorithm : all_algorithms()) {
    algorithms.push_back(algorithm.name);
    if (algorithm.collective != Collective::all_reduce) continue;
    const Schedule schedule = make_schedule(
        algorithm.name,
        {.world_size = kRanks, .elements = kElements, .alignment = codec->info().alignment});
    Tensor outputs = make_tensor(DType::fp16, inputs.shape);
    execute(schedule, *codec, DType::fp16, inputs.bytes(), outputs.bytes());
    EXPECT_FALSE(first_rank_difference(DType::fp16, kRanks, outputs.bytes())) << algorithm.name;
  }
  std::uint64_t compared = 0;
  const kernels::ConformanceRequest request = {
      .codecs = {kName}, .algorithms = algorithms, .ranks = {2, 4}, .lengths = {kElements}};
  const kernels::Status status = kernels::run_conformance(
      *kernels::find_platform("host").value(), request, [&](const kernels::ConformanceRow& row) {
        EXPECT_EQ(row.mismatches, 0U) << mismatches_text(row);
        compared += row.compared_elements;
      });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_GT(compared, 3 * algorithms.size() * kElements);
}

}  // namespace
}  // namespace arlab

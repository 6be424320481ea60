// How good the results are: a statement about error, within what a sample of this size can tell,
// and not about bits.
#include <gtest/gtest.h>

#include "reference/codecs/registry.h"
#include "reference/collectives/executor.h"
#include "reference/metrics/error.h"
#include "reference/tensors/synthetic.h"
#include "tests/collectives/variants.h"

namespace arlab::testing {
namespace {

constexpr Rank kRanks = 8;
constexpr std::size_t kElements = ARLAB_SHORT_TESTS ? 1 << 18 : 1 << 20;

// Gaussian values, 8 ranks, fp16, two_shot: the error of two quantizations by QuickReduce's codecs.
TEST(Accuracy, OfTwoShotOnGaussianValues) {
  const Tensor inputs = make_synthetic("gaussian", DType::fp16, kRanks, kElements);
  const ExactSum target = exact_sum(DType::fp16, kRanks, inputs.bytes());
  EXPECT_EQ(target.inexact, 0u);
  const Schedule schedule = schedule_of({"two_shot", {}}, kRanks, kElements, 2048);

  for (const auto& [name, sqnr_db] :
       {std::pair{"qr-q4", 18.32}, {"qr-q6", 30.43}, {"qr-q8", 42.45}}) {
    Tensor outputs = make_tensor(DType::fp16, inputs.shape);
    const ExecuteCounts counts = execute(schedule, *find_codec(name), DType::fp16, inputs.bytes(),
                                         outputs.bytes(), {.count = true});
    const ErrorMetrics metrics = compare(target.values, DType::fp16, outputs.rank_bytes(0));
    EXPECT_NEAR(metrics.sqnr_db.value(), sqnr_db, 0.05) << name;
    EXPECT_EQ(metrics.lost, 0u);
    EXPECT_EQ(counts.encoded, (kRanks + 1) * kElements);
    EXPECT_GT(counts.clamped, 0u) << name;
    EXPECT_GT(counts.flushed, 0u) << name;
    EXPECT_FALSE(first_rank_difference(DType::fp16, kRanks, outputs.bytes()).has_value());
  }
}

}  // namespace
}  // namespace arlab::testing

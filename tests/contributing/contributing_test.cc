// The algorithm that CONTRIBUTING.md adds works as the page says.

#include <gtest/gtest.h>

#include <memory>

#include "kernels/conformance/conform.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/check.h"

namespace arlab {

Algorithm reduce_broadcast_algorithm();

namespace {

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

// The checker on absurd schedules: random ones with random fields changed.
//
// Whatever the schedule, check() returns. Where it says `correct`, an execution must give the right
// sum; where it says that a result is wrong, an execution must give a wrong one; where it says
// `ranks_identical`, a codec that marks every encode must leave the same bits on every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/executor.h"
#include "reference/metrics/error.h"
#include "tests/collectives/random_schedules.h"
#include "tests/collectives/toy_codecs.h"
#include "tests/collectives/variants.h"

namespace arlab::testing {
namespace {

constexpr int kSchedules = ARLAB_SHORT_TESTS ? 200 : 4000;
constexpr int kMutationsOfEach = ARLAB_SHORT_TESTS ? 30 : 60;
/// Rank r holds 5^r, times 1 to 7 by element: as long as no rank counts five times, a sum tells
/// exactly which ranks are in it. All sums are integers below 2^24.
std::vector<float> telling_inputs(const Schedule& schedule) {
  std::vector<float> inputs;
  float power = 1;
  for (Rank rank = 0; rank < schedule.world_size; ++rank, power *= 5) {
    for (std::uint64_t i = 0; i < schedule.elements; ++i) {
      inputs.push_back(power * static_cast<float>(1 + i % 7));
    }
  }
  return inputs;
}

std::vector<float> run(const Schedule& schedule, const Codec& codec,
                       const std::vector<float>& inputs) {
  std::vector<float> outputs(inputs.size(), -1);
  execute(schedule, codec, DType::fp32, std::as_bytes(std::span(inputs)),
          std::as_writable_bytes(std::span(outputs)), {.threads = 1});
  return outputs;
}

std::vector<float> right_sums(const Schedule& schedule, const std::vector<float>& inputs) {
  std::vector<float> sums(schedule.elements, 0);
  for (std::size_t i = 0; i < inputs.size(); ++i) sums[i % sums.size()] += inputs[i];
  std::vector<float> on_all_ranks;
  for (Rank rank = 0; rank < schedule.world_size; ++rank) {
    on_all_ranks.insert(on_all_ranks.end(), sums.begin(), sums.end());
  }
  return on_all_ranks;
}

TEST(CheckFuzz, VerdictsAgreeWithExecution) {
  const CodecPtr plain = find_codec("fp32");
  const FadingCodec fading;
  Random random(20240607);
  std::array<int, 2> identical = {};
  int wrong_results = 0;
  int refused = 0;
  for (int i = 0; i < kSchedules; ++i) {
    const Schedule original = random_schedule(random);
    for (int k = 0; k < kMutationsOfEach; ++k) {
      Schedule schedule = original;
      for (std::uint64_t left = 1 + random.below(2); left > 0; --left) mutate(schedule, random);

      const CheckReport report = check(schedule);
      ASSERT_EQ(report.correct, report.violation.empty());
      ASSERT_EQ(report.ranks_identical, report.correct && report.divergence.empty());
      ASSERT_EQ(report.violation.find('\n'), std::string::npos) << report.violation;
      const bool fits_in_memory = schedule.world_size <= kMostRanks && schedule.elements < 1000;
      if (report.correct && fits_in_memory) {
        const std::vector<float> inputs = telling_inputs(schedule);
        ASSERT_EQ(run(schedule, *plain, inputs), right_sums(schedule, inputs));
        const std::vector<float> faded = run(schedule, fading, inputs);
        const bool equal = !first_rank_difference(DType::fp32, schedule.world_size,
                                                  std::as_bytes(std::span(faded)));
        ASSERT_TRUE(equal || !report.ranks_identical) << report.divergence;
        ++identical[report.ranks_identical ? 1 : 0];
      } else if (report.violation.find("the result") != std::string::npos && fits_in_memory) {
        const std::vector<float> inputs = telling_inputs(schedule);
        ASSERT_NE(run(schedule, *plain, inputs), right_sums(schedule, inputs)) << report.violation;
        ++wrong_results;
      } else {
        ++refused;
      }
    }
  }
  // The fuzz reaches every verdict often enough to mean something.
  EXPECT_GT(identical[0], kSchedules / 4);
  EXPECT_GT(identical[1], kSchedules);
  EXPECT_GT(wrong_results, kSchedules / 4);
  EXPECT_GT(refused, kSchedules);
  RecordProperty("correct", identical[0] + identical[1]);
  RecordProperty("wrong_results", wrong_results);
  RecordProperty("refused", refused);
}

// ---------------------------------------------------------------- other collectives

/// All elements of all ranks are different; sums tell which ranks are in them.
std::vector<float> distinct_inputs(const Schedule& schedule) {
  if (adds(schedule.collective)) return telling_inputs(schedule);
  std::vector<float> inputs(schedule.world_size * schedule.elements);
  std::iota(inputs.begin(), inputs.end(), 1.0F);
  return inputs;
}

std::vector<float> right_results(const Schedule& schedule, const std::vector<float>& inputs) {
  const std::size_t n = schedule.world_size;
  const std::size_t slot = schedule.elements / n;
  std::vector<float> outputs = inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::size_t rank = i / schedule.elements;
    const std::size_t element = i % schedule.elements;
    switch (schedule.collective) {
      case Collective::all_to_all:
        outputs[(element / slot * n + rank) * slot + i % slot] = inputs[i];
        break;
      case Collective::all_gather:
        outputs[i] = inputs[element / slot * schedule.elements + element];
        break;
      case Collective::broadcast:
        outputs[i] = inputs[element];
        break;
      case Collective::reduce_scatter:
        if (element / slot != rank) break;
        outputs[i] = 0;
        for (std::size_t r = 0; r < n; ++r) outputs[i] += inputs[r * schedule.elements + element];
        break;
      case Collective::all_reduce:
      case Collective::dispatch_combine:
        break;
    }
  }
  return outputs;
}

TEST(CheckFuzz, VerdictsOnOtherCollectivesAgreeWithExecution) {
  const CodecPtr plain = find_codec("fp32");
  const FadingCodec fading;
  Random random(20240608);
  int correct = 0;
  int wrong_results = 0;
  int refused = 0;
  for (int i = 0; i < kSchedules / 2; ++i) {
    const auto n = static_cast<Rank>(1 + random.below(kMostRanks));
    std::vector<Variant> variants = moving_variants(n);
    std::vector<std::uint64_t> alignments = {1, 2, 3, 32};
    const std::uint64_t alignment = random.pick(alignments);
    const Schedule original =
        schedule_of(random.pick(variants), n, n * (1 + random.below(2 * alignment)), alignment);
    for (int k = 0; k < kMutationsOfEach; ++k) {
      Schedule schedule = original;
      if (schedule.ops.empty()) break;  // one rank that keeps its slot: no field to change
      for (std::uint64_t left = 1 + random.below(2); left > 0; --left) mutate(schedule, random);

      const CheckReport report = check(schedule);
      ASSERT_EQ(report.correct, report.violation.empty());
      ASSERT_TRUE(!report.ranks_identical || ends_alike(schedule.collective));
      const bool fits_in_memory = schedule.world_size <= kMostRanks && schedule.elements < 1000;
      if (report.correct && fits_in_memory) {
        const std::vector<float> inputs = distinct_inputs(schedule);
        const std::vector<float> expected = right_results(schedule, inputs);
        ASSERT_EQ(run(schedule, *plain, inputs), expected);
        ++correct;
        const std::vector<float> faded = run(schedule, fading, inputs);
        const bool equal = !first_rank_difference(DType::fp32, schedule.world_size,
                                                  std::as_bytes(std::span(faded)));
        ASSERT_TRUE(equal || !report.ranks_identical) << report.divergence;
        if (schedule.collective != Collective::dispatch_combine) continue;
        // Every slot for another rank was encoded at least twice: 3/4 of 3/4 is left, or less.
        for (std::size_t e = 0; e < faded.size(); ++e) {
          const std::size_t rank = e / schedule.elements;
          if (e % schedule.elements / schedule.slot_elements() == rank) continue;
          ASSERT_LE(faded[e], expected[e] * 0.5625F);
        }
      } else if (report.violation.find("the result ") != std::string::npos &&
                 report.violation.find("was not encoded again") == std::string::npos &&
                 fits_in_memory) {
        // A part that a reduce-scatter should have left alone shows where encoding does.
        const bool touched = report.violation.find("own input") != std::string::npos;
        const std::vector<float> inputs = distinct_inputs(schedule);
        ASSERT_NE(run(schedule, touched ? static_cast<const Codec&>(fading) : *plain, inputs),
                  right_results(schedule, inputs))
            << report.violation;
        ++wrong_results;
      } else {
        ++refused;
      }
    }
  }
  EXPECT_GT(correct, kSchedules / 4);
  EXPECT_GT(wrong_results, kSchedules / 8);
  EXPECT_GT(refused, kSchedules);
  RecordProperty("correct", correct);
  RecordProperty("wrong_results", wrong_results);
  RecordProperty("refused", refused);
}

// `ranks_identical` is a proof and may be withheld too often; for the algorithms as written it is
// not: where it is withheld, there are a codec and inputs on which ranks differ.
TEST(CheckFuzz, RanksDifferWhereIdentityIsNotProven) {
  const FadingCodec fading;
  for (Rank n = 1; n <= kMostRanks; ++n) {
    for (const Variant& variant : all_variants(n)) {
      const Schedule schedule = schedule_of(variant, n, 4 * n + 1, 1);
      const std::vector<float> outputs = run(schedule, fading, telling_inputs(schedule));
      const bool differ =
          first_rank_difference(DType::fp32, n, std::as_bytes(std::span(outputs))).has_value();
      EXPECT_EQ(differ, !check(schedule).ranks_identical)
          << label(variant) << ", " << n << " ranks";
    }
  }
}

}  // namespace
}  // namespace arlab::testing

// Requests that arrive at a busy model: a trace by hand, and what queueing theory says.

#include "sim/workload/serving.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "reference/codecs/registry.h"
#include "sim/workload/model_time.h"
#include "tests/refusal.h"

namespace arlab {
namespace {

using Lengths = std::vector<std::uint64_t>;

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(Serving, ThreeRequestsByHand) {
  // A prefill takes 1 us per token, a further token 10 us per sequence; two sequences at once.
  const std::vector<ServedRequest> requests = {{0, 50, 3}, {10, 60, 2}, {20, 30, 2}};
  std::vector<std::pair<Phase, Lengths>> steps;
  const ServingTimes times =
      serve(requests, {.sequences = 2, .tokens = 100}, [&](Phase phase, const Lengths& lengths) {
        steps.emplace_back(phase, lengths);
        const double tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
        return phase == Phase::prefill ? tokens : 10.0 * static_cast<double>(lengths.size());
      });
  // The first until 50; the second, while the third waits for room, until 110; a token for both until
  // 130, which ends the second; the third until 160; a token for both until 180.
  EXPECT_EQ(steps, (std::vector<std::pair<Phase, Lengths>>{{Phase::prefill, {50}},
                                                           {Phase::prefill, {60}},
                                                           {Phase::decode, {50, 60}},
                                                           {Phase::prefill, {30}},
                                                           {Phase::decode, {51, 30}}}));
  EXPECT_EQ(times.first_token, (std::vector<double>{50, 100, 140}));
  EXPECT_EQ(times.between_tokens, (std::vector<double>{80, 20, 50, 20}));
  EXPECT_EQ(times.per_token, (std::vector<double>{20, 65, 20}));
  EXPECT_EQ(times.end, 180);
  EXPECT_EQ(times.mean_batch, 2);
  EXPECT_EQ(times.most_waiting, 1U);
}

TEST(Serving, WhoComesAtTheVeryEndOfAStepIsInTheNext) {
  std::vector<Phase> steps;
  const auto serve_two = [&](double second_us) {
    steps.clear();
    serve(std::vector<ServedRequest>{{0, 50, 3}, {second_us, 10, 1}},
          {.sequences = 2, .tokens = 100}, [&](Phase phase, const Lengths&) {
            steps.push_back(phase);
            return 50.0;
          });
    return steps;
  };
  constexpr Phase kPrefill = Phase::prefill;
  constexpr Phase kDecode = Phase::decode;
  EXPECT_EQ(serve_two(50), (std::vector{kPrefill, kPrefill, kDecode, kDecode}));
  EXPECT_EQ(serve_two(50.001), (std::vector{kPrefill, kDecode, kPrefill, kDecode}));
}

TEST(Serving, PromptsShareAPrefillAsFarAsTheyFit) {
  const std::vector<ServedRequest> requests = {{0, 40, 1}, {0, 60, 1}, {0, 1, 1}};
  std::vector<std::size_t> together;
  serve(requests, {.sequences = 8, .tokens = 100}, [&](Phase, const Lengths& lengths) {
    together.push_back(lengths.size());
    return 1.0;
  });
  EXPECT_EQ(together, (std::vector<std::size_t>{2, 1}));
}

TEST(Serving, OneAtATimeWaitsAsPollaczekAndKhinchineSay) {
  // Random arrivals, equal times of service, one server: rho / (2 (1 - rho)) of these in the queue.
  constexpr double kServiceUs = 1000;
  for (const double load : {0.3, 0.7, 0.9}) {
    const auto requests = poisson_arrivals({}, load * 1e6 / kServiceUs, 1'000'000, 7);
    const ServingTimes times = serve(requests, {.sequences = 1, .tokens = 1},
                                     [](Phase, const Lengths&) { return kServiceUs; });
    const double expected = kServiceUs * (1 + load / (2 * (1 - load)));
    // The standard error of the mean, waits of neighbours being alike, is below 1 % at 0.9.
    EXPECT_NEAR(mean(times.first_token), expected, 0.02 * expected) << load;
  }
}

TEST(Serving, CapacityIsWhatAFullBatchServes) {
  // A prefill of one prompt takes 30 us, a further token of four sequences 5: 2 steps per request.
  const StepTime step = [](Phase phase, const Lengths& lengths) {
    return phase == Phase::prefill ? 30.0 * static_cast<double>(lengths.size()) : 5.0;
  };
  EXPECT_NEAR(capacity_per_s({.output_tokens = 9}, {.sequences = 4}, step), 1e6 / 40, 500);
  EXPECT_NEAR(capacity_per_s({}, {.sequences = 1}, step), 1e6 / 30, 1e-6);
  // With more the queue grows, and with less it does not.
  for (const double share : {0.9, 1.2}) {
    const auto requests = poisson_arrivals({.output_tokens = 9}, share * 25'000, 20'000, 1);
    const ServingTimes times = serve(requests, {.sequences = 4}, step);
    EXPECT_EQ(times.most_waiting > 2000, share > 1);
  }
}

TEST(Arrivals, FollowFromTheSeedAndHaveTheRate) {
  const auto some = poisson_arrivals({}, 100, 100'000, 3);
  EXPECT_NEAR(some.back().arrival_us / 1e6, 1000, 10);
  EXPECT_EQ(some[99].arrival_us, poisson_arrivals({}, 100, 100, 3).back().arrival_us);
  EXPECT_NE(some[99].arrival_us, poisson_arrivals({}, 100, 100, 4).back().arrival_us);
  EXPECT_TRUE(std::ranges::is_sorted(some, {}, &ServedRequest::arrival_us));
}

TEST(Arrivals, OfAFileAreInTheirOrder) {
  const auto path = std::filesystem::path(testing::TempDir()) / "arrivals.csv";
  const auto read = [&path](const std::string& text) {
    std::ofstream(path) << text;
    return read_arrivals(path);
  };
  const auto requests =
      read("# a trace\noutput_tokens,arrival_s,prompt_tokens\n3,1.5,20\n4,0.25,10\n");
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].arrival_us, 250'000);
  EXPECT_EQ(requests[0].prompt_tokens, 10U);
  EXPECT_EQ(requests[1].output_tokens, 3U);
  const auto refused = [&](const std::string& text, const std::string& part) {
    expect_contains(message_of([&] { read(text); }), part);
  };
  refused("arrival_s,prompt_tokens\n1,2\n", "it has no column 'output_tokens'");
  const std::string head = "arrival_s,prompt_tokens,output_tokens\n";
  refused(head + "1,2,3\n-1,2,3\n", "line 3: arrival_s is '-1'; allowed is a number from 0");
  refused(head + "1,2.5,3\n", "prompt_tokens is '2.5'; allowed is a whole number from 1");
  refused(head + "1,2,0\n", "output_tokens is '0'");
  refused(head + "nan,2,1\n", "arrival_s is 'nan'");
  refused(head, "arrivals.csv");
}

TEST(Serving, RefusesWhatCannotBeServed) {
  const auto serve_one = [](const ServedRequest& request) {
    serve(std::vector{request}, {.tokens = 100}, [](Phase, const Lengths&) { return 1.0; });
  };
  expect_contains(message_of([&] { serve_one({0, 101, 1}); }),
                  "a prompt of 101 tokens is longer than a prefill may be; allowed are 100");
  expect_contains(message_of([&] { serve_one({0, 1, 2'000'001}); }), "allowed are 2000000 in all");
}

TEST(Lengths, ThatAreAlikeAreOne) {
  const ModelShape model = find_model("gpt-oss-20b");
  const Topology t = find_topology("h200-8");
  const Communication plain{.codec = find_codec("bf16")};
  for (const Phase phase : kPhases) {
    InferenceStep step{.phase = phase, .batch = 4, .tokens = 300, .ranks = 8};
    for (const Overlap overlap : kOverlaps) {
      const double alike = model_time(model, step, plain, t, overlap).total_us;
      step.lengths = {300, 300, 300, 300};
      EXPECT_EQ(model_time(model, step, plain, t, overlap).total_us, alike);
      step.lengths.clear();
    }
    // As many tokens in all, and half of them in one prompt: more pairs.
    const double even = operations_of_layer(model, model.kinds().back(), step)[3].flop;
    step.lengths = {600, 200, 200, 200};
    const double uneven = operations_of_layer(model, model.kinds().back(), step)[3].flop;
    EXPECT_EQ(uneven > even, phase == Phase::prefill);
  }
}

}  // namespace
}  // namespace arlab

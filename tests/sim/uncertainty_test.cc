// Elasticities and intervals with numbers that can be checked on paper.

#include "sim/uncertainty.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "reference/device_facts/kernel_rules.h"
#include "sim/topology/quantities.h"
#include "tests/refusal.h"
#include "tests/sim/machine.h"

namespace arlab {
namespace {

Topology with_uncertainty(double correlation) {
  Topology t = machine(TopologyKind::full_mesh, 2);
  t.uncertainty = Uncertainty{.scatter_percent = 3,
                              .note = "n",
                              .constants = {"overhead.launch_us", "link.bandwidth_gb_per_s"},
                              .sigma_percent = {10, 5},
                              .correlation = {{}, {correlation}}};
  return t;
}

/// launch^2 / bandwidth.
double powers(const Topology& t) {
  const double launch_us = t.device.launch_us.value;
  return launch_us * launch_us / t.link_type("link").bandwidth_gb_per_s.value;
}

TEST(Uncertainty, ElasticitiesAreExponents) {
  const Topology t = machine(TopologyKind::full_mesh, 2);
  std::map<std::string, double> by_key;
  for (const Elasticity& each : elasticities_of(t, powers)) {
    by_key[each.key] = each.percent_per_percent;
  }
  EXPECT_NEAR(by_key.at("overhead.launch_us"), 2, 1e-12);
  EXPECT_NEAR(by_key.at("link.bandwidth_gb_per_s"), -1, 1e-12);
  EXPECT_EQ(by_key.at("overhead.step_us"), 0);
  // A value at a bound moves to the other side only; 0, or a value that is not in the file, not at all.
  Topology bound = t;
  bound.device.latency_overlap.value = 1;
  bound.device.all_to_all_efficiency.value = 1;
  bound.device.message_us.value = 0;
  const auto shares = [](const Topology& at) {
    return at.device.latency_overlap.value * std::sqrt(at.device.all_to_all_efficiency.value);
  };
  by_key.clear();
  for (const Elasticity& each : elasticities_of(bound, shares)) {
    by_key[each.key] = each.percent_per_percent;
  }
  EXPECT_NEAR(by_key.at("device.latency_overlap"), 1, 1e-12);
  EXPECT_NEAR(by_key.at("device.all_to_all_efficiency"), 0.5, 1e-12);
  EXPECT_FALSE(by_key.contains("overhead.message_us"));
  const std::vector<std::string> one = {"overhead.launch_us"};
  EXPECT_EQ(elasticities_of(t, powers, one).size(), 1u);
}

/// Twice 10 % and once 5 % with the other sign, and 3 %: 20^2 + 5^2 -+ 2 r 20 5 + 3^2.
TEST(Uncertainty, IntervalsAreThoseOfANormalDistribution) {
  for (const double correlation : {-1.0, 0.0, 0.5, 1.0}) {
    const Topology t = with_uncertainty(correlation);
    const double sigma = std::sqrt(400 + 25 - 2 * correlation * 100 + 9);
    EXPECT_NEAR(sigma_percent_of(t, powers), sigma, 1e-9) << correlation;
  }
  const LatencyInterval interval = interval_of(7, 20);
  EXPECT_NEAR(interval.high_us, 7 * std::exp(kIntervalSigmas * 0.2), 1e-9);
  EXPECT_NEAR(interval.low_us * interval.high_us, 49, 1e-9);
}

std::string reasons(const Topology& t, const CollectiveRun& run) {
  std::string all;
  for (const Extrapolation& each : extrapolations_of(t, run)) {
    all += each.in ? fmt::format("{} x {:g}: {}. ", name_of(*each.in), each.times, each.reason)
                   : each.reason + ". ";
  }
  return all;
}

TEST(Uncertainty, WhatNoFitHasSeenIsSaid) {
  Topology t = with_uncertainty(0);
  const CollectiveRun seen{.ranks = 4, .bytes = 1 << 20, .algorithm = "ring", .codecs = {"qr-q4"}};
  const std::string unknown =
      "not fitted to this machine: no time of arlab's kernels on it was looked at. ";
  EXPECT_EQ(reasons(t, seen),
            "unmeasured x 1: " + unknown);  // the file does not say what it was fitted to
  EXPECT_EQ(reasons(machine(TopologyKind::full_mesh, 2), seen), "unmeasured x 1: " + unknown);
  t.uncertainty->machines = {t.name};
  t.uncertainty->kernels = FittedTo{.device = t.device.name,
                                    .ranks = {2, 8},
                                    .least_bytes = 1 << 14,
                                    .most_bytes = 1 << 28,
                                    .algorithms = {"ring", "two_shot"},
                                    .codecs = {"bf16", "qr-q4"}};
  EXPECT_EQ(reasons(t, seen), "");
  const auto with = [&](auto change) {
    CollectiveRun run = seen;
    change(run);
    return reasons(t, run);
  };
  EXPECT_EQ(with([](CollectiveRun& r) { r.ranks = 64; }),
            "ranks x 3: extrapolated from 8 to 64 ranks. ");
  EXPECT_EQ(with([](CollectiveRun& r) { r.ranks = 1; }),
            "ranks x 1: extrapolated from 2 to 1 ranks. ");
  EXPECT_EQ(with([](CollectiveRun& r) { r.algorithm = "nvls"; }),
            "algorithm x 1: no kernel of algorithm nvls was measured. ");
  EXPECT_EQ(with([](CollectiveRun& r) { r.codecs = {"fp16", "qr-q6"}; }),
            "codec x 0.4: codec qr-q6 was not measured. ");
  EXPECT_EQ(with([](CollectiveRun& r) { r.bytes = std::uint64_t{1} << 30; }),
            "larger x 2: beyond 256 MiB, the most that was measured. ");
  EXPECT_EQ(with([](CollectiveRun& r) { r.bytes = 1 << 13; }),
            "smaller x 1: below 16 KiB, the least that was measured. ");
  EXPECT_EQ(
      with([](CollectiveRun& r) { r.library = true; }),
      "unmeasured x 1: not fitted to this machine: no time of the library on it was looked at. ");
  t.uncertainty->kernels->commit = kKernelsSince;
  EXPECT_EQ(with([](CollectiveRun&) {}), "");
  t.uncertainty->kernels->commit = "0123456";
  EXPECT_EQ(with([](CollectiveRun&) {}),
            "algorithm x 1: the kernels of 0123456, which were measured, are no longer those that "
            "there are. ");
  t.uncertainty->kernels->commit.clear();
  t.uncertainty->machines = {"one", "two"};
  EXPECT_EQ(with([](CollectiveRun&) {}), "not fitted to this machine, but to one, two. ");
  t.uncertainty->machines = {t.name};
  std::swap(t.uncertainty->kernels, t.uncertainty->library);
  t.uncertainty->library->codecs.clear();  // a library has none
  t.uncertainty->library->commit.clear();
  t.device.name = "another";
  EXPECT_EQ(with([](CollectiveRun& r) { r.library = true, r.algorithm = "tree"; }),
            "generation x 1: its numbers are test device's, not another's. algorithm x 1: no "
            "run of the "
            "library by algorithm tree was measured. ");
  t.uncertainty->library->dtypes = {DType::fp16, DType::fp32};
  const auto known = parse_topology(to_toml(t), "m.toml").uncertainty;
  EXPECT_EQ(known, t.uncertainty);
}

/// Values of 16 bits travel alike; what a codec takes for them, and what the file guesses, is another matter.
TEST(Uncertainty, DtypesThatNobodyMeasuredAreSaid) {
  Topology t = with_uncertainty(0);
  t.uncertainty->machines = {t.name};
  t.uncertainty->kernels = FittedTo{.device = t.device.name,
                                    .ranks = {4},
                                    .least_bytes = 1,
                                    .most_bytes = 1 << 28,
                                    .algorithms = {"ring"},
                                    .codecs = {"fp16", "qr-q4"},
                                    .dtypes = {DType::fp16}};
  t.uncertainty->library = t.uncertainty->kernels;
  const auto said = [&](const char* codec, DType dtype, bool library = false) {
    const CollectiveRun run{.library = library,
                            .ranks = 4,
                            .bytes = 1 << 20,
                            .algorithm = "ring",
                            .codecs = {codec},
                            .dtype = dtype};
    return reasons(t, run);
  };
  EXPECT_EQ(said("qr-q4", DType::fp16), "");
  EXPECT_EQ(said("qr-q4", DType::bf16), "dtype x 1: dtype bf16 was not measured. ");
  EXPECT_EQ(said("bf16", DType::bf16), "");
  EXPECT_EQ(said("bf16", DType::bf16, true), "");
  EXPECT_EQ(said("fp32", DType::fp32, true), "dtype fp32 was not measured. ");
  t.device.bf16_cost = Quantity{2, Source::measured, "n"};
  EXPECT_EQ(said("qr-q4", DType::bf16), "");
  t.device.bf16_cost = assumed(2);
  const char* guessed =
      "dtype x 4: dtype bf16 was not measured: what it costs is a guess (device.bf16_cost). ";
  EXPECT_EQ(said("qr-q4", DType::bf16), guessed);
  EXPECT_EQ(said("bf16", DType::bf16, true), "");  // a library's time is that of the bytes
  EXPECT_EQ(said("qr-q4", DType::fp16), "");
  t.device.bf16_tile_cost = Quantity{9, Source::fitted, "n"};
  EXPECT_EQ(said("qr-q4", DType::bf16), "");
  t.device.bf16_tile_cost = assumed(9);
  EXPECT_EQ(said("qr-q4", DType::bf16), guessed);
  t.uncertainty->kernels->dtypes.push_back(DType::bf16);
  EXPECT_EQ(said("qr-q4", DType::bf16), "");
}

TEST(Uncertainty, IntervalsWidenBySquares) {
  const std::vector<Extrapolation> beyond = {{Beyond::ranks, 3, ""}, {Beyond::codec, 1, ""}};
  const Widening widening = {2, 100, 2.5, 100, 100, 100, 100, 100, 100, 100, 100, 100};
  EXPECT_NEAR(widened(6, beyond, widening), std::sqrt(36 + 36 + 6.25), 1e-12);
  EXPECT_EQ(widened(6, {}, widening), 6);
  EXPECT_GT(widened(6, beyond), 6);
}

TEST(Uncertainty, ChipsOfAGenerationAreKin) {
  Topology t = with_uncertainty(0);
  t.uncertainty->machines = {t.name};
  t.uncertainty->kernels = FittedTo{.device = "NVIDIA B200",
                                    .ranks = {4},
                                    .least_bytes = 1,
                                    .most_bytes = 1 << 28,
                                    .algorithms = {"ring"},
                                    .codecs = {"fp16"}};
  const CollectiveRun run{.ranks = 4, .bytes = 1 << 20, .algorithm = "ring", .codecs = {"fp16"}};
  const auto of = [&](const char* device) {
    t.device.name = device;
    return reasons(t, run).substr(0, 3);
  };
  for (const char* kin : {"NVIDIA GB200", "NVIDIA B300", "NVIDIA GB300 of a user"}) {
    EXPECT_EQ(of(kin), "kin") << kin;
  }
  for (const char* stranger :
       {"NVIDIA H200 SXM", "NVIDIA RTX PRO 6000", "NVIDIA GeForce RTX 5090", "x"}) {
    EXPECT_EQ(of(stranger), "gen") << stranger;
  }
}

/// Also where no fit says anything; what a file declares counts as much as the latency depends on it.
TEST(Uncertainty, EveryLatencyHasAnInterval) {
  Topology t = machine(TopologyKind::full_mesh, 2);
  const CollectiveRun run{.ranks = 2, .bytes = 1 << 20, .algorithm = "ring", .codecs = {"fp16"}};
  const auto beyond = extrapolations_of(t, run);
  const double unmeasured = kWidening[static_cast<std::size_t>(Beyond::unmeasured)];
  EXPECT_NEAR(sigma_percent_of(t, run, beyond, powers), unmeasured, 1e-9);
  t.device.launch_us.low = t.device.launch_us.value / 2;
  t.device.launch_us.high = t.device.launch_us.value * 2;
  const double declared = 2 * 100 * std::log(4) / (2 * kIntervalSigmas);  // launch^2
  EXPECT_NEAR(sigma_percent_of(t, run, {}, powers), declared, 1e-6);
  EXPECT_NEAR(sigma_percent_of(t, run, beyond, powers), std::hypot(unmeasured, declared), 1e-6);
  EXPECT_GT(sigma_percent_of(t, run, {}), 0);
  const Topology known = with_uncertainty(0);
  EXPECT_NEAR(sigma_percent_of(known, run, {}), std::hypot(3, kConstantsPercent), 1e-9);
  EXPECT_NEAR(sigma_percent_of(known, run, {}, powers), sigma_percent_of(known, powers), 1e-9);
  const LatencyInterval interval = interval_of(known, run, 10, {}, powers);
  EXPECT_LT(interval.low_us, 10);
  EXPECT_GT(interval.high_us, 10);
  // A machine that is guessed has the guess's.
  t.guessed_below_bytes = 2 << 20;
  EXPECT_EQ(interval_of(t, run, 10, beyond).high_us, 10 * kGuessHigh);
}

TEST(Uncertainty, AnotherLaboratoryAndHostWidenWithoutWords) {
  Topology t = with_uncertainty(0);
  t.uncertainty->machines = {"h100-8"};
  const CollectiveRun run{.ranks = 2, .bytes = 1 << 20, .algorithm = "ring", .codecs = {"fp16"}};
  const auto terms = [&](const Topology& on, const CollectiveRun& of) {
    std::map<std::string, double> times;
    for (const Extrapolation& each : extrapolations_elsewhere(on, of)) {
      if (each.in && each.reason.empty()) times[std::string(name_of(*each.in))] = each.times;
    }
    return times;
  };
  using Terms = std::map<std::string, double>;
  EXPECT_EQ(terms(t, run), (Terms{{"laboratory", 1}}));
  EXPECT_EQ(reasons_of(extrapolations_elsewhere(t, run)), reasons_of(extrapolations_of(t, run)));
  t.uncertainty->machines = {t.name};  // the user's own times
  EXPECT_EQ(terms(t, run), Terms());
  const Topology pcie = find_topology("rtx-5090-no-p2p-4");
  CollectiveRun few{
      .library = true, .ranks = 4, .bytes = 1 << 16, .algorithm = "ring", .codecs = {"fp16"}};
  EXPECT_EQ(terms(pcie, few), (Terms{{"laboratory", 1}, {"host", 1}}));
  Topology undeclared = pcie;
  undeclared.device.library->host_floor_us = unless_given(0);
  EXPECT_EQ(terms(undeclared, few), (Terms{{"laboratory", 1}, {"host", 3}}));
  few.bytes = 1 << 24;
  EXPECT_EQ(terms(undeclared, few), (Terms{{"laboratory", 1}, {"host", 1}}));
}

/// A machine of several servers that does not name its fabric says that RoCE is assumed.
TEST(Uncertainty, AssumedNetworksAreSaid) {
  Topology t = find_topology("p5-2x8");
  CollectiveRun run{.library = true,
                    .ranks = 16,
                    .bytes = 1 << 20,
                    .algorithm = "nvls",
                    .codecs = {"fp32"},
                    .dtype = DType::fp32};
  EXPECT_TRUE(assumed_of(t, run).empty());
  t.device.library->network.fabric = NetFabric::infiniband;
  expect_contains(assumed_of(t, run).at(0), "no times of infiniband were found");
  t.device.library->network.fabric.reset();
  expect_contains(assumed_of(t, run).at(0), "the network between servers is RoCE");
  expect_contains(assumed_of(find_topology("rtx-pro-6000-4"), run).at(0), "at least 22 us");
  EXPECT_TRUE(assumed_of(find_topology("rtx-pro-6000-8"), run).empty());
  CollectiveRun of_kernels = run;
  of_kernels.library = false;
  expect_contains(assumed_of(find_topology("fat_tree:16"), of_kernels).at(0),
                  "do not exist on devices");
  run.ranks = 8;
  EXPECT_TRUE(assumed_of(t, run).empty());
  // All-reduces alone were timed across servers, also of pairs with a fit.
  run.ranks = 16;
  run.algorithm = "all_to_all";
  expect_contains(reasons(t, run), "algorithm x 3: no run of the library by algorithm all_to_all");
  run.algorithm = "ring";
  expect_contains(reasons(t, run), "algorithm x 1: no run of the library by algorithm ring");
  // Servers of one's own are extrapolated from those of the fit.
  Topology mine = find_topology("p5-2x8");
  mine.uncertainty.reset();
  run.ranks = 64;
  run.algorithm = "all_gather";
  std::string said = reasons(mine, run);
  expect_contains(said, "unmeasured x 0.3: not fitted to these servers");
  expect_contains(said, "ranks x 2: extrapolated from 16 to 64 ranks");
  expect_contains(said, "algorithm x 3: no all_gather of the library across servers");
}

TEST(Uncertainty, WhatDoesNotFitTogetherIsRefused) {
  const auto message = [](auto change) {
    Topology t = with_uncertainty(0);
    change(*t.uncertainty);
    return message_of([&] { require_valid(t, "m.toml"); });
  };
  EXPECT_NO_THROW(require_valid(with_uncertainty(0), "m.toml"));
  const char* shape = "m.toml: section 'uncertainty' does not fit together";
  expect_contains(message([](Uncertainty& u) { u.sigma_percent.pop_back(); }), shape);
  expect_contains(message([](Uncertainty& u) { u.correlation[1].clear(); }), shape);
  expect_contains(message([](Uncertainty& u) { u.correlation[1][0] = 1.5; }), shape);
  expect_contains(message([](Uncertainty& u) { u.scatter_percent = std::nan(""); }), shape);
  Topology t = with_uncertainty(0);
  t.uncertainty->kernels = FittedTo{
      .device = "d", .ranks = {4, 2}, .least_bytes = 1, .most_bytes = 2, .algorithms = {"ring"}};
  expect_contains(
      message_of([&] { parse_topology(to_toml(t), "m.toml"); }),
      "m.toml: key 'uncertainty.kernels.ranks': it must be numbers of ranks, in ascending order");
  t.uncertainty->kernels->ranks = {2};
  t.uncertainty->kernels->least_bytes = 3;
  expect_contains(message_of([&] { parse_topology(to_toml(t), "m.toml"); }),
                  "m.toml: key 'uncertainty.kernels.bytes': it must be two numbers");
  t.uncertainty->kernels.reset();
  t.uncertainty->constants[0] = "overhead.lunch_us";
  expect_contains(message_of([&] { parse_topology(to_toml(t), "m.toml"); }),
                  "m.toml: key 'uncertainty.constants': there is no quantity 'overhead.lunch_us'");
}

}  // namespace
}  // namespace arlab

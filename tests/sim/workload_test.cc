// Collectives of groups, several at once, and what changes while they run: cases by hand, and what
// must hold on random machines.

#include "sim/workload/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "reference/codecs/registry.h"
#include "tests/refusal.h"
#include "tests/sim/machine.h"
#include "tests/sim/network/dice.h"

namespace arlab {
namespace {

constexpr std::uint64_t kKiB = 1 << 10;

GroupCollective collective(std::vector<Rank> ranks, const std::string& algorithm = "two_shot",
                           std::uint64_t bytes = 256 * kKiB, const std::string& codec = "fp16") {
  return {.name = algorithm,
          .ranks = std::move(ranks),
          .algorithm = algorithm,
          .codec = codec,
          .bytes = bytes};
}

std::vector<GroupTime> times(const std::vector<GroupCollective>& collectives, const Topology& t,
                             const SimulateOptions& options = {}) {
  return simulate_workload(Workload{"test", "test", collectives}, t, options);
}

SimulationResult alone(const GroupCollective& c, const Topology& t,
                       const SimulateOptions& options = {}) {
  return times({c}, t, options).front().result;
}

std::vector<Rank> all_ranks(const Topology& t) {
  std::vector<Rank> ranks(t.ranks.value);
  std::iota(ranks.begin(), ranks.end(), Rank{0});
  return ranks;
}

const char* const kAlgorithms[] = {"one_shot", "two_shot", "ring", "all_to_all", "all_gather"};

/// Returns a machine with a multiple of 4 ranks, of any kind.
Topology random_machine(Dice& dice) {
  const Rank ranks = 4 * (1 + dice.below(3));
  Topology t;
  switch (dice.below(6)) {
    case 0:
      t = machine(TopologyKind::full_mesh, ranks);
      break;
    case 1:
      t = machine(TopologyKind::switched, ranks);
      break;
    case 2:
      t = machine(TopologyKind::numa, ranks, ranks / 2);
      break;
    case 3:
      t = machine(TopologyKind::fat_tree, ranks, 4);
      break;
    case 4:
      t = torus_machine({ranks / 4, 4});
      break;
    default:
      t = machine(TopologyKind::ring, ranks);
  }
  for (LinkType& type : t.link_types) type.bandwidth_gb_per_s = assumed(dice.between(5, 100));
  t.device.codec_gops_per_s = assumed(dice.between(100, 1000));
  return t;
}

GroupCollective random_collective(Dice& dice, std::vector<Rank> ranks) {
  const Rank slots = static_cast<Rank>(ranks.size());
  return collective(std::move(ranks), kAlgorithms[dice.below(5)],
                    std::uint64_t{64} * slots * (1 + dice.below(2000)),
                    dice.one_in(2) ? "fp16" : "int8-g32");
}

/// Ranks in another order, cut into two.
std::pair<std::vector<Rank>, std::vector<Rank>> two_groups(Dice& dice, const Topology& t) {
  std::vector<Rank> ranks = all_ranks(t);
  for (std::size_t i = ranks.size(); i > 1; --i) {
    std::swap(ranks[i - 1], ranks[dice.below(static_cast<std::uint32_t>(i))]);
  }
  const auto half = ranks.begin() + static_cast<std::ptrdiff_t>(ranks.size() / 2);
  return {{ranks.begin(), half}, {half, ranks.end()}};
}

TEST(Placement, OfAllRanksInTheirOrderIsNone) {
  Dice dice(1);
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    const Topology t = random_machine(dice);
    const GroupCollective c = random_collective(dice, all_ranks(t));
    const CodecPtr codec = find_codec(c.codec);
    const SimulationResult plain = simulate({find_algorithm(c.algorithm),
                                             {.world_size = t.ranks.value,
                                              .elements = c.bytes / 2,
                                              .alignment = codec->info().alignment},
                                             *codec,
                                             DType::fp16,
                                             t});
    const SimulationResult placed = alone(c, t);
    EXPECT_EQ(placed.latency, plain.latency);
    EXPECT_EQ(placed.wire_bytes, plain.wire_bytes);
  }
}

TEST(Placement, MakesNoDifferenceWhereAllPlacesAreAlike) {
  Dice dice(2);
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    const bool mesh = dice.one_in(2);
    Topology t = machine(mesh ? TopologyKind::full_mesh : TopologyKind::switched, 12);
    const auto [one, other] = two_groups(dice, t);
    GroupCollective c = random_collective(dice, one);
    const Picoseconds latency = alone(c, t).latency;
    c.ranks = other;
    EXPECT_EQ(alone(c, t).latency, latency);
  }
}

TEST(Placement, CountsWhereTheyAreNot) {
  const Topology t = machine(TopologyKind::fat_tree, 16, 4);
  // In one server the ports carry it, one rank per server needs the slower network.
  EXPECT_LT(alone(collective({0, 1, 2, 3}), t).latency,
            alone(collective({0, 4, 8, 12}), t).latency);
}

TEST(Workload, GroupsOnLinksOfTheirOwnDoNotSlowEachOther) {
  Dice dice(3);
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    const bool mesh = dice.one_in(2);
    const Topology t = machine(mesh ? TopologyKind::full_mesh : TopologyKind::switched, 12);
    const auto [one, other] = two_groups(dice, t);
    GroupCollective second = random_collective(dice, other);
    second.start_us = dice.between(0, 20);
    for (const GroupTime& time : times({random_collective(dice, one), second}, t)) {
      EXPECT_NEAR(time.slowdown, 1, 1e-12);
    }
  }
}

TEST(Workload, TwoAtOnceTakeAtMostWhatTheyTakeOneAfterTheOther) {
  // Where each rank shares its links with one other collective, max-min sharing leaves each at least half of every link: a time
  // is at most twice the time alone. In an all-to-all pattern over several hops it may be that a message waits for what waits
  // for another, but never for more than all of both.
  Dice dice(4);
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    const Topology t = random_machine(dice);
    const std::vector<GroupTime> both =
        times({random_collective(dice, all_ranks(t)), random_collective(dice, all_ranks(t))}, t);
    constexpr double kAnomaly = 0.02;
    const double sum = both[0].alone_us + both[1].alone_us;
    for (const GroupTime& time : both) {
      EXPECT_GE(time.slowdown, 1 - kAnomaly);
      EXPECT_LE(time.result.latency_us, sum * (1 + kAnomaly));
    }
  }
}

TEST(Workload, TwoThatSendOverTheSamePortShareIt) {
  // Two all-gathers of two ranks on a switch: each slot is 100,000 bytes, 10 us over a port of 10
  // GB/s that is free; 5 + 2 + 0.5 + 1 us and the flag's 0.5 us before and after.
  const Topology t = machine(TopologyKind::switched, 4);
  GroupCollective c = collective({0, 1}, "all_gather", 200'000);
  const Picoseconds one = alone(c, t).latency;
  const auto both = times({c, c}, t);
  EXPECT_EQ(both[0].result.latency - one, 10'000'000);
  EXPECT_EQ(both[1].result.latency - one, 10'000'000);
  // The second comes when the first has half of its bytes sent: 5 us alone, 10 us with half of the
  // port, and then the other half of it alone, for each.
  GroupCollective late = c;
  late.start_us = 5;
  const auto shifted = times({c, late}, t);
  EXPECT_EQ(shifted[0].result.latency - one, 5'000'000);
  EXPECT_EQ(shifted[1].result.latency - one, 5'000'000);
}

TEST(Workload, LatencyCountsFromTheStart) {
  Dice dice(5);
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    const Topology t = random_machine(dice);
    GroupCollective c = random_collective(dice, all_ranks(t));
    const SimulationResult now = alone(c, t);
    c.start_us = 123;
    const SimulationResult later = alone(c, t);
    EXPECT_EQ(later.latency, now.latency);
    EXPECT_NEAR(later.breakdown.launch_us, now.breakdown.launch_us, 1e-9);
    EXPECT_EQ(later.bottleneck, now.bottleneck);
  }
}

// ---------------------------------------------------------------- who waits for whom

GroupCollective named(const std::string& name, GroupCollective c,
                      std::vector<std::string> after = {}) {
  c.name = name;
  c.after = std::move(after);
  return c;
}

TEST(After, AChainTakesTheSumOfItsParts) {
  Dice dice(10);
  for (int i = 0; i < 30; ++i) {
    SCOPED_TRACE(i);
    const Topology t = random_machine(dice);
    const GroupCollective one = random_collective(dice, all_ranks(t));
    GroupCollective two = random_collective(dice, all_ranks(t));
    two.codec = one.codec;
    const Picoseconds first = alone(one, t).latency;
    const Picoseconds second = alone(two, t).latency;
    // In the file the last one stands first.
    const auto both = times({named("two", two, {"one"}), named("one", one)}, t);
    EXPECT_EQ(both[1].result.latency, first);
    EXPECT_EQ(both[0].result.latency, second);
    EXPECT_EQ(both[0].start_us, both[1].end_us);
    EXPECT_EQ(picoseconds_from_us(both[0].end_us), first + second);
    EXPECT_EQ(both[0].slowdown, 1);
  }
}

TEST(After, WhoWaitsForTwoBeginsWithTheLater) {
  const Topology t = machine(TopologyKind::full_mesh, 4);
  const GroupCollective little = collective({0, 1}, "all_gather", 2000);
  const GroupCollective much = collective({2, 3}, "all_gather", 200'000);
  const auto found = times(
      {named("little", little), named("much", much), named("last", little, {"little", "much"})}, t);
  EXPECT_LT(found[0].end_us, found[1].end_us);
  EXPECT_EQ(found[2].start_us, found[1].end_us);
  // And not before its own start.
  GroupCollective late = named("last", little, {"little", "much"});
  late.start_us = 1000;
  EXPECT_EQ(times({named("little", little), named("much", much), late}, t)[2].start_us, 1000);
}

TEST(After, BeginsAsIfItsStartHadBeenWritten) {
  // Waiting collectives share links with running ones: two chains of three on the same ranks, and the same with the starts that
  // they had.
  Dice dice(11);
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    const Topology t = random_machine(dice);
    std::vector<GroupCollective> chains;
    for (int k = 0; k < 6; ++k) {
      GroupCollective c = random_collective(dice, all_ranks(t));
      c.codec = "fp16";
      chains.push_back(named(std::to_string(k), c));
      if (k >= 2) chains.back().after = {std::to_string(k - 2)};
    }
    const auto waiting = times(chains, t);
    for (int k = 0; k < 6; ++k) {
      chains[k].after.clear();
      chains[k].start_us = waiting[k].start_us;
      EXPECT_EQ(waiting[k].start_us, k < 2 ? 0 : waiting[k - 2].end_us);
    }
    const auto written = times(chains, t);
    for (int k = 0; k < 6; ++k) {
      EXPECT_EQ(written[k].result.latency, waiting[k].result.latency);
    }
  }
}

std::vector<GroupTime> times(const std::vector<GroupCollective>& collectives,
                             const std::vector<Computation>& computations, const Topology& t) {
  return simulate_workload(Workload{"test", "test", collectives, computations}, t);
}

TEST(Computation, IsWaitedForAndWaits) {
  const Topology t = machine(TopologyKind::switched, 4);
  const GroupCollective c = collective({0, 1});
  const double alone_us = alone(c, t).latency_us;
  const auto found = times({named("c", c, {"before"})},
                           {{.name = "before", .ranks = {0, 1}, .us = 10},
                            {.name = "behind", .ranks = {1}, .us = 3, .after = {"c"}}},
                           t);
  EXPECT_EQ(found[0].start_us, 10);
  EXPECT_DOUBLE_EQ(found[0].end_us, 10 + alone_us);
  EXPECT_EQ(found[1].start_us, 0);
  EXPECT_EQ(found[2].start_us, found[0].end_us);
  EXPECT_EQ(found[2].end_us, found[0].end_us + 3);
}

TEST(Computation, HidesBesideACollective) {
  const Topology t = machine(TopologyKind::switched, 4);
  for (const double us : {1.0, 1000.0}) {
    const GroupCollective c = named("c", collective({0, 1}));
    const GroupCollective last = named("last", collective({0, 1, 2, 3}), {"c", "beside"});
    const auto found = times({c, last}, {{.name = "beside", .ranks = {2, 3}, .us = us}}, t);
    EXPECT_EQ(found[1].start_us, std::max(us, alone(c, t).latency_us));
  }
}

TEST(Computation, OneAtATimeOnARank) {
  const Topology t = machine(TopologyKind::switched, 4);
  const auto found = times({named("c", collective({0, 1}), {"a", "b", "d"})},
                           {{.name = "a", .ranks = {0, 1}, .us = 10},
                            {.name = "b", .ranks = {1, 2}, .us = 5},
                            {.name = "d", .ranks = {3}, .us = 2, .start_us = 1}},
                           t);
  EXPECT_EQ(found[1].start_us, 0);
  EXPECT_EQ(found[2].start_us, 10);
  EXPECT_EQ(found[3].end_us, 3);
  EXPECT_EQ(found[0].start_us, 15);
}

TEST(Computation, OfFlopTakesWhatTheDeviceTakes) {
  Topology t = machine(TopologyKind::switched, 4);
  const std::vector<GroupCollective> c = {named("c", collective({0, 1}), {"product"})};
  const std::vector<Computation> product = {{.name = "product", .ranks = {0, 1}, .flop = 1e9}};
  expect_contains(message_of([&] { times(c, product, t); }),
                  "computation 'product': flop needs a topology with a section [compute]");
  // 10^9 operations at half of 100 * 10^12 per second are 20 us, and a kernel begins in 3.
  t.device.compute = Compute{.bf16_tflops = assumed(100),
                             .gemm_efficiency = assumed(0.5),
                             .attention_efficiency = assumed(1),
                             .memory_efficiency = assumed(1),
                             .kernel_us = assumed(3)};
  EXPECT_DOUBLE_EQ(times(c, product, t)[0].start_us, 23);
  // The slowest of its ranks counts.
  Device slow = t.device;
  slow.compute->bf16_tflops = assumed(50);
  t.device_overrides.push_back({{1}, slow});
  EXPECT_DOUBLE_EQ(times(c, product, t)[0].start_us, 43);
}

// ---------------------------------------------------------------- slots that are not equal

TEST(UnequalSlots, OfEqualSizeAreAnAllToAll) {
  const Topology t = machine(TopologyKind::switched, 4);
  GroupCollective c = collective(all_ranks(t), "all_to_all", 256 * kKiB);
  const Picoseconds equal = alone(c, t).latency;
  c.pair_bytes = skewed(4, c.bytes, 0);
  EXPECT_EQ(alone(c, t).latency, equal);
}

TEST(UnequalSlots, TheBusiestReceiverSetsTheTime) {
  // 10 GB/s into rank 0: 3 x 100,000 bytes are 30 us; else everybody sends it 10 us.
  const Topology t = machine(TopologyKind::switched, 4);
  GroupCollective c = collective(all_ranks(t), "all_to_all");
  c.pair_bytes = PairBytes(4, {0, 0, 0, 0});
  c.pair_bytes[1][0] = 100'000;
  const Picoseconds one = alone(c, t).latency;
  c.pair_bytes[2][0] = c.pair_bytes[3][0] = 100'000;
  EXPECT_GE(alone(c, t).latency - one, 20'000'000);
  c.pair_bytes = skewed(4, 400'000, 1.5);
  const Picoseconds skew = alone(c, t).latency;
  c.pair_bytes = skewed(4, 400'000, 0);
  EXPECT_GT(skew, alone(c, t).latency);
}

// ---------------------------------------------------------------- what changes in mid-run

TEST(LinkEvents, AtTheStartAreFaults) {
  Dice dice(6);
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    Topology t = random_machine(dice);
    if (t.kind != TopologyKind::ring && t.kind != TopologyKind::torus) continue;
    const GroupCollective c = random_collective(dice, all_ranks(t));
    Topology faulty = t;
    const NodeName from{false, 0};
    const NodeName to{false, 1};
    const double factor = dice.one_in(2) ? 0 : 0.25;
    faulty.faults.push_back({from, to, factor, "test"});
    t.link_events.push_back({from, to, 0, factor, "test"});
    EXPECT_EQ(alone(c, t).latency, alone(c, faulty).latency);
  }
}

TEST(LinkEvents, AfterTheEndChangeNothing) {
  Dice dice(7);
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    Topology t = random_machine(dice);
    const GroupCollective c = random_collective(dice, all_ranks(t));
    const SimulationResult before = alone(c, t);
    const bool switched = t.kind == TopologyKind::switched || t.kind == TopologyKind::numa ||
                          t.kind == TopologyKind::fat_tree;
    t.link_events.push_back(
        {{false, 0}, {switched, switched ? 0U : 1U}, before.latency_us + 1, 0, "test"});
    t.background.push_back({{false, 0}, {false, 1}, 5, before.latency_us + 1, 1e4, "test"});
    EXPECT_EQ(alone(c, t).latency, before.latency);
  }
}

TEST(LinkEvents, SlowALinkDownFromThenOn) {
  // 100,000 bytes at 10 GB/s take 10 us; with a quarter of it after half of them, 5 + 20.
  Topology t = machine(TopologyKind::full_mesh, 2);
  const GroupCollective c = collective({0, 1}, "all_gather", 200'000);
  const Picoseconds whole = alone(c, t).latency;
  // The kernel starts at 5 us, and with it the message.
  t.link_events.push_back({{false, 0}, {false, 1}, 10, 0.25, "test"});
  EXPECT_EQ(alone(c, t).latency - whole, 15'000'000);
  // And back after 4 us, in which it has sent a quarter of what it would have: 3 us are lost.
  t.link_events.push_back({{false, 0}, {false, 1}, 14, 1, "test"});
  EXPECT_EQ(alone(c, t).latency - whole, 3'000'000);
}

TEST(LinkEvents, WhatHasNotLeftGoesAnotherWay) {
  // From 0 to 1 of a ring of 4 over the other three links, from the middle of the message on: 5 us at
  // 10 GB/s, and 2 us more of latency.
  Topology t = machine(TopologyKind::ring, 4);
  GroupCollective c = collective(all_ranks(t), "all_to_all");
  c.pair_bytes = PairBytes(4, {0, 0, 0, 0});
  c.pair_bytes[0][1] = 100'000;
  const Picoseconds whole = alone(c, t).latency;
  t.link_events.push_back({{false, 0}, {false, 1}, 10, 0, "test"});
  EXPECT_EQ(alone(c, t).latency - whole, 2'000'000);
}

TEST(LinkEvents, WithoutAnotherWayAreRefused) {
  Topology t = machine(TopologyKind::full_mesh, 2);
  t.link_events.push_back({{false, 0}, {false, 1}, 10, 0, "test"});
  expect_contains(message_of([&] { alone(collective({0, 1}, "all_gather", 200'000), t); }),
                  "there is no way from rank 0 to rank 1, since links have failed");
  t.link_events[0].to = {true, 0};
  expect_contains(message_of([&] { alone(collective({0, 1}), t); }),
                  "key 'link_events' 0: there is no switch0");
  t = machine(TopologyKind::ring, 4);
  t.link_events.push_back({{false, 0}, {false, 2}, 10, 0, "test"});
  expect_contains(message_of([&] { alone(collective({0, 1}), t); }),
                  "key 'link_events' 0: there is no link from rank0 to rank2");
}

TEST(Background, TakesItsShareWhileItLasts) {
  // 100,000 bytes at 10 GB/s, of which others have 4 GB/s for 5 us: they take 20,000 bytes, 2 us.
  Topology t = machine(TopologyKind::full_mesh, 2);
  const GroupCollective c = collective({0, 1}, "all_gather", 200'000);
  const Picoseconds whole = alone(c, t).latency;
  t.background.push_back({{false, 0}, {false, 1}, 4, 6, 11, "test"});
  EXPECT_EQ(alone(c, t).latency - whole, 2'000'000);
  // A flow that wants more than half gets half: 5 GB/s, 25,000 bytes.
  t.background[0].gb_per_s = 50;
  EXPECT_EQ(alone(c, t).latency - whole, 2'500'000);
  // It is not counted as bytes of the collective.
  EXPECT_EQ(alone(c, t).links.at(0).bytes, 200'000U);
}

TEST(Background, NeverMakesItFaster) {
  Dice dice(8);
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    Topology t = random_machine(dice);
    const GroupCollective c = random_collective(dice, all_ranks(t));
    const SimulationResult quiet = alone(c, t);
    t.background.push_back({{false, 0}, {false, 1}, dice.between(1, 100), 0, 1e4, "test"});
    t.background.push_back({{false, 3}, {false, 2}, dice.between(1, 100), 5, 50, "test"});
    // Messages of others may come in another order (max-min anomalies), for a few per cent.
    EXPECT_GE(alone(c, t).latency_us, quiet.latency_us * 0.98);
  }
}

// ---------------------------------------------------------------- devices and runs that differ

TEST(DeviceOverrides, OfAllRanksAreTheDevice) {
  Dice dice(9);
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    Topology t = random_machine(dice);
    const GroupCollective c = random_collective(dice, all_ranks(t));
    Topology slower = t;
    slower.device.codec_gops_per_s = assumed(20);
    slower.device.launch_us = assumed(9);
    t.device_overrides.push_back({all_ranks(t), slower.device});
    EXPECT_EQ(alone(c, t).latency, alone(c, slower).latency);
  }
}

TEST(DeviceOverrides, OfOneRankLieBetween) {
  Topology t = machine(TopologyKind::switched, 4);
  const GroupCollective c = collective(all_ranks(t), "two_shot", 256 * kKiB, "int8-g32");
  const Picoseconds fast = alone(c, t).latency;
  Topology slow = t;
  slow.device.codec_gops_per_s = assumed(4);
  t.device_overrides.push_back({{2}, slow.device});
  EXPECT_GT(alone(c, t).latency, fast);
  EXPECT_LE(alone(c, t).latency, alone(c, slow).latency);
}

TEST(Jitter, OfNothingIsNone) {
  Topology t = machine(TopologyKind::torus, 1);
  t = torus_machine({3, 3});
  const GroupCollective c = collective(all_ranks(t));
  const Picoseconds latency = alone(c, t).latency;
  t.jitter = {0, 0};
  EXPECT_EQ(alone(c, t, {.seed = 7}).latency, latency);
}

TEST(Jitter, FollowsFromTheSeedAndIsExponential) {
  Topology t = machine(TopologyKind::full_mesh, 2);
  const GroupCollective c = collective({0, 1}, "all_gather", 2000);
  const double quiet_us = alone(c, t).latency_us;
  t.jitter.launch_us = 10;
  EXPECT_EQ(alone(c, t, {.seed = 3}).latency, alone(c, t, {.seed = 3}).latency);
  EXPECT_NE(alone(c, t, {.seed = 3}).latency, alone(c, t, {.seed = 4}).latency);
  // The later of two: 1.5 times the mean.
  constexpr int kRuns = 4000;
  double sum_us = 0;
  for (std::uint64_t seed = 0; seed < kRuns; ++seed) {
    const double late_us = alone(c, t, {.seed = seed}).latency_us - quiet_us;
    EXPECT_GE(late_us, -1e-9);
    sum_us += late_us;
  }
  EXPECT_NEAR(sum_us / kRuns, 15, 0.6);
  t.jitter = {0, 2};
  EXPECT_GT(alone(c, t, {.seed = 3}).latency_us, quiet_us);
}

// ---------------------------------------------------------------- files

const char* const kWorkload = R"(name = "layer"
summary = "test"
[[collectives]]
name = "tp"
ranks = [0, 2, 4, 6]
algorithm = "two_shot"
codec = "int8-g32"
bytes = "256K"
[[collectives]]
name = "ep"
ranks = [1, 3, 5, 7]
algorithm = "all_to_all"
codec = "fp16"
bytes = 262144
skew = 1.0
start_us = 12.5
)";

TEST(WorkloadFile, SaysWhatRuns) {
  const Workload w = parse_workload(kWorkload, "w.toml");
  ASSERT_EQ(w.collectives.size(), 2U);
  EXPECT_EQ(w.collectives[0].ranks, (std::vector<Rank>{0, 2, 4, 6}));
  EXPECT_EQ(w.collectives[0].bytes, 256 * kKiB);
  EXPECT_EQ(w.collectives[1].start_us, 12.5);
  EXPECT_GT(w.collectives[1].pair_bytes[0][0], w.collectives[1].pair_bytes[0][3]);
  EXPECT_EQ(simulate_workload(w, machine(TopologyKind::switched, 8)).size(), 2U);
}

TEST(WorkloadFile, RefusesWhatDoesNotFit) {
  const auto refusal = [](std::string text, const std::string& right, const std::string& wrong) {
    text.replace(text.find(right), right.size(), wrong);
    return message_of([&] {
      simulate_workload(parse_workload(text, "w.toml"), machine(TopologyKind::switched, 8));
    });
  };
  expect_contains(refusal(kWorkload, "\"256K\"", "\"256 kB\""),
                  "w.toml: key 'collectives[0].bytes': it must be a number of bytes");
  expect_contains(
      refusal(kWorkload, "[0, 2, 4, 6]", "[0, 2, 4, 8]"),
      "collective 'tp': there is no rank 8 on topology 'test machine'; allowed is 0 to 7");
  expect_contains(refusal(kWorkload, "[0, 2, 4, 6]", "[0, 2, 4, 4]"), "rank 4 is named twice");
  expect_contains(refusal(kWorkload, "[0, 2, 4, 6]", "[0, 2, -1]"), "collectives[0].ranks");
  expect_contains(refusal(kWorkload, "start_us", "begin_us"),
                  "unknown key 'collectives[1].begin_us'");
  expect_contains(refusal(kWorkload, "skew = 1.0", "skew = -1"), "skew -1 is out of range");
  expect_contains(refusal(kWorkload, "all_to_all", "ring"), "are for all_to_all, not ring");
  expect_contains(refusal(kWorkload, "two_shot", "three_shot"), "three_shot");
  expect_contains(message_of([] { parse_workload("name = \"a\"\nsummary = \"b\"\n", "w.toml"); }),
                  "it has 0 [[collectives]] and 0 [[compute]]; allowed are 1 to 1024 in all");
  const auto waits = [&refusal](const std::string& after) {
    return refusal(kWorkload, "skew = 1.0", "after = [" + after + "]");
  };
  expect_contains(waits("\"pt\""), "'ep': after names 'pt', which is not there: known are tp, ep");
  expect_contains(waits("\"ep\""), "each waits for the next: 'ep' after 'ep'");
  expect_contains(waits("3"), "key 'collectives[1].after': it must be an array of strings");
  const auto computes = [](const std::string& keys) {
    return message_of([&] {
      const std::string compute = "[[compute]]\nname = \"c\"\nranks = [0]\n" + keys;
      simulate_workload(parse_workload(kWorkload + compute, "w.toml"),
                        machine(TopologyKind::switched, 8));
    });
  };
  expect_contains(computes(""), "key 'compute[0].us': needed is one of us");
  expect_contains(computes("us = 1\nflop = 2"), "key 'compute[0].us': needed is one of us");
  expect_contains(computes("us = -1"), "key 'compute[0].us': -1 is out of range");
  expect_contains(
      computes("us = 1\nafter = [\"d\"]\n[[compute]]\nname = \"d\"\nranks = [0]\n"
               "us = 1\nafter = [\"e\", \"tp\"]\n[[compute]]\nname = \"e\"\n"
               "ranks = [0]\nus = 1\nafter = [\"d\"]"),
      "none of these can begin, because each waits for the next: 'd' after 'e' after 'd'");
  expect_contains(computes("us = 1\n[[compute]]\nname = \"c\"\nranks = [0]\nus = 1\n"
                           "after = [\"c\"]"),
                  "'c': after names 'c', which several have for a name");
  expect_contains(computes("us = 1\nstart_us = -1"), "computation 'c' starts at -1 us");
}

}  // namespace
}  // namespace arlab

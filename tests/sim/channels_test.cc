// Channels of the vendor's library: the orders of their rings, and what several rings at once take.

#include "sim/library/channels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>

#include "reference/codecs/registry.h"
#include "sim/library/library_plan.h"
#include "sim/simulator.h"
#include "tests/refusal.h"
#include "tests/sim/machine.h"

namespace arlab {
namespace {

/// How many rings use each link of a mesh. Fails when an order is no order of the ranks.
std::map<std::pair<Rank, Rank>, int> loads(const std::vector<RankOrder>& rings, Rank ranks) {
  std::map<std::pair<Rank, Rank>, int> loads;
  for (const RankOrder& ring : rings) {
    EXPECT_EQ(std::set<Rank>(ring.begin(), ring.end()).size(), ranks);
    EXPECT_EQ(ring.size(), ranks);
    EXPECT_LT(*std::max_element(ring.begin(), ring.end()), ranks);
    for (Rank i = 0; i < ranks; ++i) ++loads[{ring[i], ring[(i + 1) % ranks]}];
  }
  return loads;
}

TEST(ChannelOrders, UseAllLinksOfAMeshAlike) {
  for (Rank ranks = 3; ranks <= 17; ++ranks) {
    const auto rings = channel_orders(machine(TopologyKind::full_mesh, ranks), ranks);
    const int expected = ranks % 2 == 0 ? 2 : 1;
    EXPECT_EQ(rings.size(), std::size_t{ranks - 1} * expected);
    const auto used = loads(rings, ranks);
    EXPECT_EQ(used.size(), std::size_t{ranks} * (ranks - 1));
    for (const auto& [link, load] : used) EXPECT_EQ(load, expected) << ranks;
  }
}

TEST(ChannelOrders, AreTheFirstOfThemWhereFewAreWanted) {
  const auto all = channel_orders(machine(TopologyKind::full_mesh, 8), 8);
  for (std::uint64_t most = 1; most <= all.size() + 1; ++most) {
    const auto some = channel_orders(machine(TopologyKind::full_mesh, 8), 8, most);
    ASSERT_EQ(some.size(), std::min<std::uint64_t>(most, all.size()));
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
  }
  // All of these would take 8 GB.
  EXPECT_EQ(channel_orders(machine(TopologyKind::full_mesh, 32768), 32768, 3).size(), 3u);
}

TEST(ChannelOrders, AreOneWhereAllOrdersAreAsGood) {
  const RankOrder upwards = {0, 1, 2, 3};
  for (const auto kind : {TopologyKind::switched, TopologyKind::numa, TopologyKind::fat_tree}) {
    EXPECT_EQ(channel_orders(machine(kind, 4, 2), 4), std::vector<RankOrder>{upwards});
  }
  EXPECT_EQ(channel_orders(machine(TopologyKind::full_mesh, 2), 2),
            (std::vector<RankOrder>{RankOrder{0, 1}}));
  EXPECT_EQ(channel_orders(machine(TopologyKind::full_mesh, 1), 1),
            std::vector<RankOrder>{RankOrder{0}});
  const Topology ring = machine(TopologyKind::ring, 4);
  EXPECT_EQ(channel_orders(ring, 4), (std::vector<RankOrder>{upwards, {3, 2, 1, 0}}));
  EXPECT_EQ(channel_orders(ring, 3).size(), 1u) << "a part of a ring is a line";
}

TEST(ChannelOrders, LeaveOutLinksThatDoNotWork) {
  Topology mesh = machine(TopologyKind::full_mesh, 4);
  mesh.faults.push_back({{false, 1}, {false, 2}, 0, "test"});
  mesh.faults.push_back({{false, 2}, {false, 3}, 0.5, "test"});
  const auto rings = channel_orders(mesh, 4);
  EXPECT_EQ(rings.size(), 4u);
  const auto used = loads(rings, 4);
  EXPECT_FALSE(used.contains({1, 2}));
  EXPECT_TRUE(used.contains({2, 3}));
}

Topology with_library(Topology t, const std::function<void(Library&)>& change = {}) {
  t.device.library = library_of(64, 1);
  if (change) change(*t.device.library);
  return t;
}

/// 48000 bytes on 4 ranks: chunks of 12000 bytes in one ring, of 2000 in each of 6.
constexpr std::uint64_t kElements = 24000;

SimulationResult run(const Topology& t, const char* algorithm = "ring",
                     SimulateOptions options = {.library = true}) {
  return simulate({find_algorithm(algorithm),
                   {.world_size = t.ranks.value, .elements = kElements},
                   *find_codec("fp16"),
                   DType::fp16,
                   t,
                   options});
}

Picoseconds ps(double us) { return picoseconds_from_us(us); }

/// Links carry 10000 bytes/us; a step takes 2 us * (1 peer + itself) and 1 us of link latency.
TEST(Channels, TakeTheTimesByHand) {
  const Topology mesh = machine(TopologyKind::full_mesh, 4);
  const auto us = [&](const std::function<void(Library&)>& change) {
    return run(with_library(mesh, change)).latency;
  };
  // 6 rings, two on every link.
  EXPECT_EQ(us({}), ps(3 + 6 * (4 + 0.4 + 1)));
  EXPECT_EQ(us([](Library& l) { l.channels.value = 1; }), ps(3 + 6 * (4 + 1.2 + 1)));
  // Half of the ring's messages go the other way.
  EXPECT_EQ(run(with_library(machine(TopologyKind::ring, 4))).latency, ps(3 + 6 * (4 + 0.6 + 1)));
  // One order: flags and links as without channels.
  EXPECT_EQ(run(with_library(machine(TopologyKind::switched, 4))).latency,
            ps(3 + 6 * (4 + 1.2 + 1)));
}

/// Additions of 6 channels share the device: as long as those of one ring.
TEST(Channels, ShareTheDevice) {
  Topology mesh = with_library(machine(TopologyKind::full_mesh, 4));
  mesh.device.codec_gops_per_s.value = 0.1;
  // Rings follow each other by 60 us of additions, 3 steps long, whatever the number of rings.
  const double rings_us = run(mesh).breakdown.codec_us;
  mesh.device.library->channels.value = 1;
  EXPECT_NEAR(run(mesh).breakdown.codec_us / rings_us, 1, 0.1);
}

TEST(Channels, SendWhatOneCopySends) {
  for (const char* algorithm : {"ring", "tree", "halving_doubling"}) {
    Topology mesh = with_library(machine(TopologyKind::full_mesh, 8));
    const SimulationResult many = run(mesh, algorithm);
    mesh.device.library->channels.value = 1;
    const SimulationResult one = run(mesh, algorithm);
    EXPECT_EQ(many.wire_bytes, one.wire_bytes);
    EXPECT_EQ(many.payload_bytes, one.payload_bytes);
    EXPECT_LT(many.latency_us, one.latency_us) << algorithm;
    EXPECT_EQ(many.links[0].links, 56u);
    EXPECT_LT(one.links[0].links, 56u);
  }
}

TEST(Channels, AreNotNeededWhereEverybodySendsToAll) {
  const Topology mesh = with_library(machine(TopologyKind::full_mesh, 8));
  const SimulationResult r = run(mesh, "two_shot");
  EXPECT_EQ(r.simulated_ranks, 1u);
  Topology late = mesh;
  late.stragglers.push_back({3, assumed(1)});
  EXPECT_EQ(run(late, "two_shot").simulated_ranks, 8u);
}

TEST(Channels, AreNoMoreThanThereAreElements) {
  const Topology mesh = with_library(machine(TopologyKind::full_mesh, 4));
  const auto channels = [&](std::uint64_t elements, bool library = true) {
    return plan_of(find_algorithm("ring"), {.world_size = 4, .elements = elements},
                   *find_codec("fp16"), DType::fp16, mesh, {.library = library})
        .channels;
  };
  EXPECT_EQ(channels(1), 1u);
  EXPECT_EQ(channels(3), 3u);
  EXPECT_EQ(channels(kElements), 6u);
  EXPECT_EQ(channels(kElements, false), 1u) << "a kernel has none";
}

/// The negative control: rings in one order get no more out of the mesh than one.
TEST(Channels, InOneOrderAreNoFaster) {
  Topology mesh = with_library(machine(TopologyKind::full_mesh, 4));
  const Schedule share = make_schedule("ring", {.world_size = 4, .elements = kElements / 6});
  const Plan copy = plan_of(share, *find_codec("fp16"), DType::fp16);
  const auto us = [&](const std::vector<RankOrder>& orders) {
    Plan plan = in_channels(std::vector(6, copy), orders);
    run_as_program(plan, mesh);
    return simulate({plan, mesh}).latency;
  };
  EXPECT_EQ(us(std::vector(6, RankOrder{0, 1, 2, 3})), ps(3 + 6 * (4 + 1.2 + 1)));
  EXPECT_EQ(us(channel_orders(mesh, 4)), run(mesh).latency);
}

TEST(Channels, RefuseWhatIsNoWholeNumber) {
  for (const double channels : {0.5, 1.5, 1025.0}) {
    const Topology mesh = with_library(machine(TopologyKind::full_mesh, 4),
                                       [&](Library& l) { l.channels.value = channels; });
    expect_contains(message_of([&] { run(mesh); }), "whole number from 1 to 1024");
  }
  EXPECT_THROW(in_channels({}, {}), std::logic_error);
}

}  // namespace
}  // namespace arlab

// Bisection bandwidth against cuts counted by hand.

#include "sim/topology/bisection.h"

#include <gtest/gtest.h>

namespace arlab {
namespace {

Topology sized(Topology topology, double link_gb_per_s) {
  topology.link_type("link").bandwidth_gb_per_s.value = link_gb_per_s;
  return topology;
}

Bisection bisection(const Topology& topology) {
  return bisection_of(Fabric(topology), topology.ranks.value);
}

void expect_both_ways(const Topology& topology, double gb_per_s, Bisection::Method method) {
  const Bisection b = bisection(topology);
  EXPECT_DOUBLE_EQ(b.upwards_gb_per_s, gb_per_s) << topology.name;
  EXPECT_DOUBLE_EQ(b.downwards_gb_per_s, gb_per_s) << topology.name;
  EXPECT_EQ(b.method, method) << topology.name;
  EXPECT_TRUE(b.exact) << topology.name;
}

constexpr auto kCrossing = Bisection::Method::crossing_links;
constexpr auto kMaxFlow = Bisection::Method::max_flow;

TEST(Bisection, OneRankHasNoHalves) {
  EXPECT_EQ(bisection(find_topology("full:1")).gb_per_s(), 0);
  EXPECT_EQ(bisection(find_topology("full:1")).first_half, 0U);
}

TEST(Bisection, Meshes) {
  expect_both_ways(sized(find_topology("full:2"), 10), 10, kCrossing);
  expect_both_ways(sized(find_topology("full:4"), 10), 2 * 2 * 10, kCrossing);
  expect_both_ways(sized(find_topology("full:5"), 10), 2 * 3 * 10, kCrossing);
  // Large enough that its links are not stored.
  expect_both_ways(sized(find_topology("full:1000"), 10), 500 * 500 * 10.0, kCrossing);
}

TEST(Bisection, RingsAndTori) {
  expect_both_ways(sized(find_topology("ring:6"), 7), 2 * 7, kCrossing);
  expect_both_ways(sized(find_topology("ring:5"), 7), 2 * 7, kCrossing);
  // Two planes of 4 x 2 ranks, joined in the middle and round the outside.
  expect_both_ways(sized(find_topology("torus:4x4x2"), 7), 2 * 4 * 2 * 7, kCrossing);
}

TEST(Bisection, Switches) {
  Topology h800 = sized(find_topology("h800-8"), 100);
  expect_both_ways(h800, 4 * 100, kMaxFlow);
}

TEST(Bisection, Bridges) {
  Topology l40 = sized(find_topology("l40-8"), 24);
  l40.link_type("bridge").bandwidth_gb_per_s.value = 20;
  expect_both_ways(l40, 20, kMaxFlow);
  l40.link_type("bridge").bandwidth_gb_per_s.value = 1000;
  expect_both_ways(l40, 4 * 24, kMaxFlow);
}

TEST(Bisection, FatTree) {
  Topology tree = find_topology("fat_tree:16");
  tree.link_type("link").bandwidth_gb_per_s.value = 400;
  tree.link_type("nic").bandwidth_gb_per_s.value = 50;
  tree.link_type("uplink").bandwidth_gb_per_s.value = 10000;
  expect_both_ways(tree, 8 * 50, kMaxFlow);  // a server each: all of its cards
}

TEST(Bisection, OneDirectionMayBeNarrower) {
  Topology l40 = sized(find_topology("l40-8"), 24);
  l40.link_type("bridge").bandwidth_gb_per_s.value = 20;
  l40.faults.push_back({{true, 0}, {true, 1}, 0.25, "a bad cable"});
  const Bisection b = bisection(l40);
  EXPECT_DOUBLE_EQ(b.upwards_gb_per_s, 5);
  EXPECT_DOUBLE_EQ(b.downwards_gb_per_s, 20);
  EXPECT_DOUBLE_EQ(b.gb_per_s(), 5);
}

/// Ranks 0 and 1 at switch 0, ranks 2 and 3 at switch 1; two links of 10 GB/s between the switches.
Topology graph() {
  Topology t = find_topology("full:4");
  t.name = "graph";
  t.kind = TopologyKind::graph;
  t.switches = 2;
  t.link_types[0].name = "link";
  t.link_types[0].bandwidth_gb_per_s.value = 10;
  const auto rank = [](std::uint32_t i) { return NodeName{false, i}; };
  const auto at = [](std::uint32_t i) { return NodeName{true, i}; };
  t.edges = {{rank(0), at(0), "link", "", true}, {rank(1), at(0), "link", "", true},
             {rank(2), at(1), "link", "", true}, {rank(3), at(1), "link", "", true},
             {at(0), at(1), "link", "", true},   {at(0), at(1), "link", "", true}};
  return t;
}

TEST(Bisection, ParallelLinksAddUp) { expect_both_ways(graph(), 20, kMaxFlow); }

TEST(Bisection, FlowTakesDetours) {
  // A third way through a switch of its own: from rank 0 alone.
  Topology t = graph();
  t.switches = 3;
  t.edges.push_back({{false, 0}, {true, 2}, "link", "", true});
  t.edges.push_back({{true, 2}, {true, 1}, "link", "", true});
  // Ranks 2 and 3 have ports of 10 each, so that the third way brings nothing ...
  expect_both_ways(t, 20, kMaxFlow);
  // ... until rank 3 gets another port.
  t.edges.push_back({{false, 3}, {true, 1}, "link", "", true});
  expect_both_ways(t, 30, kMaxFlow);
}

TEST(Bisection, ADomainThatDoesNotBindChangesNothing) {
  Topology t = graph();
  t.domains = {{"cable", {100, Source::assumed, "test"}}};
  t.edges[4].domain = t.edges[5].domain = "cable";
  expect_both_ways(t, 20, kMaxFlow);
}

TEST(Bisection, ADomainThatBindsIsABound) {
  Topology t = graph();
  t.domains = {{"cable", {12, Source::assumed, "test"}}};
  t.edges[4].domain = t.edges[5].domain = "cable";
  const Bisection b = bisection(t);
  EXPECT_FALSE(b.exact);
  // 12 in truth; the least cut without the domain is any of those of 20, maybe at the ports.
  EXPECT_GE(b.gb_per_s(), 12);
  EXPECT_LE(b.gb_per_s(), 20);
}

}  // namespace
}  // namespace arlab

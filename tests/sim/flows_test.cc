// Rates of flows, counted by hand, and where PCIe collapses.
#include "sim/flows.h"

#include <gtest/gtest.h>

#include <numeric>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "sim/simulator.h"
#include "tests/sim/machine.h"

namespace arlab {
namespace {

using Rates = std::vector<double>;

/// Ranks on switches, as many on each as `sizes` says; an uplink from each switch to its root complex,
/// of which all are linked. Lanes and uplinks of 10 GB/s one way and 16 both ways; 4 from root complex
/// to root complex. Copies get half.
Topology pcie(const std::vector<Rank>& sizes, const std::vector<Rank>& complex_of) {
  Topology t;
  t.name = "pcie";
  t.summary = "test";
  t.kind = TopologyKind::graph;
  t.device = round_device();
  t.device.copy_efficiency = assumed(0.5);
  const auto switches = static_cast<Rank>(sizes.size());
  const Rank complexes = 1 + *std::max_element(complex_of.begin(), complex_of.end());
  t.switches = switches + complexes;
  t.link_types = {{"lane", assumed(10), assumed(1), assumed(16)},
                  {"root", assumed(4), assumed(1)},
                  {"uplink", assumed(10), assumed(1), assumed(16), true}};
  Rank ranks = 0;
  for (Rank s = 0; s < switches; ++s) {
    for (Rank i = 0; i < sizes[s]; ++i) {
      t.edges.push_back({{false, ranks++}, {true, s}, "lane", "", true});
    }
    t.edges.push_back({{true, s}, {true, switches + complex_of[s]}, "uplink", "", true});
  }
  for (Rank a = 0; a < complexes; ++a) {
    for (Rank b = a + 1; b < complexes; ++b) {
      t.edges.push_back({{true, switches + a}, {true, switches + b}, "root", "", true});
    }
  }
  t.ranks = counted(ranks);
  return t;
}

/// Two switches of two on one root complex, two on another: 8 ranks.
Topology two_by_two() { return pcie({2, 2, 2, 2}, {0, 0, 1, 1}); }

Rates rates(const Topology& t, std::string_view flows, Mover mover) {
  return flow_rates(t, flows_of(flows, t.ranks.value), mover);
}
double sum(const Rates& rates) { return std::accumulate(rates.begin(), rates.end(), 0.0); }

void expect_rates(const Rates& rates, const Rates& expected) {
  ASSERT_EQ(rates.size(), expected.size());
  for (std::size_t i = 0; i < rates.size(); ++i) EXPECT_NEAR(rates[i], expected[i], 1e-6) << i;
}

TEST(Flows, OfAKernelShareMaxMinFairly) {
  const Topology t = two_by_two();
  expect_rates(rates(t, "0>1", Mover::stores), {10});
  expect_rates(rates(t, "0>1 1>0", Mover::stores), {8, 8});
  expect_rates(rates(t, "0>1 0>2", Mover::stores), {5, 5});
  expect_rates(rates(t, "0>1 0>4", Mover::stores), {6, 4});
  expect_rates(rates(t, "0>4 2>6", Mover::stores), {2, 2});
  expect_rates(rates(t, "0>2 1>3", Mover::stores), {5, 5});
}

TEST(Flows, OfARingTakeBothWaysWhereTheyAreAsLong) {
  Topology t;
  t.name = "ring";
  t.summary = "test";
  t.kind = TopologyKind::ring;
  t.devices_forward = true;
  t.ranks = counted(4);
  t.link_types = {{"link", assumed(10), assumed(1)}};
  t.device = round_device();
  expect_rates(rates(t, "0>2", Mover::stores), {20});
  expect_rates(rates(t, "0>1 0>2", Mover::stores), {5, 15});
}

/// A copy to a rank that is reached at 5 and one that is reached at 2 have the same bytes: 1 / 5 + 1 / 2
/// of the time each, 10 / 7 each.
TEST(Flows, OfCopyEnginesTakeTurns) {
  const Topology t = two_by_two();
  expect_rates(rates(t, "0>1", Mover::copies), {5});
  expect_rates(rates(t, "0>1 1>0", Mover::copies), {4, 4});
  expect_rates(rates(t, "0>1 0>4", Mover::copies), {10.0 / 7, 10.0 / 7});
  expect_rates(rates(t, "0>4 0>6", Mover::copies), {1, 1});
  // Rank 0 is at its slower copy for 5 / 6 of the time, and the third flow shares with that one.
  expect_rates(rates(t, "0>1 0>4 1>4", Mover::copies), {5.0 / 6, 5.0 / 6, 7.0 / 6});
}

/// Four ranks all send to all: a port into a rank is idle when none of three others is at it, each with a third of its time.
/// Both ways are no limit: they carry twice one.
TEST(Flows, OfCopyEnginesMeetAtRandom) {
  Topology t = pcie({4}, {0});
  t.link_types[0].both_ways_gb_per_s = assumed(20);
  const double busy = 1 - 8.0 / 27;
  EXPECT_NEAR(sum(rates(t, "all12", Mover::copies)), 4 * 5 * busy, 1e-6);
  EXPECT_NEAR(sum(rates(t, "dist1", Mover::copies)), 4 * 5, 1e-6);
  EXPECT_NEAR(sum(rates(t, "0>2 0>3 1>2 1>3", Mover::copies)), 2 * 5 * 0.75, 1e-6);
}

/// Six ranks: 5^6 moments are too many to look at all.
TEST(Flows, OfManyCopyEnginesAreASample) {
  Topology t = pcie({6}, {0});
  t.link_types[0].both_ways_gb_per_s = assumed(20);
  const double all = 6 * 5 * (1 - std::pow(0.8, 5));
  EXPECT_NEAR(sum(rates(t, "all", Mover::copies)), all, 0.01 * all);
  EXPECT_EQ(rates(t, "all", Mover::copies), rates(t, "all", Mover::copies));
}

TEST(Flows, HaveWords) {
  using Flows = std::vector<Flow>;
  EXPECT_EQ(flows_of("0>1 2>3", 4), (Flows{{0, 1}, {2, 3}}));
  EXPECT_EQ(flows_of("all", 3), (Flows{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}}));
  EXPECT_EQ(flows_of("all2", 3), (Flows{{0, 1}, {1, 0}}));
  EXPECT_EQ(flows_of("cross4", 4), (Flows{{0, 2}, {0, 3}, {1, 2}, {1, 3}}));
  EXPECT_EQ(flows_of("dist2", 3), (Flows{{0, 2}, {1, 0}, {2, 1}}));
  for (const char* wrong : {"", "0", "0>", "0>1>2", "0>4", "1>1", "0>1 0>1", "all3", "all20",
                            "cross9", "dist0", "dist4", "some"}) {
    EXPECT_THROW(flows_of(wrong, 4), InvalidInput) << wrong;
  }
}

std::size_t places(const Topology& t, std::string_view flows, Mover mover = Mover::copies) {
  return collapses(t, flows_of(flows, t.ranks.value), mover).size();
}

TEST(Collapses, AreWhereASwitchWritesToSeveralRootComplexes) {
  const Topology t = two_by_two();
  EXPECT_EQ(places(t, "0>2 1>4"), 1u);
  EXPECT_EQ(collapses(t, flows_of("0>2 1>4", 8), Mover::copies).front(),
            "uplink switch0->switch4 to switch 4, switch 5");
  EXPECT_EQ(places(t, "0>4 1>6"), 0u) << "two switches on one root complex";
  EXPECT_EQ(places(t, "0>1 1>4"), 0u) << "one stays behind the switch";
  EXPECT_EQ(places(t, "0>4 2>1"), 0u) << "two switches write";
  EXPECT_EQ(places(t, "0>2 0>4"), 0u) << "copies of one rank take turns";
  EXPECT_EQ(places(t, "0>2 0>4", Mover::stores), 1u);
  EXPECT_EQ(places(t, "all"), 4u);
  Topology spared = t;  // a chip that does not collapse
  for (LinkType& type : spared.link_types) type.collapses = !type.root_port;
  EXPECT_EQ(places(spared, "all"), 0u);
  const Topology again = parse_topology(to_toml(spared), "again");
  EXPECT_EQ(again, spared);
  Topology unknown = t;
  for (LinkType& type : unknown.link_types) type.root_port = false;
  EXPECT_EQ(places(unknown, "all"), 0u) << "nothing says what a root port is";
}

TEST(Collapses, OfACollectiveAreThoseOfItsSteps) {
  const Topology t = two_by_two();
  const CodecPtr codec = find_codec("fp16");
  const auto places_of = [&](const char* algorithm, const Topology& on) {
    const ScheduleRequest request{.world_size = 8, .elements = 8 * 64, .alignment = 1};
    return simulate({find_algorithm(algorithm), request, *codec, DType::fp16, on}).collapses.size();
  };
  EXPECT_EQ(places_of("one_shot", t), 4u);
  EXPECT_EQ(places_of("two_shot", t), 4u);
  EXPECT_EQ(places_of("ring", t), 0u) << "it leaves a switch once";
  EXPECT_EQ(places_of("one_shot", pcie({4, 4}, {0, 1})), 0u);
}

}  // namespace
}  // namespace arlab

// The graph of every kind: links, classes, routes, and what faults do to them.

#include "sim/topology/fabric.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sim/network/router.h"
#include "sim/topology/routes.h"
#include "tests/refusal.h"
#include "tests/sim/machine.h"
#include "tests/words.h"

namespace arlab {
namespace {

using Names = std::vector<std::string>;
using enum TopologyKind;

Names way(const Topology& topology, Rank from, Rank to) {
  const Fabric fabric(topology);
  Router router(fabric.network());
  Names names;
  for (const LinkId link : router.route(from, to)) names.push_back(fabric.describe(link));
  return names;
}

double latency_us(const Topology& topology, Rank from, Rank to) {
  const Fabric fabric(topology);
  Router router(fabric.network());
  Picoseconds latency = 0;
  for (const LinkId link : router.route(from, to)) {
    latency += fabric.network().properties(link).latency;
  }
  return us_from_picoseconds(latency);
}

/// Links by class.
std::map<std::string, int> census(const Topology& topology) {
  const Fabric fabric(topology);
  std::map<std::string, int> count;
  for (LinkId link = 0; link < fabric.network().links(); ++link) {
    ++count[std::string(fabric.class_of(link))];
    EXPECT_EQ(fabric.classes()[fabric.class_index(link)], fabric.class_of(link));
  }
  return count;
}

using Census = std::map<std::string, int>;

double bandwidth(const Topology& topology, const std::string& name, double efficiency = 1) {
  const Fabric fabric(topology, efficiency);
  for (LinkId link = 0; link < fabric.network().links(); ++link) {
    if (fabric.describe(link) == name) return fabric.network().properties(link).bandwidth_gb_per_s;
  }
  return 0;
}

// ---------------------------------------------------------------- kinds

TEST(Fabric, OfAFullMeshIsALinkPerPair) {
  const Topology t = machine(full_mesh, 4);
  EXPECT_EQ(census(t), (Census{{"link", 12}}));
  EXPECT_EQ(way(t, 0, 1), Names{"link 0->1"});
  EXPECT_EQ(way(t, 3, 0), Names{"link 3->0"});
  EXPECT_EQ(latency_us(t, 2, 3), 1);
  EXPECT_EQ(census(machine(full_mesh, 1)), Census{});
}

TEST(Fabric, OfTheLargestMeshIsSmall) {
  const Topology t = machine(full_mesh, kMaxFullMeshRanks);
  EXPECT_EQ(Fabric(t).network().links(), kMaxFullMeshRanks * (kMaxFullMeshRanks - 1));
  EXPECT_EQ(way(t, 32767, 32766), Names{"link 32767->32766"});
}

TEST(Fabric, OfARingGoesTheShorterWayAndUpwardsWhenEqual) {
  const Topology t = machine(ring, 4);
  EXPECT_EQ(census(t), (Census{{"link", 8}}));
  EXPECT_EQ(way(t, 3, 0), Names{"link 3->0"});
  EXPECT_EQ(way(t, 0, 3), Names{"link 0->3"});
  EXPECT_EQ(way(t, 3, 1), (Names{"link 3->0", "link 0->1"}));
  EXPECT_EQ(way(t, 2, 0), (Names{"link 2->3", "link 3->0"}));
  EXPECT_EQ(latency_us(t, 3, 1), 2);
  EXPECT_EQ(way(machine(ring, 5), 1, 4), (Names{"link 1->0", "link 0->4"}));
  EXPECT_EQ(census(machine(ring, 2)), (Census{{"link", 2}})) << "upwards and downwards are one";
  EXPECT_EQ(census(machine(ring, 1)), Census{});
}

TEST(Fabric, HalfOfATieGoesTheOtherWay) {
  const auto other = [](const Topology& t, Rank from, Rank to) {
    const Fabric fabric(t);
    std::vector<LinkId> path;
    Names names;
    const bool found = fabric.find_other_route(from, to, path);
    EXPECT_EQ(found, !path.empty());
    for (const LinkId link : path) names.push_back(fabric.describe(link));
    return names;
  };
  EXPECT_EQ(other(machine(ring, 4), 3, 1), (Names{"link 3->2", "link 2->1"}));
  EXPECT_EQ(other(machine(ring, 4), 3, 0), Names{});
  EXPECT_EQ(other(machine(ring, 5), 1, 4), Names{});
  EXPECT_EQ(other(machine(ring, 2), 0, 1), Names{});
  // 3 x 4: one up in the first dimension, two in the second.
  EXPECT_EQ(other(torus_machine({3, 4}), 0, 6), (Names{"link 0->4", "link 4->7", "link 7->6"}));
  EXPECT_EQ(other(machine(TopologyKind::full_mesh, 4), 0, 2), Names{});
  Topology broken = machine(ring, 4);
  broken.faults.push_back({{false, 0}, {false, 1}, 0.5, "test"});
  EXPECT_EQ(other(broken, 3, 1), Names{}) << "where something differs, all goes one way";
}

TEST(Fabric, OfATorusGoesDimensionByDimension) {
  // 3 x 4: rank = 4 row + column.
  const Topology t = torus_machine({3, 4});
  EXPECT_EQ(census(t), (Census{{"link", 12 * 4}}));
  EXPECT_EQ(way(t, 0, 4), Names{"link 0->4"});
  EXPECT_EQ(way(t, 0, 8), Names{"link 0->8"}) << "round the end";
  EXPECT_EQ(way(t, 0, 6), (Names{"link 0->4", "link 4->5", "link 5->6"})) << "rows first";
  EXPECT_EQ(way(t, 0, 11), (Names{"link 0->8", "link 8->11"}));
  EXPECT_EQ(way(t, 5, 7), (Names{"link 5->6", "link 6->7"})) << "upwards when equal";
  EXPECT_EQ(census(torus_machine({2, 2, 2})), (Census{{"link", 8 * 3}}));
  EXPECT_EQ(census(torus_machine({1, 5, 1})), (Census{{"link", 10}}));
  EXPECT_EQ(way(torus_machine({2, 2, 2}), 0, 7), (Names{"link 0->4", "link 4->6", "link 6->7"}));
}

TEST(Fabric, OfASwitchIsPortToPort) {
  const Topology t = machine(switched, 4);
  EXPECT_EQ(census(t), (Census{{"port_out", 4}, {"port_in", 4}}));
  EXPECT_EQ(way(t, 1, 3), (Names{"port out of 1", "port into 3"}));
  EXPECT_EQ(latency_us(t, 1, 3), 1) << "once, not per port";
}

TEST(Fabric, OfNumaGroupsHasABridgePerPairAndDirection) {
  const Topology t = machine(numa, 6, 2);
  EXPECT_EQ(census(t), (Census{{"port_out", 6}, {"port_in", 6}, {"bridge", 6}}));
  EXPECT_EQ(way(t, 0, 1), (Names{"port out of 0", "port into 1"}));
  EXPECT_EQ(way(t, 1, 4), (Names{"port out of 1", "bridge 0->2", "port into 4"}));
  EXPECT_EQ(way(t, 5, 2), (Names{"port out of 5", "bridge 2->1", "port into 2"}));
  EXPECT_EQ(latency_us(t, 0, 1), 1);
  EXPECT_EQ(latency_us(t, 0, 5), 2.5);
}

/// Servers of 2 ranks, pods of 2 servers: 6 ranks are 2 pods of which the second is half full.
TEST(Fabric, OfAFatTreeHasRails) {
  const Topology t = machine(fat_tree, 6, 2);
  EXPECT_EQ(census(t), (Census{{"port_out", 6},
                               {"port_in", 6},
                               {"nic_out", 6},
                               {"nic_in", 6},
                               {"uplink", 4},
                               {"downlink", 4}}));
  EXPECT_EQ(way(t, 0, 1), (Names{"port out of 0", "port into 1"})) << "inside a server";
  EXPECT_EQ(way(t, 0, 2), (Names{"network card out of 0", "network card into 2"})) << "one rail";
  EXPECT_EQ(way(t, 1, 3), (Names{"network card out of 1", "network card into 3"}));
  // Switches: 3 of servers, then leaves: pod 0 rails 0, 1 = 3, 4, pod 1 = 5, 6, then the core 7.
  EXPECT_EQ(way(t, 0, 3), (Names{"network card out of 0", "uplink switch3->switch7",
                                 "downlink switch7->switch4", "network card into 3"}))
      << "between rails";
  EXPECT_EQ(way(t, 0, 4), (Names{"network card out of 0", "uplink switch3->switch7",
                                 "downlink switch7->switch5", "network card into 4"}))
      << "between pods";
  EXPECT_EQ(latency_us(t, 0, 1), 1);
  EXPECT_EQ(latency_us(t, 0, 2), 1.5);
  EXPECT_EQ(latency_us(t, 0, 4), 3);
  EXPECT_EQ(census(machine(fat_tree, 2, 2)), (Census{{"port_out", 2}, {"port_in", 2}}));
}

/// Groups of 3 routers with 2 ranks each: 18 ranks are 3 groups.
TEST(Fabric, OfADragonflyTakesOneGlobalLink) {
  Topology t = machine(dragonfly, 18, 3);
  t.ranks_per_router = counted(2);
  EXPECT_EQ(census(t), (Census{{"port_out", 18}, {"port_in", 18}, {"local", 18}, {"global", 6}}));
  EXPECT_EQ(way(t, 0, 1), (Names{"port out of 0", "port into 1"})) << "one router";
  EXPECT_EQ(way(t, 0, 5), (Names{"port out of 0", "local switch0->switch2", "port into 5"}));
  // The link to the next group is that of router 0, to the one after it that of router 1; back from
  // group 1 to group 0, two further, is router 1 of it, switch 4.
  EXPECT_EQ(way(t, 0, 8), (Names{"port out of 0", "global switch0->switch4", "port into 8"}));
  EXPECT_EQ(way(t, 2, 6),
            (Names{"port out of 2", "local switch1->switch0", "global switch0->switch4",
                   "local switch4->switch3", "port into 6"}));
  // At most one local, one global, one local.
  const Fabric fabric(t);
  Router router(fabric.network());
  for (Rank from = 0; from < 18; ++from) {
    for (Rank to = 0; to < 18; ++to) {
      if (from == to) continue;
      std::map<std::string, int> used;
      for (const LinkId link : router.route(from, to)) ++used[std::string(fabric.class_of(link))];
      EXPECT_EQ(used["global"], from / 6 == to / 6 ? 0 : 1);
      EXPECT_LE(used["local"], 2);
    }
  }
}

Topology small_graph() {
  Topology t = machine(graph, 3);
  t.switches = 1;
  t.link_types = {{"bridge", assumed(10), assumed(1)}, {"thin", assumed(2), assumed(0.5)}};
  t.domains = {{"upstream", assumed(5)}};
  t.edges = {{{false, 0}, {true, 0}, "bridge", "upstream", true},
             {{false, 1}, {true, 0}, "bridge", "upstream", true},
             {{false, 2}, {true, 0}, "thin", "", false}};
  return t;
}

TEST(Fabric, OfAGraphIsWhatTheFileSays) {
  const Topology t = small_graph();
  EXPECT_EQ(census(t), (Census{{"bridge", 4}, {"thin", 1}}));
  // "bridge" is a type of this file and has nothing to do with numa groups.
  EXPECT_EQ(way(t, 0, 1), (Names{"bridge 0->switch0", "bridge switch0->1"}));
  EXPECT_EQ(way(t, 2, 1), (Names{"thin 2->switch0", "bridge switch0->1"}));
  EXPECT_EQ(latency_us(t, 2, 1), 1.5);
  const Fabric fabric(t);
  EXPECT_EQ(fabric.network().domains(), 1u);
  EXPECT_EQ(fabric.network().properties(0).domain, 0u);
  EXPECT_EQ(fabric.network().properties(4).domain, kNoDomain);
  EXPECT_EQ(fabric.network().capacity_gb_per_s(fabric.network().resource_of(0)), 5);
  EXPECT_EQ(fabric.describe_node(2), "rank 2");
  EXPECT_EQ(fabric.describe_node(3), "switch 0");
  EXPECT_THROW(way(t, 0, 2), InvalidInput) << "no link back";
  // Types that alternate are still two classes.
  Topology mixed = t;
  mixed.edges.push_back({{false, 0}, {false, 1}, "bridge", "", true});
  EXPECT_EQ(census(mixed), (Census{{"bridge", 6}, {"thin", 1}}));
  EXPECT_EQ(Fabric(mixed).classes().size(), 2u);
}

TEST(Fabric, DevicesOfAGraphForwardWhenTheFileSaysSo) {
  Topology t = machine(graph, 3);
  t.link_types = {{"wire", assumed(10), assumed(1)}};
  t.edges = {{{false, 0}, {false, 1}, "wire", "", true},
             {{false, 1}, {false, 2}, "wire", "", true}};
  EXPECT_THROW(way(t, 0, 2), InvalidInput);
  t.devices_forward = true;
  EXPECT_EQ(way(t, 0, 2), (Names{"wire 0->1", "wire 1->2"}));
}

/// For every ordered pair of ranks, whatever the kind: a route joins up.
TEST(Fabric, RoutesLeadFromTheSenderToTheReceiver) {
  for (const char* name : {"full:1", "full:7", "ring:2", "ring:7", "ring:8", "h800-8", "l40-8",
                           "torus:2x3x4", "fat_tree:24", "dragonfly:30", "dragonfly:1"}) {
    SCOPED_TRACE(name);
    const Topology t = find_topology(name);
    const Fabric fabric(t);
    Router router(fabric.network());
    for (Rank from = 0; from < t.ranks.value; ++from) {
      for (Rank to = 0; to < t.ranks.value; ++to) {
        if (from == to) continue;
        const auto route = router.route(from, to);
        EXPECT_NO_THROW(fabric.network().require_path(route));
        EXPECT_EQ(fabric.network().ends(route.front()).from, from);
        EXPECT_EQ(fabric.network().ends(route.back()).to, to);
        EXPECT_LE(route.size(), 7u);
      }
    }
  }
}

// ---------------------------------------------------------------- efficiency and faults

TEST(Fabric, GivesLinksTheirShare) {
  EXPECT_EQ(bandwidth(machine(numa, 4, 2), "bridge 0->1"), 4);
  EXPECT_EQ(bandwidth(machine(numa, 4, 2), "bridge 0->1", 0.5), 2);
  EXPECT_EQ(bandwidth(machine(numa, 4, 2), "port into 3", 0.25), 2.5);
  EXPECT_EQ(Fabric(small_graph(), 0.5).network().capacity_gb_per_s(5), 2.5) << "domains, too";
}

TEST(Fabric, FaultsSlowOneDirection) {
  Topology t = machine(full_mesh, 4);
  t.faults = {{{false, 1}, {false, 2}, 0.5, "test"}, {{false, 0}, {false, 3}, 3, "test"}};
  EXPECT_EQ(bandwidth(t, "link 1->2"), 5);
  EXPECT_EQ(bandwidth(t, "link 2->1"), 10);
  EXPECT_EQ(bandwidth(t, "link 0->3"), 30);
  Topology bridge = machine(numa, 4, 2);
  bridge.faults = {{{true, 1}, {true, 0}, 0.5, "test"}, {{false, 3}, {true, 1}, 0.1, "test"}};
  EXPECT_EQ(bandwidth(bridge, "bridge 1->0"), 2);
  EXPECT_EQ(bandwidth(bridge, "bridge 0->1"), 4);
  EXPECT_EQ(bandwidth(bridge, "port out of 3"), 1);
}

TEST(Fabric, FaultsRemoveALink) {
  Topology t = machine(ring, 4);
  t.faults = {{{false, 0}, {false, 1}, 0, "test"}};
  EXPECT_EQ(census(t), (Census{{"link", 7}}));
  EXPECT_EQ(way(t, 0, 1), (Names{"link 0->3", "link 3->2", "link 2->1"}));
  EXPECT_EQ(way(t, 1, 0), Names{"link 1->0"});
  Topology mesh = machine(full_mesh, 3);
  mesh.faults = t.faults;
  expect_contains(message_of([&] { way(mesh, 0, 1); }), "no way from device 0 to device 1");
  mesh.devices_forward = true;
  EXPECT_EQ(way(mesh, 0, 1), (Names{"link 0->2", "link 2->1"}));
}

TEST(Fabric, RefusesFaultsOfLinksThatAreNotThere) {
  Topology t = machine(ring, 4);
  t.faults = {{{false, 0}, {false, 1}, 0.5, "test"}, {{false, 0}, {false, 2}, 0.5, "test"}};
  EXPECT_EQ(message_of([&] { Fabric{t}; }),
            "test machine: key 'faults' 1: there is no link from rank0 to rank2; from there, links "
            "lead to rank1, rank3");
  t.faults = {{{false, 0}, {true, 7}, 0.5, "test"}};
  EXPECT_EQ(message_of([&] { Fabric{t}; }),
            "test machine: key 'faults' 0: there is no switch7; there are rank0 to rank3");
  // 4 + 4294967293 wraps around to rank 1.
  t.faults = {{{false, 0}, {true, 4294967293}, 0.5, "test"}};
  expect_contains(message_of([&] { Fabric{t}; }), "there is no switch4294967293");
  Topology large = machine(full_mesh, 4096);
  large.faults = {{{false, 0}, {false, 1}, 0.5, "test"}};
  expect_contains(message_of([&] { Fabric{large}; }), "may have at most 2048 ranks, not 4096");
}

// ---------------------------------------------------------------- shifts

std::vector<Rank> shifts(const Topology& t) { return shifts_of(t).extents; }
using Extents = std::vector<Rank>;

TEST(FabricShifts, AreThoseThatChangeNothing) {
  EXPECT_EQ(shifts(machine(full_mesh, 6)), Extents{6});
  EXPECT_TRUE(shifts_of(machine(full_mesh, 6)).any);
  EXPECT_TRUE(shifts_of(machine(switched, 6)).any);
  EXPECT_EQ(shifts(machine(ring, 6)), Extents{6});
  EXPECT_FALSE(shifts_of(machine(ring, 6)).any);
  EXPECT_EQ(shifts(torus_machine({2, 3})), (Extents{2, 3}));
  EXPECT_EQ(shifts(machine(numa, 6, 2)), (Extents{3, 2}));
  EXPECT_EQ(shifts(machine(fat_tree, 8, 4)), (Extents{2, 4})) << "one pod";
  EXPECT_EQ(shifts(machine(fat_tree, 16, 4)), (Extents{2, 2, 4})) << "two pods";
  EXPECT_EQ(shifts(machine(numa, 24, 2)), (Extents{3, 2, 2, 2})) << "groups in any order";
  EXPECT_EQ(shifts(servers(16, 2)), (Extents{2, 2, 2, 2})) << "ranks of one card";
  EXPECT_EQ(shifts(servers(8, 1, ServerInside::pcie, 2)), Extents{})
      << "a PCIe switch without a card";
  EXPECT_EQ(shifts(machine(fat_tree, 12, 4)), Extents{}) << "a pod that is not full";
  EXPECT_EQ(shifts(machine(dragonfly, 6, 2)), Extents{});
  EXPECT_EQ(shifts(small_graph()), Extents{});
}

/// By brute force: a shift takes the route of a pair to that of the shifted pair, link by link of the
/// same orbit. An orbit has as many links as it says.
TEST(FabricShifts, TakeRoutesToRoutes) {
  for (const Topology& t : {machine(full_mesh, 6),
                            machine(switched, 5),
                            machine(ring, 6),
                            machine(ring, 7),
                            torus_machine({2, 3}),
                            torus_machine({4, 2, 2}),
                            machine(numa, 6, 2),
                            machine(numa, 8, 4),
                            machine(fat_tree, 8, 4),
                            machine(fat_tree, 16, 4),
                            machine(fat_tree, 12, 2),
                            machine(numa, 24, 2),
                            machine(fat_tree, 48, 2),
                            servers(16, 2),
                            servers(8, 1),
                            servers(16, 8),
                            servers(16, 4, ServerInside::mesh),
                            servers(16, 2, ServerInside::mesh),
                            servers(16, 2, ServerInside::pcie),
                            servers(8, 1, ServerInside::pcie)}) {
    const Fabric fabric(t);
    Routes router(fabric);
    const Extents extents = shifts(t);
    ASSERT_FALSE(extents.empty());
    const Rank n = t.ranks.value;
    const auto shifted = [&](Rank rank, Rank by) {
      Rank result = 0;
      Rank stride = 1;
      for (std::size_t i = extents.size(); i-- > 0;) {
        result += (rank / stride % extents[i] + by / stride % extents[i]) % extents[i] * stride;
        stride *= extents[i];
      }
      return result;
    };
    std::map<LinkId, std::set<LinkId>> orbits;  // by representative
    for (Rank to = 1; to < n; ++to) {
      const auto route = router.route(0, to);
      const std::vector<LinkId> own(route.begin(), route.end());
      for (Rank by = 0; by < n; ++by) {
        const auto other = router.route(shifted(0, by), shifted(to, by));
        ASSERT_EQ(other.size(), own.size()) << name_of(t.kind) << " " << to << " " << by;
        for (std::size_t i = 0; i < own.size(); ++i) {
          EXPECT_EQ(fabric.class_of(other[i]), fabric.class_of(own[i]));
          orbits[fabric.orbit_of(own[i]).representative].insert(other[i]);
        }
      }
    }
    for (const auto& [representative, links] : orbits) {
      EXPECT_EQ(links.size(), fabric.orbit_of(representative).size)
          << name_of(t.kind) << " " << n << " " << fabric.describe(representative);
    }
  }
}

// ---------------------------------------------------------------- routes without a search

/// Ranks of a pair whose route differs from what a search finds; "" when all are the same.
std::string difference(const Topology& t) {
  const Fabric fabric(t);
  Routes routes(fabric);
  Router search(fabric.network());
  const Rank ranks = t.ranks.value;
  for (Rank from = 0; from < ranks; ++from) {
    for (Rank to = 0; to < ranks; ++to) {
      if (from == to) continue;
      const std::span<const LinkId> found = routes.route(from, to);
      const std::span<const LinkId> expected = search.route(from, to);
      if (!std::equal(found.begin(), found.end(), expected.begin(), expected.end())) {
        return fmt::format("{} {}: {}->{}", name_of(t.kind), ranks, from, to);
      }
    }
  }
  return "";
}

TEST(Routes, AreThoseThatASearchFinds) {
  using enum TopologyKind;
  std::vector<Topology> all;
  for (const Rank ranks : {2, 3, 8, 70}) {
    all.push_back(machine(full_mesh, ranks));
    all.push_back(machine(switched, ranks));
    all.push_back(machine(ring, ranks));
  }
  for (const auto& [ranks, group] : {std::pair<Rank, Rank>{8, 4}, {12, 2}, {6, 6}, {5, 1}}) {
    all.push_back(machine(numa, ranks, group));
    all.push_back(machine(fat_tree, ranks, group));
  }
  all.push_back(machine(fat_tree, 40, 4));  // pods of 2 servers
  all.push_back(machine(fat_tree, 20, 4));  // the last pod is not full
  for (const std::string& name : testing::words(
           "torus:4 torus:5 torus:2x2 torus:2x3 torus:3x4 torus:4x1x3 torus:1x1x2 torus:2x5x2 "
           "torus:4x4x4 torus:3x3x3 torus:2x2x2x2x2x2 torus:6x5 dragonfly:6 dragonfly:36 "
           "dragonfly:72 dragonfly:100")) {
    all.push_back(find_topology(name));
  }
  for (const Topology& t : all) EXPECT_EQ(difference(t), "");
}

/// Two servers of 4 ranks. Ranks 0 and 1 share card 0, ranks 2 and 3 card 1.
TEST(Routes, OfRanksThatShareACard) {
  const Topology t = servers(8, 2);
  // 2 switches in the servers, 4 of PCIe, 2 leaves, 1 core.
  EXPECT_EQ(census(t), (Census{{"port_out", 8},
                               {"port_in", 8},
                               {"pcie_out", 8},
                               {"pcie_in", 8},
                               {"nic_out", 4},
                               {"nic_in", 4},
                               {"uplink", 2},
                               {"downlink", 2}}));
  EXPECT_EQ(way(t, 0, 1), (Names{"port out of 0", "port into 1"})) << "not over PCIe";
  EXPECT_EQ(way(t, 1, 5), (Names{"pcie_out 1->switch2", "network card out of switch2",
                                 "network card into switch4", "pcie_in switch4->5"}));
  EXPECT_EQ(way(t, 1, 6), (Names{"pcie_out 1->switch2", "network card out of switch2",
                                 "uplink switch6->switch8", "downlink switch8->switch7",
                                 "network card into switch5", "pcie_in switch5->6"}));
  Topology two_cards = servers(8, 8);
  EXPECT_EQ(bandwidth(two_cards, "network card out of 0"),
            2 * bandwidth(servers(8, 4), "network card out of 0"));
}

TEST(Routes, InsideServersWithoutASwitch) {
  const Topology mesh = servers(8, 2, ServerInside::mesh);
  EXPECT_EQ(way(mesh, 2, 0), Names{"link 2->0"});
  EXPECT_EQ(way(mesh, 5, 7), Names{"link 5->7"});
  const Topology pcie = servers(8, 1, ServerInside::pcie, 2);
  EXPECT_EQ(way(pcie, 0, 1), (Names{"pcie_out 0->switch0", "pcie_in switch0->1"}));
  EXPECT_EQ(way(pcie, 0, 3), (Names{"pcie_out 0->switch0", "root_out switch0->switch4",
                                    "root_in switch4->switch1", "pcie_in switch1->3"}));
  EXPECT_EQ(way(pcie, 3, 4), (Names{"pcie_out 3->switch1", "root_out switch1->switch4",
                                    "root_in switch4->switch0", "network card out of switch0",
                                    "network card into switch2", "pcie_in switch2->4"}))
      << "the card is at the first PCIe switch";
}

/// The fabric has the switches of switches_of().
TEST(Fabric, HasTheSwitchesThatItsTopologySays) {
  for (const Topology& t :
       {machine(full_mesh, 4), machine(switched, 4), machine(numa, 6, 2), machine(fat_tree, 4, 4),
        machine(fat_tree, 24, 4), servers(16, 2), servers(4, 2), servers(8, 2, ServerInside::mesh),
        servers(8, 1, ServerInside::pcie, 2), servers(24, 4, ServerInside::pcie),
        find_topology("dragonfly:40"), small_graph()}) {
    Rank count = 0;
    for (const SwitchSort& sort : switches_of(t)) {
      EXPECT_EQ(sort.first, count);
      count += sort.count;
    }
    EXPECT_EQ(Fabric(t).network().nodes(), t.ranks.value + count) << name_of(t.kind);
  }
  EXPECT_EQ(nodes_in_words(machine(fat_tree, 12, 4)),
            "rank0 to rank11, switch0 to switch2 (inside the servers), switch3 to switch10 (the "
            "leaves, 4 rails in each pod), switch11 (the core)");
}

TEST(Routes, AreAsLongAsTheFabricSaysWithoutLooking) {
  Topology routers = machine(TopologyKind::dragonfly, 24, 3);
  routers.ranks_per_router = counted(2);
  for (const Topology& t :
       {machine(full_mesh, 5), machine(ring, 2), machine(ring, 7), torus_machine({2, 3, 4}),
        torus_machine({1, 5}), machine(switched, 4), machine(numa, 6, 3), machine(fat_tree, 4, 4),
        machine(fat_tree, 24, 4), routers, servers(24, 2), servers(16, 4, ServerInside::mesh),
        servers(8, 1, ServerInside::pcie, 2)}) {
    const Fabric fabric(t);
    Routes routes(fabric);
    for (Rank from = 0; from < t.ranks.value; ++from) {
      for (Rank to = 0; to < t.ranks.value; ++to) {
        if (to == from) continue;
        const std::size_t hops = routes.route(from, to).size();
        EXPECT_LE(fabric.hops_between(from, to), hops);
        if (t.kind == TopologyKind::dragonfly) continue;
        EXPECT_EQ(fabric.hops_between(from, to), hops) << name_of(t.kind) << from << " " << to;
      }
    }
  }
}

TEST(Routes, AreSearchedForWhereSomethingIsDifferent) {
  Topology mesh = machine(TopologyKind::full_mesh, 4);
  mesh.devices_forward = true;
  mesh.faults.push_back({{false, 0}, {false, 1}, 0, "test"});
  EXPECT_EQ(difference(mesh), "");
  Topology ring = machine(TopologyKind::ring, 6);
  ring.faults.push_back({{false, 0}, {false, 1}, 0, "test"});
  EXPECT_EQ(difference(ring), "");
  Topology tree = machine(TopologyKind::fat_tree, 16, 4);
  tree.devices_forward = true;  // the rail and the server's switch are a way round the core
  EXPECT_EQ(difference(tree), "");
  Topology closed = machine(TopologyKind::ring, 4);
  closed.devices_forward = false;
  const Fabric fabric(closed);
  Routes routes(fabric);
  EXPECT_EQ(routes.route(0, 1).size(), 1u);
  EXPECT_THROW(routes.route(0, 2), InvalidInput);
  EXPECT_THROW(routes.route(0, 0), InvalidInput);
  EXPECT_THROW(routes.route(0, 4), InvalidInput);
}

}  // namespace
}  // namespace arlab

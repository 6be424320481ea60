// The graph and the ways through it.

#include "sim/network/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "reference/error.h"
#include "sim/network/flow_engine.h"
#include "sim/network/router.h"
#include "tests/refusal.h"
#include "tests/sim/network/dice.h"
#include "tests/sim/network/recorder.h"

namespace arlab {
namespace {

std::vector<LinkId> route(Router& router, NodeId from, NodeId to) {
  const auto links = router.route(from, to);
  return {links.begin(), links.end()};
}

// ---------------------------------------------------------------- the graph

TEST(Network, NumbersNodesAndLinksInOrder) {
  Network network;
  EXPECT_EQ(network.add_devices(3), 0u);
  EXPECT_EQ(network.add_switches(2), 3u);
  EXPECT_EQ(network.add_link(0, 3, {50, 1.5}), 0u);
  EXPECT_EQ(network.add_duplex(1, 4, {25, 0.25}), 1u);
  EXPECT_EQ(network.nodes(), 5u);
  EXPECT_EQ(network.links(), 3u);
  EXPECT_EQ(network.ends(1).from, 1u);
  EXPECT_EQ(network.ends(2).from, 4u);
  EXPECT_EQ(network.ends(2).to, 1u);
  EXPECT_EQ(network.properties(0).latency, 1'500'000);
  EXPECT_EQ(network.properties(2).bandwidth_gb_per_s, 25);
  EXPECT_EQ(network.describe_node(2), "device 2");
  EXPECT_EQ(network.describe_node(3), "switch 3");
  EXPECT_EQ(network.describe_resource(2), "link 4->1");
}

/// Small meshes are stored, large ones are not; between single links both count the same way.
TEST(Network, FullMeshesAreLinksLikeOthers) {
  for (const std::uint32_t count : {2u, 5u, 63u, 64u, 100u}) {
    Network network;
    network.add_devices(count + 2);
    const DomainId domain = network.add_domain(500);
    network.add_link(0, 1, {1, 1});
    const LinkId first = network.add_full_mesh(2, count, {50, 2, domain});
    const LinkId after = network.add_link(1, 0, {3, 3});
    ASSERT_EQ(first, 1u);
    ASSERT_EQ(after, 1 + count * (count - 1));
    LinkId id = first;
    for (NodeId from = 2; from < count + 2; ++from) {
      for (NodeId to = 2; to < count + 2; ++to) {
        if (to == from) continue;
        ASSERT_EQ(network.ends(id).from, from);
        ASSERT_EQ(network.ends(id).to, to);
        ASSERT_EQ(network.properties(id).bandwidth_gb_per_s, 50);
        ASSERT_EQ(network.properties(id).domain, domain);
        ++id;
      }
    }
    EXPECT_EQ(network.properties(after).bandwidth_gb_per_s, 3);
    EXPECT_EQ(network.ends(after).from, 1u);
    EXPECT_EQ(network.ends(0).to, 1u);
    EXPECT_EQ(network.resources(), network.links() + 1);
    EXPECT_EQ(network.capacity_gb_per_s(network.resource_of(domain)), 500);
    EXPECT_EQ(network.describe_resource(network.resource_of(domain)), "domain 0");
  }
}

TEST(Network, SaysWhatIsWrong) {
  Network network;
  network.add_devices(3);
  EXPECT_EQ(message_of([&] { network.add_link(0, 9, {50, 1}); }),
            "link 0->9: there is no node 9; the network has 3 nodes");
  EXPECT_EQ(message_of([&] { network.add_link(1, 1, {50, 1}); }),
            "link 1->1: a link connects two different nodes");
  EXPECT_EQ(message_of([&] { network.add_link(0, 1, {0, 1}); }),
            "link 0->1: bandwidth 0 GB/s is out of range; allowed is 1e-06 to 1000000000");
  EXPECT_EQ(message_of([&] { network.add_link(0, 1, {std::nan(""), 1}); }),
            "link 0->1: bandwidth nan GB/s is out of range; allowed is 1e-06 to 1000000000");
  EXPECT_EQ(message_of([&] { network.add_link(0, 1, {50, -1}); }),
            "link 0->1: latency -1 us is out of range; allowed is 0 to 1000000000");
  EXPECT_EQ(message_of([&] { network.add_link(0, 1, {50, 1, 4}); }),
            "link 0->1: there is no sharing domain 4; the network has 0");
  EXPECT_EQ(message_of([&] { network.add_domain(-3); }),
            "domain 0: bandwidth -3 GB/s is out of range; allowed is 1e-06 to 1000000000");
  EXPECT_EQ(message_of([&] { network.add_full_mesh(1, 3, {50, 1}); }),
            "full mesh: nodes 1 to 3 do not exist; the network has 3 nodes");
  EXPECT_EQ(message_of([&] { network.add_full_mesh(1, 1, {50, 1}); }),
            "full mesh: 1 nodes have no links; allowed are 2 and more");
  network.add_devices(100'000);
  EXPECT_EQ(message_of([&] { network.add_full_mesh(0, 100'000, {50, 1}); }),
            "network: 9999900000 links are too many; allowed are at most 1073741824");
  EXPECT_EQ(network.links(), 0u);
}

TEST(Network, EnginesSayWhatIsWrongWithAMessage) {
  Network network;
  network.add_devices(4);
  network.add_link(0, 1, {50, 1});
  network.add_link(2, 3, {1e-6, 1});
  Rig rig(network);
  EXPECT_EQ(message_of([&] { rig.send(7, {}, 1); }),
            "route: it has no links; a message needs at least one");
  EXPECT_EQ(message_of([&] { rig.send(7, {5}, 1); }),
            "route: there is no link 5; the network has 2");
  EXPECT_EQ(message_of([&] { rig.send(7, {0, 1}, 1); }),
            "route: link 2->3 does not begin where link 0->1 ends");
  EXPECT_EQ(message_of([&] { rig.send(7, {0}, 1, 0); }),
            "message 7: a rate cap of 0 GB/s is not allowed; it must be above 0");
  EXPECT_EQ(message_of([&] { rig.send(7, {0}, kMaxMessageBytes + 1); }),
            "message 7: 9007199254740993 bytes are too many; allowed are at most "
            "9007199254740992");
  EXPECT_EQ(message_of([&] { rig.engine.call_at(-1, 3); }),
            "timer 3: -1 ps is not between now, 0 ps, and 4611686018427387903 ps");
  EXPECT_EQ(message_of([&] {
              rig.send(7, {1}, kMaxMessageBytes);
              rig.engine.run();
            }),
            "message 7: it would end later than 4611686.018427388 s after the start of the "
            "simulation");
}

// ---------------------------------------------------------------- routes

std::uint64_t bytes_after(std::uint64_t largest_messages) {
  const Network network = one_link(Network::kMaxBandwidth);
  Rig rig(network);
  for (std::uint64_t i = 0; i < largest_messages; ++i) rig.send(i, {0}, kMaxMessageBytes);
  rig.engine.run();
  return rig.engine.bytes_on(0);
}

TEST(Network, EngineCountsNoBytesModulo2To64) {
  const std::string refusal =
      "network: a link would carry more than 18446744073709551615 bytes, which is all that can be "
      "counted";
  EXPECT_EQ(bytes_after(2047), 2047 * kMaxMessageBytes);
  EXPECT_EQ(message_of([] { bytes_after(2048); }), refusal);
}

TEST(Router, FewestHopsThenLatencyThenNumbers) {
  // 0 -> 3 over 1 or 2; two parallel links 0 -> 1; a direct link 0 -> 4 beside faster ways.
  Network network;
  network.add_devices(5, Forwarding::yes);
  network.add_link(0, 2, {50, 1});  // 0
  network.add_link(2, 3, {50, 1});  // 1
  network.add_link(0, 1, {50, 2});  // 2
  network.add_link(0, 1, {50, 1});  // 3
  network.add_link(1, 3, {50, 1});  // 4
  network.add_link(3, 4, {50, 0});  // 5
  network.add_link(0, 4, {50, 9});  // 6
  network.add_link(0, 1, {50, 1});  // 7
  Router router(network);
  EXPECT_EQ(route(router, 0, 3), (std::vector<LinkId>{0, 1}));  // as slow as 3, 4; lower numbers
  EXPECT_EQ(route(router, 0, 1), (std::vector<LinkId>{3}));
  EXPECT_EQ(route(router, 0, 4), (std::vector<LinkId>{6}));  // one hop, however slow
  EXPECT_EQ(route(router, 1, 4), (std::vector<LinkId>{4, 5}));
}

TEST(Router, PassesThroughForwardingNodesOnly) {
  // 0 - 1 - 2 with a device in the middle, and a longer way over switches 3 and 4.
  Network network;
  network.add_devices(3);
  network.add_switches(2);
  network.add_duplex(0, 1, {50, 1});  // 0, 1
  network.add_duplex(1, 2, {50, 1});  // 2, 3
  network.add_duplex(0, 3, {50, 1});  // 4, 5
  network.add_duplex(3, 4, {50, 1});  // 6, 7
  network.add_duplex(4, 2, {50, 1});  // 8, 9
  Router router(network);
  EXPECT_EQ(route(router, 0, 2), (std::vector<LinkId>{4, 6, 8}));
  EXPECT_EQ(route(router, 2, 0), (std::vector<LinkId>{9, 7, 5}));
  EXPECT_EQ(route(router, 0, 1), (std::vector<LinkId>{0}));  // an end need not forward
}

TEST(Router, NamesUnreachablePairs) {
  Network network;
  network.add_devices(3);
  network.add_switches(1);
  network.add_link(0, 3, {50, 1});
  network.add_link(3, 1, {50, 1});
  network.add_link(1, 2, {50, 1});
  Router router(network);
  EXPECT_EQ(route(router, 0, 1), (std::vector<LinkId>{0, 1}));
  EXPECT_EQ(message_of([&] { router.route(1, 0); }),
            "route: there is no way from device 1 to device 0");
  // Device 1 does not forward.
  EXPECT_EQ(message_of([&] { router.route(3, 2); }),
            "route: there is no way from switch 3 to device 2");
  EXPECT_EQ(message_of([&] { router.route(2, 2); }), "route: device 2 needs no route to itself");
  EXPECT_EQ(message_of([&] { router.route(2, 8); }),
            "route: there is no node 8; the network has 4 nodes");
  // A failed search leaves nothing behind.
  EXPECT_EQ(route(router, 0, 1), (std::vector<LinkId>{0, 1}));
}

/// All paths up to a length, the best by definition.
std::vector<LinkId> best_by_enumeration(const Network& network, NodeId from, NodeId to) {
  std::vector<LinkId> best;
  Picoseconds best_latency = kNever;
  std::vector<LinkId> path;
  std::vector<bool> on_path(network.nodes());
  const std::function<void(NodeId, Picoseconds)> extend = [&](NodeId node, Picoseconds latency) {
    if (node == to) {
      const auto key = [](const std::vector<LinkId>& p, Picoseconds l) {
        return std::tuple(p.size(), l, p);
      };
      if (best.empty() || key(path, latency) < key(best, best_latency)) {
        best = path;
        best_latency = latency;
      }
      return;
    }
    if (node != from && !network.forwards(node)) return;
    if (!best.empty() && path.size() >= best.size()) return;
    on_path[node] = true;
    for (LinkId link = 0; link < network.links(); ++link) {
      const auto [begin, end] = network.ends(link);
      if (begin != node || on_path[end]) continue;
      path.push_back(link);
      extend(end, latency + network.properties(link).latency);
      path.pop_back();
    }
    on_path[node] = false;
  };
  extend(from, 0);
  return best;
}

TEST(Router, AgreesWithAllPathsOnRandomNetworks) {
  Dice dice(3);
  int reachable = 0;
  int long_ways = 0;
  for (int round = 0; round < 150; ++round) {
    Network network;
    const std::uint32_t nodes = 2 + dice.below(9);
    for (NodeId node = 0; node < nodes; ++node) {
      network.add_devices(1, dice.one_in(4) ? Forwarding::no : Forwarding::yes);
    }
    const std::uint32_t links = dice.below(2 * nodes);
    for (std::uint32_t i = 0; i < links; ++i) {
      const NodeId from = dice.below(nodes);
      const NodeId to = (from + 1 + dice.below(nodes - 1)) % nodes;
      network.add_link(from, to, {50, 1.0 + dice.below(2)});
    }
    Router router(network);
    for (NodeId from = 0; from < nodes; ++from) {
      for (NodeId to = 0; to < nodes; ++to) {
        if (to == from) continue;
        const std::vector<LinkId> best = best_by_enumeration(network, from, to);
        if (best.empty()) {
          EXPECT_THROW(router.route(from, to), InvalidInput);
          continue;
        }
        ++reachable;
        long_ways += best.size() > 2 ? 1 : 0;
        EXPECT_EQ(route(router, from, to), best) << round << ": " << from << " to " << to;
        EXPECT_EQ(route(router, from, to), best);  // remembered
      }
    }
  }
  EXPECT_GT(reachable, 1000);
  EXPECT_GT(long_ways, 100);
}

/// The same network with a mesh that is stored and one that is not.
TEST(Router, FindsItsWayThroughFullMeshes) {
  constexpr std::uint32_t kCount = 70;
  Network network;
  network.add_devices(2 * kCount, Forwarding::yes);
  const LinkId left = network.add_full_mesh(0, kCount, {50, 1});
  const LinkId right = network.add_full_mesh(kCount, kCount, {50, 1});
  const LinkId bridge = network.add_link(10, kCount + 20, {50, 1});
  network.add_link(11, kCount + 20, {50, 3});
  Router router(network);
  const auto in_left = [&](NodeId from, NodeId to) {
    return left + from * (kCount - 1) + (to < from ? to : to - 1);
  };
  const auto in_right = [&](NodeId from, NodeId to) {
    return right + from * (kCount - 1) + (to < from ? to : to - 1);
  };
  EXPECT_EQ(route(router, 3, 60), (std::vector<LinkId>{in_left(3, 60)}));
  EXPECT_EQ(route(router, 3, kCount + 5),
            (std::vector<LinkId>{in_left(3, 10), bridge, in_right(20, 5)}));
  EXPECT_EQ(route(router, 10, kCount + 20), (std::vector<LinkId>{bridge}));
  EXPECT_EQ(message_of([&] { router.route(kCount, 0); }),
            fmt::format("route: there is no way from device {} to device 0", kCount));
}

/// A ring long enough that the two searches meet far from both ends.
TEST(Router, FindsLongWays) {
  constexpr std::uint32_t kCount = 1001;
  Network network;
  network.add_devices(kCount, Forwarding::yes);
  for (NodeId node = 0; node < kCount; ++node) {
    network.add_duplex(node, (node + 1) % kCount, {50, 1});
  }
  Router router(network);
  EXPECT_EQ(router.route(0, 500).size(), 500u);
  EXPECT_EQ(router.route(0, 500)[0], 0u);
  EXPECT_EQ(router.route(0, 501).size(), 500u);
  EXPECT_EQ(router.route(0, 501)[0], 2 * kCount - 1);
}

}  // namespace
}  // namespace arlab

// How long messages take that share links max-min fairly: cases by hand, to the nanosecond.
//
// 1 GB/s is one byte per nanosecond, so bytes / (GB/s) are nanoseconds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "sim/network/flow_engine.h"
#include "tests/sim/network/recorder.h"

namespace arlab {
namespace {

/// Links of these GB/s and us, one behind the other.
Network chain(const std::vector<LinkSpec>& links) {
  Network network;
  network.add_devices(static_cast<NodeId>(links.size() + 1), Forwarding::yes);
  for (NodeId i = 0; i < links.size(); ++i) network.add_link(i, i + 1, links[i]);
  return network;
}

// ---------------------------------------------------------------- rates and ways

TEST(FlowTiming, SingleLink) {
  Rig rig(one_link(50, 1));
  rig.run({{1, {0}, 100'000}});
  // 100000 / 50 = 2000 ns, then 1000 ns on the way.
  EXPECT_EQ(rig.of(1).started, 0);
  EXPECT_EQ(rig.all_sent({1}), ns({2000}));
  EXPECT_EQ(rig.all_delivered({1}), ns({3000}));
  EXPECT_EQ(rig.of(1).bytes, 100'000u);
}

TEST(FlowTiming, TwoHopsAreCutThrough) {
  Rig rig(chain({{50, 1}, {25, 0.5}}));
  rig.run({{1, {0, 1}, 100'000}});
  // The slower link sets the rate: 100000 / 25 = 4000, and both latencies: 1500.
  EXPECT_EQ(rig.all_sent({1}), ns({4000}));
  EXPECT_EQ(rig.all_delivered({1}), ns({5500}));
}

TEST(FlowTiming, Incast) {
  Network network;
  network.add_devices(5);
  const NodeId hub = network.add_switches(1);
  for (NodeId sender = 1; sender <= 4; ++sender) network.add_link(sender, hub, {50, 1});
  const LinkId port = network.add_link(hub, 0, {40, 1});
  Rig rig(network);
  rig.run({{0, {0, port}, 100'000},
           {1, {1, port}, 200'000},
           {2, {2, port}, 300'000},
           {3, {3, port}, 400'000}});
  // Shared: 40 / 4 = 10 each until 0 ends:   100000 / 10       = 10000
  // 40 / 3 each, the next has 100000 more:   100000 * 3 / 40   =  7500
  // 40 / 2:                                  100000 / 20       =  5000
  // 40:                                      100000 / 40       =  2500, together 1 MB / 40
  // And 2000 on the way.
  EXPECT_EQ(rig.all_delivered({0, 1, 2, 3}), ns({12'000, 19'500, 24'500, 27'000}));
}

TEST(FlowTiming, RingOfDependentSteps) {
  Network network;
  network.add_devices(4, Forwarding::yes);
  for (NodeId rank = 0; rank < 4; ++rank) network.add_link(rank, (rank + 1) % 4, {50, 1});
  Rig rig(network);
  // A tag is a step and the rank that sends. Who receives sends on, three steps in all.
  rig.then = [&](const Delivery& delivery) {
    const std::uint64_t step = delivery.tag / 4 + 1;
    const auto rank = static_cast<LinkId>((delivery.tag + 1) % 4);
    if (step < 3) rig.send(step * 4 + rank, {rank}, 100'000);
  };
  for (LinkId rank = 0; rank < 4; ++rank) rig.send(rank, {rank}, 100'000);
  rig.engine.run();
  ASSERT_EQ(rig.deliveries.size(), 12u);
  // Each step 100000 / 50 = 2000 and 1000 on the way.
  for (const Delivery& delivery : rig.deliveries) {
    EXPECT_EQ(delivery.delivered,
              (static_cast<Picoseconds>(delivery.tag / 4) + 1) * 3000 * kNanosecond);
  }
  EXPECT_EQ(rig.engine.now(), 9000 * kNanosecond);
}

TEST(FlowTiming, FullMesh) {
  Network network;
  network.add_devices(8);
  network.add_full_mesh(0, 8, {48, 2});
  Rig rig(network);
  for (LinkId link = 0; link < network.links(); ++link) rig.send(link, {link}, 96'000);
  rig.engine.run();
  // Nothing is shared: 96000 / 48 = 2000 and 2000 on the way, in the order of starts.
  ASSERT_EQ(rig.deliveries.size(), 56u);
  for (LinkId link = 0; link < network.links(); ++link) {
    EXPECT_EQ(rig.deliveries[link].tag, link);
    EXPECT_EQ(rig.deliveries[link].delivered, 4000 * kNanosecond);
    EXPECT_EQ(rig.engine.usage(link).bytes, 96'000u);
    EXPECT_EQ(rig.engine.usage(link).busy, 2000 * kNanosecond);
    EXPECT_EQ(rig.engine.usage(link).utilisation, 0.5);
  }
}

TEST(FlowTiming, NumaBridge) {
  // Devices 0, 1 on switch 4; 2, 3 on switch 5; ports of 50, a bridge of 25 per direction.
  Network network;
  network.add_devices(4);
  network.add_switches(2);
  for (NodeId device = 0; device < 4; ++device) {
    network.add_duplex(device, device < 2 ? 4 : 5, {50, 0.5});  // out: 2 * device, in: + 1
  }
  const LinkId bridge = network.add_duplex(4, 5, {25, 2});
  Rig rig(network);
  rig.run({{1, {0, bridge, 5}, 100'000},        // 0 -> 2
           {2, {2, bridge, 7}, 100'000},        // 1 -> 3
           {3, {0, 3}, 337'500},                // 0 -> 1
           {4, {4, bridge + 1, 1}, 100'000}});  // 2 -> 0, the other way: on its own
  // Shared, the bridge gives 12.5 to 1 and to 2: 100000 / 12.5 = 8000; 3000 on the way.
  // 3 has the rest of port 0, 37.5: 300000 in 8000; then 37500 / 50 = 750. 1000 on the way.
  EXPECT_EQ(rig.all_delivered({1, 2, 3, 4}), ns({11'000, 11'000, 9750, 7000}));
  // Until 11000: 200000 bytes of 25 * 11000 possible, busy for 8000.
  const ResourceUsage usage = rig.engine.usage(bridge);
  EXPECT_EQ(usage.bytes, 200'000u);
  EXPECT_EQ(usage.busy, 8000 * kNanosecond);
  EXPECT_DOUBLE_EQ(usage.utilisation, 200.0 / 275.0);
}

TEST(FlowTiming, LateJoiner) {
  Rig rig(one_link(50, 1));
  rig.run({{1, {0}, 100'000}, {2, {0}, 25'000, kNoRateCap, 1000}});
  // 1 alone: 50000 in 1000. Both 25: 2 ends 25000 / 25 = 1000 later. 1 has 25000 left: 500.
  EXPECT_EQ(rig.of(2).started, 1000 * kNanosecond);
  EXPECT_EQ(rig.all_sent({1, 2}), ns({2500, 2000}));
  EXPECT_EQ(rig.all_delivered({1, 2}), ns({3500, 3000}));
}

TEST(FlowTiming, SharingDomain) {
  // Links 0 and 1 of 50 share 60; link 2 does not.
  Network network;
  network.add_devices(2);
  const DomainId domain = network.add_domain(60);
  network.add_link(0, 1, {50, 1, domain});
  network.add_link(0, 1, {50, 1, domain});
  network.add_link(0, 1, {50, 1});
  Rig rig(network);
  rig.run({{0, {0}, 60'000}, {1, {1}, 110'000}, {2, {2}, 100'000}});
  // 30 each: 0 ends at 2000. 1 has 50000 left, at 50, because the domain has room: 1000.
  EXPECT_EQ(rig.all_sent({0}), ns({2000}));
  EXPECT_EQ(rig.all_delivered({0, 1, 2}), ns({3000, 4000, 3000}));
  const ResourceUsage usage = rig.engine.usage(network.resource_of(domain));
  EXPECT_EQ(usage.bytes, 170'000u);
  EXPECT_EQ(usage.busy, 3000 * kNanosecond);
  EXPECT_DOUBLE_EQ(usage.utilisation, 170.0 / 240.0);  // until 4000
}

TEST(FlowTiming, RateCapOfALoneMessage) {
  Rig rig(one_link(50));
  rig.run({{1, {0}, 100'000, 10}});
  EXPECT_EQ(rig.all_delivered({1}), ns({10'000}));
}

TEST(FlowTiming, EmptyMessageTakesTheLatencyOnly) {
  Rig rig(chain({{50, 1}, {25, 0.5}}));
  rig.run({{2, {0, 1}, 0}, {1, {0}, 100'000}});
  EXPECT_EQ(rig.of(2).sent, 0);
  EXPECT_EQ(rig.all_delivered({2, 1}), ns({1500, 3000}));
  EXPECT_EQ(rig.engine.usage(1).busy, 0);
}

/// Deliveries come after timers of the same instant. A timer rings where it was set among other events: 2 has left when 3
/// rings.
TEST(FlowTiming, ADeliveryAmongTimers) {
  Rig rig(one_link(50));
  std::vector<std::uint64_t> order;
  struct Leaves final : NetworkTrace {
    explicit Leaves(std::vector<std::uint64_t>& all) : order(all) {}
    void on_sent(std::uint64_t tag, Picoseconds) override { order.push_back(10 * tag); }
    std::vector<std::uint64_t>& order;
  } leaves(order);
  rig.engine.set_trace(&leaves);
  rig.then = [&](const Delivery& delivery) { order.push_back(delivery.tag); };
  rig.at_timer = [&](std::uint64_t tag) { order.push_back(tag); };
  rig.engine.call_at(2000 * kNanosecond, 1);
  rig.send(2, {0}, 100'000);
  rig.engine.call_at(2000 * kNanosecond, 3);
  rig.engine.run();
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 20, 3, 2}));
}

// ---------------------------------------------------------------- max-min fair

TEST(FlowTiming, InstantsAreRoundedToTheNearestPicosecond) {
  Rig rig(one_link(3, 0.0000014));
  rig.run({{1, {0}, 1}, {2, {0}, 2, kNoRateCap, 10}});
  // Latency 1.4 ps -> 1. 1 / 3 ns = 333.3 -> 333 ps; 2 / 3 ns = 666.7 -> 667 ps.
  EXPECT_EQ(rig.delivered(1), 333 + 1);
  EXPECT_EQ(rig.delivered(2), 10'000 + 667 + 1);
}

TEST(FlowTiming, SharedLink) {
  Rig rig(one_link(50, 1));
  rig.run({{1, {0}, 100'000}, {2, {0}, 50'000}});
  // 25 each: 2 ends after 50000 / 25 = 2000. 1 has 50000 left: 50000 / 50 = 1000 more.
  EXPECT_EQ(rig.all_delivered({2, 1}), ns({2000 + 1000, 2000 + 1000 + 1000}));
}

TEST(FlowTiming, ThirdsAddUp) {
  Rig rig(one_link(50));
  rig.run({{1, {0}, 50'000}, {2, {0}, 50'000}, {3, {0}, 50'000}});
  // 50 / 3 each: 50000 / (50 / 3) = 3000.
  EXPECT_EQ(rig.all_delivered({1, 2, 3}), ns({3000, 3000, 3000}));
}

TEST(FlowTiming, RingWithLongWays) {
  Network network;
  network.add_devices(4, Forwarding::yes);
  for (NodeId rank = 0; rank < 4; ++rank) network.add_link(rank, (rank + 1) % 4, {60, 1});
  Rig rig(network);
  // All to all: every link carries the messages of 1, 2 and 3 hops that cross it: 1 + 2 + 3 = 6.
  for (LinkId rank = 0; rank < 4; ++rank) {
    std::vector<LinkId> route;
    for (LinkId hops = 1; hops <= 3; ++hops) {
      route.push_back((rank + hops - 1) % 4);
      rig.send(hops, route, 10'000);
    }
  }
  rig.engine.run();
  // 60 / 6 = 10 for all: 1000, and 1000 per hop.
  ASSERT_EQ(rig.deliveries.size(), 12u);
  for (const Delivery& delivery : rig.deliveries) {
    EXPECT_EQ(delivery.delivered,
              (1000 + 1000 * static_cast<Picoseconds>(delivery.tag)) * kNanosecond);
  }
}

// ---------------------------------------------------------------- turns

TEST(FlowTiming, ALaterTurnWaitsForTheEarlierOne) {
  // 10 bytes per ns.
  for (const double latency_us : {0.0, 1.0}) {
    Rig rig(one_link(10, latency_us));
    rig.send_in_turn(1, {0}, 100'000, 0);
    rig.send_in_turn(2, {0}, 100'000, 1);
    rig.send_in_turn(3, {0}, 100'000, 1);
    // Shares with 1: 50000 of it are left. Both end at 5000 + 2 * 5000.
    rig.at(5000 * kNanosecond, [&] { rig.send_in_turn(4, {0}, 50'000, 0); });
    rig.engine.run();
    EXPECT_EQ(rig.all_sent({1, 4, 2, 3}), ns({15'000, 15'000, 35'000, 35'000}));
    EXPECT_EQ(rig.of(2).started, 0);
    EXPECT_EQ(rig.engine.usage(0).busy, 35'000 * kNanosecond);
    EXPECT_EQ(rig.engine.usage(0).bytes, 350'000u);
  }
}

TEST(FlowTiming, TheEarlierTurnStopsTheLaterOne) {
  Rig rig(one_link(10, 1));
  rig.send_in_turn(1, {0}, 100'000, 7);
  rig.at(4000 * kNanosecond, [&] { rig.send_in_turn(2, {0}, 30'000, 5); });
  rig.at(4500 * kNanosecond, [&] { rig.send_in_turn(3, {0}, 10'000, 6); });
  rig.engine.run();
  EXPECT_EQ(rig.all_sent({2, 3, 1}), ns({7000, 8000, 14'000}));
}

TEST(FlowTiming, SimultaneousTurnsAreInOrderWhateverComesFirst) {
  for (const bool backwards : {false, true}) {
    Rig rig(one_link(10, 1));
    for (std::uint32_t i = 0; i < 3; ++i) {
      const std::uint32_t turn = backwards ? 2 - i : i;
      rig.send_in_turn(turn, {0}, 10'000, turn);
    }
    rig.engine.run();
    EXPECT_EQ(rig.all_sent({0, 1, 2}), ns({1000, 2000, 3000}));
  }
}

TEST(FlowTiming, TurnsAreOfAFirstLinkAndAStream) {
  // Links 0 and 1 leave device 0; 2 leads on.
  Network network;
  network.add_devices(4, Forwarding::yes);
  network.add_link(0, 1, {10, 0});
  network.add_link(0, 2, {10, 0});
  network.add_link(1, 3, {10, 0});
  Rig rig(network, 2);
  rig.send_in_turn(1, {0, 2}, 100'000, 0);
  rig.send_in_turn(2, {0}, 10'000, 1);   // waits: it begins as 1 does
  rig.send_in_turn(3, {1}, 100'000, 1);  // leaves at once over another link
  rig.at(2000 * kNanosecond, [&] { rig.send_in_turn(4, {2}, 40'000, 1); });  // another sender's
  rig.engine.run();
  // 1 has 80000 left when 4 comes; 4 takes half of link 2 for 8000.
  EXPECT_EQ(rig.all_sent({4, 1, 2, 3}), ns({10'000, 14'000, 15'000, 10'000}));

  Rig streams(network, 2);
  streams.send_in_turn(1, {0}, 10'000, 0, 0);
  streams.send_in_turn(2, {0}, 10'000, 1, 1);
  streams.send_in_turn(3, {0}, 10'000, 2, 1);
  streams.engine.run();
  EXPECT_EQ(streams.all_sent({1, 2, 3}), ns({2000, 2000, 3000}));
}

TEST(FlowTiming, AJoinerElsewhereChangesNothing) {
  Network network;
  network.add_devices(4);
  network.add_link(0, 1, {50, 1});
  network.add_link(2, 3, {50, 1});
  Rig rig(network);
  rig.run({{1, {0}, 100'000}, {2, {1}, 100'000, kNoRateCap, 1000}});
  EXPECT_EQ(rig.all_delivered({1, 2}), ns({3000, 4000}));
}

TEST(FlowTiming, AnEndSpeedsOthersUp) {
  // Link 0 of 20, link 1 of 50. Message 1 on link 0, 2 on both, 3 on link 1.
  Rig rig(chain({{20, 0}, {50, 0}}));
  rig.run({{1, {0}, 100'000}, {2, {0, 1}, 200'000}, {3, {1}, 800'000}});
  // Link 0 fills first: 1 and 2 at 10, 3 gets 50 - 10 = 40. 1 ends at 100000 / 10 = 10000.
  // 2 has 100000 left and link 0 alone: 20; 3 gets 30. 2 ends 100000 / 20 = 5000 later.
  // 3 sent 40 * 10000 + 30 * 5000 = 550000; 250000 / 50 = 5000.
  EXPECT_EQ(rig.all_delivered({1, 2, 3}), ns({10'000, 15'000, 20'000}));
}

TEST(FlowTiming, BottlenecksAtThreeLevels) {
  // Links 0, 1, 2 of 12, 30, 100; message 1 over all, 2 and 3 over 1 and 2, 4 over 2.
  Rig rig(chain({{12, 0}, {30, 0}, {100, 0}}));
  rig.run({{0, {0}, 60'000},
           {1, {0, 1, 2}, 60'000},
           {2, {1, 2}, 120'000},
           {3, {1, 2}, 120'000},
           {4, {2}, 700'000}});
  // Link 0: 12 / 2 = 6 for 0 and 1. Link 1: (30 - 6) / 2 = 12 for 2 and 3. Link 2: 4 has 70.
  // All end at 60000 / 6 = 120000 / 12 = 700000 / 70 = 10000.
  EXPECT_EQ(rig.all_delivered({0, 1, 2, 3, 4}), ns({10'000, 10'000, 10'000, 10'000, 10'000}));
}

TEST(FlowTiming, ADomainThatIsCrossedTwiceIsUsedTwice) {
  Network network;
  network.add_devices(3, Forwarding::yes);
  const DomainId domain = network.add_domain(60);
  network.add_link(0, 1, {50, 0, domain});
  network.add_link(1, 2, {50, 0, domain});
  Rig rig(network);
  rig.run({{1, {0, 1}, 60'000}});
  // 60 / 2 = 30: 60000 / 30 = 2000.
  EXPECT_EQ(rig.all_delivered({1}), ns({2000}));
  const ResourceUsage usage = rig.engine.usage(network.resource_of(domain));
  EXPECT_EQ(usage.bytes, 120'000u);
  EXPECT_EQ(usage.busy, 2000 * kNanosecond);
  EXPECT_EQ(usage.utilisation, 1);
}

TEST(FlowTiming, AQuantumSolvesForAllOfItAtItsEnd) {
  Rig rig(chain({{10, 0}, {10, 0}}));
  rig.engine.set_quantum(100 * kNanosecond);
  rig.run({{1, {0, 1}, 10'000}, {2, {0, 1}, 4000, kNoRateCap, 50}});
  // Rates were solved for at 0: message 2 flows from 100 on, beside 1, which has 9000 bytes left. It
  // ends at 900, long after that, so 1 has the link again at once.
  EXPECT_EQ(rig.all_sent({2, 1}), ns({900, 1400}));
}

TEST(FlowTiming, EndsWithinAQuantumAreExact) {
  Rig rig(chain({{10, 0}, {10, 0}}));
  rig.engine.set_quantum(100 * kNanosecond);
  rig.run({{1, {0, 1}, 1000}, {2, {0, 1}, 1100}, {3, {0, 1}, 1150}, {4, {0, 1}, 5000}});
  // At 10 / 3 until 500, though 2 leaves its share free at 430, and 3 at 445.
  EXPECT_EQ(rig.all_sent({1, 2, 3}), ns({400, 430, 445}));
  // 4000 - 333.3 bytes at 10.
  EXPECT_EQ(rig.of(4).sent, 866'667);
}

TEST(FlowTiming, WhatStopsInAQuantumStopsAtOnce) {
  Network network;
  network.add_devices(4, Forwarding::yes);
  network.add_link(0, 1, {100, 0});
  network.add_link(3, 1, {100, 0});
  network.add_link(1, 2, {10, 0});
  Rig rig(network);
  rig.engine.set_quantum(1000 * kNanosecond);
  rig.send_in_turn(1, {0, 2}, 2000, 1);
  rig.send(2, {1, 2}, 2100);
  rig.at(100 * kNanosecond, [&] { rig.send_in_turn(3, {0, 2}, 1000, 0); });
  rig.engine.run();
  // 1 stops with 1500 bytes left, and was the one that all looked at; so 2, sent at 420, is missed
  // until rates are solved for at 1000, when 3 begins. That has the link alone from 1000 on, and 1
  // when 2000 is over.
  EXPECT_EQ(rig.of(2).sent, 1000 * kNanosecond);
  EXPECT_GE(rig.of(3).sent, 1100 * kNanosecond);
  EXPECT_GT(rig.of(1).sent, rig.of(3).sent + 150 * kNanosecond);
}

TEST(FlowTiming, RateCap) {
  Rig rig(one_link(50));
  rig.run({{1, {0}, 100'000, 10}, {2, {0}, 500'000}, {3, {0}, 80'000, 30}});
  // 1 at 10, 2 and 3 at 20 each, so that 3 never reaches its cap: 3 ends at 4000. 2 sent 80000, then
  // 40: until 10000 240000 more. 180000 left at 50: 3600.
  EXPECT_EQ(rig.all_delivered({3, 1, 2}), ns({4000, 10'000, 13'600}));
}

TEST(FlowTiming, AMessageThatEndsInTheInstantOfItsStart) {
  Rig rig(one_link(1e9));
  rig.then = [&](const Delivery& delivery) {
    if (delivery.tag < 5) rig.send(delivery.tag + 1, {0}, 1);
  };
  rig.send(1, {0}, 1);  // 1e-9 ns
  rig.engine.run();
  EXPECT_EQ(rig.deliveries.size(), 5u);
  EXPECT_EQ(rig.engine.now(), 0);
}

TEST(FlowTiming, SimultaneousDeliveriesComeInTheOrderOfStarts) {
  // Links of the same latency in one component and in others, started in mixed order.
  Network network;
  network.add_devices(2);
  for (int i = 0; i < 6; ++i) network.add_link(0, 1, {50, 1});
  Rig rig(network);
  const std::vector<LinkId> order = {3, 0, 5, 3, 1, 0, 4, 2, 5};
  for (std::uint64_t tag = 0; tag < order.size(); ++tag) {
    const bool shared = std::count(order.begin(), order.end(), order[tag]) == 2;
    rig.send(tag, {order[tag]}, shared ? 50'000 : 100'000);
  }
  rig.engine.run();
  ASSERT_EQ(rig.deliveries.size(), order.size());
  for (std::uint64_t tag = 0; tag < order.size(); ++tag) {
    EXPECT_EQ(rig.deliveries[tag].tag, tag);
    EXPECT_EQ(rig.deliveries[tag].delivered, 3000 * kNanosecond);
  }
}

TEST(FlowTiming, ALinkIsFreeWhileItsMessageIsOnItsWay) {
  Rig rig(one_link(50, 10));
  rig.send(1, {0}, 100'000);  // has left at 2000
  rig.at(5'000 * kNanosecond, [&] {
    EXPECT_EQ(rig.engine.usage(0).bytes, 100'000u);
    EXPECT_EQ(rig.engine.usage(0).busy, 2'000 * kNanosecond);
    rig.send(2, {0}, 100'000);
  });
  rig.engine.run();
  EXPECT_EQ(rig.all_delivered({1, 2}), ns({12'000, 17'000}));
  EXPECT_EQ(rig.engine.usage(0).busy, 4'000 * kNanosecond);
}

TEST(FlowTiming, SeveralLeaveBeforeTheNextComes) {
  Rig rig(one_link(50, 10));
  rig.send(1, {0}, 50'000);   // at 25 until 2000
  rig.send(2, {0}, 150'000);  // 100'000 left then: until 4000
  rig.at(3'000 * kNanosecond, [&] {
    EXPECT_EQ(rig.engine.usage(0).bytes, 50'000u);
    EXPECT_EQ(rig.engine.usage(0).busy, 3'000 * kNanosecond);
  });
  rig.at(5'000 * kNanosecond, [&] { rig.send(3, {0}, 100'000); });
  rig.engine.run();
  EXPECT_EQ(rig.all_delivered({1, 2, 3}), ns({12'000, 14'000, 17'000}));
  EXPECT_EQ(rig.all_sent({2}), ns({4000}));
  EXPECT_EQ(rig.engine.usage(0).busy, 6'000 * kNanosecond);
}

TEST(FlowTiming, ACrowdOnOneLink) {
  // The i-th of 20 is 1000 i bytes: when i - 1 have left, the others need 20 ns (21 - i) for the
  // next 1000 each.
  Rig rig(one_link(50, 1));
  for (std::uint64_t i = 1; i <= 20; ++i) rig.send(i, {0}, 1000 * i);
  rig.engine.run();
  Picoseconds sent = 0;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    sent += 20 * static_cast<Picoseconds>(21 - i) * kNanosecond;
    EXPECT_EQ(rig.of(i).sent, sent) << i;
    EXPECT_EQ(rig.delivered(i), sent + 1'000 * kNanosecond) << i;
  }
}

TEST(FlowTiming, ComputationBetweenMessages) {
  Rig rig(one_link(50, 1));
  rig.then = [&](const Delivery& delivery) {
    if (delivery.tag == 1) rig.engine.call_at(rig.engine.now() + 700 * kNanosecond, 7);
  };
  rig.at_timer = [&](std::uint64_t) { rig.send(2, {0}, 100'000); };
  rig.send(1, {0}, 100'000);
  rig.engine.run();
  EXPECT_EQ(rig.timers, std::vector<std::uint64_t>{7});
  EXPECT_EQ(rig.of(2).started, 3700 * kNanosecond);
  EXPECT_EQ(rig.of(2).delivered, 6700 * kNanosecond);
}

TEST(FlowTiming, TimersRingInTheOrderInWhichTheyWereSet) {
  Rig rig(one_link(50, 1));
  for (const auto& [ns, tag] : {std::pair{5, 1}, {5, 2}, {7, 3}, {7, 4}, {5, 5}, {5, 6}, {7, 7}}) {
    rig.engine.call_at(ns * kNanosecond, static_cast<std::uint64_t>(tag));
  }
  rig.at_timer = [&](std::uint64_t tag) {
    if (tag == 2) rig.engine.call_at(rig.engine.now(), 8);  // after all others of now
  };
  rig.engine.run();
  EXPECT_EQ(rig.timers, (std::vector<std::uint64_t>{1, 2, 5, 6, 8, 3, 4, 7}));
}

TEST(FlowTiming, ATimerMayBeSetAgainWhenAllOfNowHaveRung) {
  Rig rig(one_link(50, 1));
  rig.then = [&](const Delivery&) {
    rig.engine.call_at(rig.engine.now(), 2);  // deliveries come after timers
  };
  rig.send(1, {0}, 100'000);
  rig.engine.call_at(3000 * kNanosecond, 1);
  rig.engine.run();
  EXPECT_EQ(rig.timers, (std::vector<std::uint64_t>{1, 2}));
}

TEST(FlowTiming, TimersThatAreCancelledDoNotRing) {
  for (const int cancelled : {0, 1, 2, 3}) {
    SCOPED_TRACE(cancelled);
    Rig rig(one_link(50, 1));
    std::vector<std::uint64_t> expected;
    std::vector<TimerId> timers;
    for (int i = 0; i < 4; ++i) {
      // The last one is alone in its instant.
      timers.push_back(
          rig.engine.call_at((i < 3 ? 5 : 6) * kNanosecond, static_cast<std::uint64_t>(i)));
      if (i != cancelled) expected.push_back(static_cast<std::uint64_t>(i));
    }
    rig.engine.cancel(timers[static_cast<std::size_t>(cancelled)]);
    rig.engine.call_at(6 * kNanosecond, 9);
    expected.push_back(9);
    rig.engine.run();
    EXPECT_EQ(rig.timers, expected);
  }
}

TEST(FlowTiming, RunsUpToALimitAndOn) {
  Rig rig(one_link(50, 1));
  rig.send(1, {0}, 100'000);
  rig.engine.run(1999 * kNanosecond);
  EXPECT_EQ(rig.deliveries.size(), 0u);
  EXPECT_EQ(rig.engine.now(), 0);  // time of the last event
  rig.engine.run(3000 * kNanosecond);
  EXPECT_EQ(rig.delivered(1), 3000 * kNanosecond);
  rig.send(2, {0}, 50'000);
  rig.engine.run();
  EXPECT_EQ(rig.delivered(2), 5000 * kNanosecond);
}

/// No test says that more bandwidth never makes anything later: fair sharing does not promise it.
TEST(FlowTiming, AFasterLinkMayMakeAllOfItLater) {
  const auto last_delivery = [](double first_link_gb_per_s) {
    // Message 1 over links 0 and 1, message 2 over 1 and 2.
    Network network;
    network.add_devices(4, Forwarding::yes);
    network.add_link(0, 1, {first_link_gb_per_s, 0});
    network.add_link(1, 2, {6, 0});
    network.add_link(2, 3, {5, 0});
    Rig rig(network);
    rig.run({{1, {0, 1}, 9000}, {2, {1, 2}, 100'000}});
    return std::max(rig.delivered(1), rig.delivered(2));
  };
  // 1 at 1 until 9000; 2 at 5 all the time: 100000 / 5 = 20000.
  EXPECT_EQ(last_delivery(1), 20'000 * kNanosecond);
  // 3 each until 9000 / 3 = 3000. 2 has 91000 left, and can't go faster than 5: 18200.
  EXPECT_EQ(last_delivery(10), 21'200 * kNanosecond);
}

/// A message shares with 10,000 others, one after the other; every one ends at a rounded instant.
TEST(FlowTiming, ErrorsStayBelowHalfAPicosecondPerInstant) {
  constexpr int kJoiners = 10'000;
  Rig rig(one_link(30));
  rig.send(0, {0}, 25'000ull * kJoiners);
  for (int i = 0; i < kJoiners; ++i) {
    rig.at(i * 1000 * kNanosecond, [&rig] { rig.send(1, {0}, 5000); });
  }
  rig.engine.run();
  // The link is always full: 30000 in every 1000, of which 5000 are the joiner's.
  const Picoseconds error = rig.delivered(0) - kJoiners * 1000 * kNanosecond;
  EXPECT_LE(std::abs(error), kJoiners / 2);
}

}  // namespace
}  // namespace arlab

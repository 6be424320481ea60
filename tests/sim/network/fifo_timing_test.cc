// The same cases when every link serves one message at a time: by hand, to the nanosecond.
//
// 1 GB/s is one byte per nanosecond, so bytes / (GB/s) are nanoseconds.

#include <gtest/gtest.h>

#include "sim/network/fifo_engine.h"
#include "tests/sim/network/recorder.h"

namespace arlab {
namespace {

using FifoRig = Rig<FifoEngine>;

TEST(FifoTiming, SingleLink) {
  const Network network = one_link(50, 1);
  FifoRig rig(network);
  rig.send(1, {0}, 100'000);
  rig.engine.run();
  EXPECT_EQ(rig.of(1).sent, 2000 * kNanosecond);
  EXPECT_EQ(rig.of(1).delivered, 3000 * kNanosecond);
}

TEST(FifoTiming, SharedLinkServesInOrder) {
  const Network network = one_link(50, 1);
  FifoRig rig(network);
  rig.send(1, {0}, 100'000);
  rig.send(2, {0}, 50'000);
  rig.send(3, {0}, 0);
  rig.engine.run();
  // 1 from 0 to 2000, 2 from 2000 to 3000; the empty one waits for both.
  EXPECT_EQ(rig.delivered(1), 3000 * kNanosecond);
  EXPECT_EQ(rig.of(2).sent, 3000 * kNanosecond);
  EXPECT_EQ(rig.delivered(2), 4000 * kNanosecond);
  EXPECT_EQ(rig.delivered(3), 4000 * kNanosecond);
  EXPECT_EQ(rig.engine.usage(0).bytes, 150'000u);
  EXPECT_EQ(rig.engine.usage(0).busy, 3000 * kNanosecond);
  EXPECT_EQ(rig.engine.usage(0).utilisation, 0.75);
}

TEST(FifoTiming, TwoHopsAreCutThrough) {
  Network network;
  network.add_devices(3, Forwarding::yes);
  network.add_link(0, 1, {50, 1});
  network.add_link(1, 2, {25, 0.5});
  FifoRig rig(network);
  rig.send(1, {0, 1}, 100'000);
  rig.engine.run();
  // Head at link 1 at 1000; served until 1000 + 4000; 500 on the way. As long as when flowing.
  EXPECT_EQ(rig.of(1).sent, 2000 * kNanosecond);
  EXPECT_EQ(rig.of(1).delivered, 5500 * kNanosecond);
}

TEST(FifoTiming, AFastLinkWaitsForTheTail) {
  Network network;
  network.add_devices(3, Forwarding::yes);
  network.add_link(0, 1, {25, 1});
  network.add_link(1, 2, {50, 0.5});
  FifoRig rig(network);
  rig.send(1, {0, 1}, 100'000);
  rig.at(1500 * kNanosecond, [&] { rig.send(2, {1}, 50'000); });
  rig.engine.run();
  // Link 0 until 4000, the tail at link 1 at 5000: link 1 is taken from 1000 to 5000.
  EXPECT_EQ(rig.delivered(1), 5500 * kNanosecond);
  EXPECT_EQ(rig.delivered(2), 6500 * kNanosecond);
  EXPECT_EQ(rig.engine.usage(1).busy, 5000 * kNanosecond);
}

TEST(FifoTiming, Incast) {
  Network network;
  network.add_devices(5);
  const NodeId hub = network.add_switches(1);
  for (NodeId sender = 1; sender <= 4; ++sender) network.add_link(sender, hub, {50, 1});
  const LinkId port = network.add_link(hub, 0, {40, 1});
  FifoRig rig(network);
  for (LinkId sender = 0; sender < 4; ++sender) {
    rig.send(sender, {sender, port}, 100'000 * (sender + 1));
  }
  rig.engine.run();
  // All heads are at the port at 1000. It serves for 2500, 5000, 7500, 10000; 1000 on the way.
  EXPECT_EQ(rig.delivered(0), (1000 + 2500 + 1000) * kNanosecond);
  EXPECT_EQ(rig.delivered(1), (1000 + 7500 + 1000) * kNanosecond);
  EXPECT_EQ(rig.delivered(2), (1000 + 15'000 + 1000) * kNanosecond);
  EXPECT_EQ(rig.delivered(3), (1000 + 25'000 + 1000) * kNanosecond);
}

TEST(FifoTiming, ArrivalAtALinkIsWhatCounts) {
  // 1 is sent first but arrives later at the shared link than 2.
  Network network;
  network.add_devices(4, Forwarding::yes);
  network.add_link(0, 2, {50, 3});
  network.add_link(1, 2, {50, 1});
  network.add_link(2, 3, {50, 0});
  FifoRig rig(network);
  rig.send(1, {0, 2}, 100'000);
  rig.at(1000 * kNanosecond, [&] { rig.send(2, {1, 2}, 100'000); });
  rig.engine.run();
  // Head of 2 at link 2 at 2000: until 4000. Head of 1 at 3000: from 4000 to 6000.
  EXPECT_EQ(rig.delivered(2), 4000 * kNanosecond);
  EXPECT_EQ(rig.delivered(1), 6000 * kNanosecond);
}

TEST(FifoTiming, RingOfDependentSteps) {
  Network network;
  network.add_devices(4, Forwarding::yes);
  for (NodeId rank = 0; rank < 4; ++rank) network.add_link(rank, (rank + 1) % 4, {50, 1});
  FifoRig rig(network);
  rig.then = [&](const Delivery& delivery) {
    const std::uint64_t step = delivery.tag / 4 + 1;
    const auto rank = static_cast<LinkId>((delivery.tag + 1) % 4);
    if (step < 3) rig.send(step * 4 + rank, {rank}, 100'000);
  };
  for (LinkId rank = 0; rank < 4; ++rank) rig.send(rank, {rank}, 100'000);
  rig.engine.run();
  ASSERT_EQ(rig.deliveries.size(), 12u);
  for (const Delivery& delivery : rig.deliveries) {
    EXPECT_EQ(delivery.delivered,
              (static_cast<Picoseconds>(delivery.tag / 4) + 1) * 3000 * kNanosecond);
  }
}

TEST(FifoTiming, FullMesh) {
  Network network;
  network.add_devices(8);
  network.add_full_mesh(0, 8, {48, 2});
  FifoRig rig(network);
  for (LinkId link = 0; link < network.links(); ++link) rig.send(link, {link}, 96'000);
  rig.engine.run();
  ASSERT_EQ(rig.deliveries.size(), 56u);
  for (LinkId link = 0; link < network.links(); ++link) {
    EXPECT_EQ(rig.deliveries[link].tag, link);
    EXPECT_EQ(rig.deliveries[link].delivered, 4000 * kNanosecond);
  }
}

TEST(FifoTiming, NumaBridge) {
  Network network;
  network.add_devices(4);
  network.add_switches(2);
  for (NodeId device = 0; device < 4; ++device) {
    network.add_duplex(device, device < 2 ? 4 : 5, {50, 0.5});
  }
  const LinkId bridge = network.add_duplex(4, 5, {25, 2});
  FifoRig rig(network);
  rig.send(1, {0, bridge, 5}, 100'000);
  rig.send(2, {2, bridge, 7}, 100'000);
  rig.send(3, {0, 3}, 337'500);
  rig.engine.run();
  // 1: port 0 until 2000, bridge 500 to 4500, port from 2500 (its head) to 6500 (its tail), + 500.
  EXPECT_EQ(rig.delivered(1), 7000 * kNanosecond);
  // 2: bridge 4500 to 8500, tail 10500, + 500.
  EXPECT_EQ(rig.delivered(2), 11'000 * kNanosecond);
  // 3: behind 1 at port 0: 2000 to 8750; 500 and 500 on the way.
  EXPECT_EQ(rig.delivered(3), 9750 * kNanosecond);
}

TEST(FifoTiming, LateJoinerWaits) {
  const Network network = one_link(50, 1);
  FifoRig rig(network);
  rig.send(1, {0}, 100'000);
  rig.at(1000 * kNanosecond, [&] { rig.send(2, {0}, 25'000); });
  rig.engine.run();
  EXPECT_EQ(rig.delivered(1), 3000 * kNanosecond);
  EXPECT_EQ(rig.delivered(2), 3500 * kNanosecond);
}

TEST(FifoTiming, SharingDomainServesOneAtATime) {
  Network network;
  network.add_devices(2);
  const DomainId domain = network.add_domain(60);
  network.add_link(0, 1, {50, 1, domain});
  network.add_link(0, 1, {50, 1, domain});
  FifoRig rig(network);
  rig.send(0, {0}, 60'000);
  rig.send(1, {1}, 110'000);
  rig.engine.run();
  // 0: domain until 1000, link until 1200. 1: domain from 1000, link from 1000 to 3200.
  EXPECT_EQ(rig.of(0).sent, 1200 * kNanosecond);
  EXPECT_EQ(rig.delivered(0), 2200 * kNanosecond);
  EXPECT_EQ(rig.delivered(1), 4200 * kNanosecond);
  EXPECT_EQ(rig.engine.usage(network.resource_of(domain)).bytes, 170'000u);
}

TEST(FifoTiming, RateCapKeepsTheLinkLonger) {
  const Network network = one_link(50);
  FifoRig rig(network);
  rig.send(1, {0}, 100'000, 10);
  rig.send(2, {0}, 50'000, 80);
  rig.engine.run();
  EXPECT_EQ(rig.delivered(1), 10'000 * kNanosecond);
  EXPECT_EQ(rig.delivered(2), 11'000 * kNanosecond);
}

TEST(FifoTiming, EmptyMessageTakesTheLatencyOnly) {
  Network network;
  network.add_devices(3, Forwarding::yes);
  network.add_link(0, 1, {50, 1});
  network.add_link(1, 2, {25, 0.5});
  FifoRig rig(network);
  rig.send(1, {0, 1}, 0);
  rig.engine.run();
  EXPECT_EQ(rig.delivered(1), 1500 * kNanosecond);
}

TEST(FifoTiming, AQueueDoesNotDrift) {
  const Network network = one_link(3);
  FifoRig rig(network);
  for (std::uint64_t tag = 0; tag < 30'000; ++tag) rig.send(tag, {0}, 1);
  rig.engine.run();
  // n / 3 ns each, rounded once: not n times 333 ps.
  EXPECT_EQ(rig.delivered(0), 333);
  EXPECT_EQ(rig.delivered(1), 667);
  EXPECT_EQ(rig.delivered(2), 1000);
  EXPECT_EQ(rig.delivered(29'999), 10'000 * kNanosecond);
}

/// What happens at one instant happens in the order in which it was started.
TEST(FifoTiming, ADeliveryComesBetweenTwoTimers) {
  const Network network = one_link(50);
  FifoRig rig(network);
  std::vector<std::uint64_t> order;
  rig.then = [&](const Delivery& delivery) { order.push_back(delivery.tag); };
  rig.at_timer = [&](std::uint64_t tag) { order.push_back(tag); };
  rig.engine.call_at(2000 * kNanosecond, 1);
  rig.send(2, {0}, 100'000);
  rig.engine.call_at(2000 * kNanosecond, 3);
  rig.engine.run();
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST(FifoTiming, UsageLeavesOutWhatIsStillToBeServed) {
  const Network network = one_link(50, 1);
  FifoRig rig(network);
  rig.send(1, {0}, 100'000);
  rig.send(2, {0}, 100'000);
  rig.at(1500 * kNanosecond, [&] { EXPECT_EQ(rig.engine.usage(0).busy, 1500 * kNanosecond); });
  rig.engine.run();
  EXPECT_EQ(rig.timers.size(), 1u);
  EXPECT_EQ(rig.engine.usage(0).busy, 4000 * kNanosecond);
}

}  // namespace
}  // namespace arlab

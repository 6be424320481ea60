// NCCL's choices, its collectives worked out by hand, and messages that a switch spreads or adds.

#include <gtest/gtest.h>

#include <random>

#include "reference/codecs/registry.h"
#include "reference/collectives/schedule_builder.h"
#include "sim/device/library_choice.h"
#include "sim/library/library_plan.h"
#include "tests/refusal.h"
#include "tests/sim/machine.h"

namespace arlab {
namespace {

constexpr std::uint64_t kKi = 1 << 10;
constexpr std::uint64_t kMi = 1 << 20;

/// Ports of 10000 bytes per us and 1 us. Copies take no time.
Topology nccl_machine(Rank ranks) {
  Topology t = machine(TopologyKind::switched, ranks);
  t.in_switch = {true, true, assumed(0.5)};
  t.device.library = nccl(true);
  return t;
}

SimulationResult run(const Topology& t, std::string_view algorithm, std::uint64_t bytes,
                     const SimulateOptions& options = {.library = true}, const char* codec = "fp16",
                     Rank ranks = 0) {
  return simulate({find_simulated_algorithm(algorithm),
                   {.world_size = ranks > 0 ? ranks : t.ranks.value, .elements = bytes / 2},
                   *find_codec(codec),
                   DType::fp16,
                   t,
                   options});
}

/// Returns the drift in us when a rank sends so many bytes: 4 for 10^9.
double drift(double bytes) { return 4 * std::sqrt(bytes / 1e9); }

TEST(Nccl, ChoosesAsItsSourceSays) {
  using enum LibraryProtocol;
  const auto chosen = [](const char* machine, Collective collective, std::uint64_t bytes,
                         Rank ranks = 0) {
    const Topology t = find_topology(machine);
    return library_choice(t.device, collective, ranks > 0 ? ranks : t.ranks.value, bytes);
  };
  using enum Collective;
  const LibraryChoice nvls{LibraryAlgorithm::nvls, simple};
  EXPECT_EQ(chosen("a100-2", all_reduce, 512 * kKi).protocol, low_latency);
  EXPECT_EQ(chosen("a100-2", all_reduce, kMi).protocol, simple);
  EXPECT_EQ(chosen("a100-4", all_reduce, 2 * kMi).protocol, ll128);
  EXPECT_EQ(chosen("a100-4", all_reduce, 8 * kMi).protocol, simple);
  EXPECT_EQ(chosen("a100-4", all_gather, kMi).protocol, low_latency);
  EXPECT_EQ(chosen("a100-4", all_gather, 2 * kMi).protocol, simple);
  EXPECT_EQ(chosen("l40s-2", all_reduce, 256 * kKi).protocol, low_latency);
  EXPECT_EQ(chosen("l40s-2", all_reduce, 512 * kKi).protocol, simple);
  // As its source says for Hopper: NVLS from 5 ranks up, once it is worth while.
  EXPECT_EQ(chosen("h100-8", all_reduce, kMi).protocol, low_latency);
  EXPECT_EQ(chosen("h100-8", all_reduce, 2 * kMi), nvls);
  EXPECT_EQ(chosen("h100-8", all_reduce, 512 * kMi, 5), nvls);
  EXPECT_EQ(chosen("h100-8", all_reduce, 512 * kMi, 4).algorithm, LibraryAlgorithm::ring);
  EXPECT_EQ(chosen("h100-8", all_gather, 512 * kMi).algorithm, LibraryAlgorithm::ring);
  EXPECT_EQ(chosen("h100-8", all_to_all, 256 * kKi).protocol, low_latency);
  EXPECT_EQ(chosen("h100-8", all_to_all, 512 * kKi).protocol, simple);
  EXPECT_EQ(&library_all_reduce(find_topology("h100-8"), 8, 2 * kMi), &nvls_algorithm());
  EXPECT_EQ(library_all_reduce(find_topology("h100-4"), 4, 512 * kMi).name, "ring");
}

TEST(Nccl, TakesTheTimesWorkedOutByHand) {
  const Topology t = nccl_machine(4);
  const double close = 1e-5;
  // Simple: 6 or 3 steps of 2 MB, 200 us each, after a hop of 0.5 us and a latency of 1.
  EXPECT_NEAR(run(t, "ring", 8000000).latency_us, 20 + 6 * 201.5 + drift(12e6), close);
  EXPECT_NEAR(run(t, "all_gather", 8000000).latency_us, 20 + 3 * 201.5 + drift(6e6), close);
  EXPECT_NEAR(run(t, "reduce_scatter", 8000000).latency_us, 20 + 3 * 201.5 + drift(6e6), close);
  EXPECT_NEAR(run(t, "all_to_all", 8000000).latency_us, 6 + 600 + 1 + 2 * drift(6e6), close);
  // LL: 4 channels of 1 GB/s; LL128: four fifths of the port.
  EXPECT_NEAR(run(t, "ring", 65536).latency_us, 3 + 6 * (1 + 16384e-3 / 4), close);
  EXPECT_NEAR(run(t, "ring", 2000000).latency_us, 10 + 6 * (1 + 500000e-3 / 8), close);
  // LL exchanges with three peers, which share half of the port; with one, 2 GB/s.
  EXPECT_NEAR(run(t, "all_to_all", 65536).latency_us, 2 + 1 + 3 * 16384e-3 / 5, close);
  EXPECT_NEAR(run(nccl_machine(2), "all_to_all", 4096).latency_us, 2 + 1 + 2048e-3 / 2, close);

  // Local memory: 2 passes over the share of 2 MB, in an all-gather 4, in a reduce-scatter 3.
  Topology slow = t;
  slow.device.hbm_gb_per_s = assumed(100);
  for (const auto& [algorithm, passes] :
       {std::pair("ring", 2), {"all_gather", 4}, {"reduce_scatter", 3}, {"all_to_all", 2}}) {
    EXPECT_NEAR(run(slow, algorithm, 8000000).latency_us - run(t, algorithm, 8000000).latency_us,
                passes * 20, close)
        << algorithm;
  }
}

/// A host's floor is the least fixed time of every protocol; without peer to peer 0.59 of the bandwidth are left.
TEST(Nccl, OverPcieTheHostHasAPart) {
  const double close = 1e-5;
  Topology t = nccl_machine(4);
  t.device.library->host_floor_us = assumed(15);
  EXPECT_NEAR(run(t, "ring", 65536).latency_us, 15 + 6 * (1 + 16384e-3 / 4), close);
  EXPECT_NEAR(run(t, "all_to_all", 65536).latency_us, 15 + 1 + 3 * 16384e-3 / 5, close);
  EXPECT_NEAR(run(t, "ring", 8000000).latency_us, 20 + 6 * 201.5 + drift(12e6), close);
  t.device.library->host_floor_us = assumed(30);
  EXPECT_NEAR(run(t, "ring", 8000000).latency_us, 30 + 6 * 201.5 + drift(12e6), close);
  t.device.library->peer_to_peer = false;
  EXPECT_NEAR(run(t, "ring", 8000000).latency_us, 30 + 6 * (200 / 0.59 + 1.5) + drift(12e6), 1e-3);
  const Topology shipped = find_topology("rtx-5090-no-p2p-4");
  EXPECT_FALSE(shipped.device.library->peer_to_peer);
  EXPECT_EQ(parse_topology(to_toml(shipped), "again"), shipped);
}

/// Four RTX 5090 without peer to peer, times of a published log; with it, they would take little more than half as long.
TEST(Nccl, WithoutPeerToPeerIsWithinAQuarterOfItsTimes) {
  const Topology t = find_topology("rtx-5090-no-p2p-4");
  const std::pair<std::uint64_t, double> times[] = {{4096, 27.21},     {65536, 32.58},
                                                    {kMi, 93.45},      {4 * kMi, 261.4},
                                                    {16 * kMi, 935.7}, {128 * kMi, 7384.4}};
  for (const auto& [bytes, us] : times) {
    EXPECT_NEAR(run(t, "ring", bytes).latency_us / us, 1, 0.25) << bytes;
  }
  EXPECT_LT(run(find_topology("rtx-5090-4"), "ring", 128 * kMi).latency_us, 0.8 * 7384.4);
}

TEST(Nccl, IsNeverSlowerForLess) {
  const Topology t = nccl_machine(2);
  // By LL 64 KiB would take 2 + 1 + 32768e-3 / 2 = 19.4 us. The least that goes by Simple, 32770 bytes to the
  // peer, takes 10.3.
  const double more_us = 6 + 32770e-4 + 1 + 2 * drift(32770);
  EXPECT_NEAR(run(t, "all_to_all", 65540).latency_us, more_us, 1e-5);
  const SimulationResult r = run(t, "all_to_all", 65536);
  EXPECT_NEAR(r.latency_us, more_us, 1e-5);
  // All else is its own.
  EXPECT_EQ(describe(*r.library), "sends and receives, LL");
  EXPECT_EQ(r.wire_bytes, WideCount{65536});
  EXPECT_NEAR(r.algbw_gb_per_s, 65.536 / more_us, 1e-5);
  EXPECT_NEAR(r.busbw_gb_per_s, 32.768 / more_us, 1e-5);
  // The start took 2 of the 19.4 us. LL leaves half of a port: 32768 bytes are 6.6 us.
  EXPECT_NEAR(r.breakdown.launch_us, 2 * more_us / 19.384, 1e-5);
  EXPECT_NEAR(r.links.front().utilisation, 32768e-3 / 5 / more_us, 1e-5);
}

TEST(Nccl, NvlsAddsOnePartWhileItSpreadsTheOther) {
  const Topology t = nccl_machine(4);
  const SimulationResult r = run(t, "nvls", 8000000);
  // Each share has a chunk of 1 MiB, and the 951424 bytes that are left. To be added they count twice, at an efficiency of a
  // half, and leave every port four times: 2500 bytes/us. Then what is left, of which 2500 bytes have come before the chunk is
  // there, and the sum of the chunk share the port as five, 2000 bytes/us each; what is spread last goes into every port
  // thrice.
  const double chunk = 1048576;
  const double left = 951424;
  const double spread_us = chunk / 2000;
  const double added_us = (2 * left - 2500 - 2000 * spread_us) / 2500;
  EXPECT_NEAR(r.latency_us,
              7 + 2 * chunk / 2500 + 1 + spread_us + added_us + 1 + 3 * left / 1e4 + 1 + drift(4e6),
              1e-5);
  // Out of every port: what four ranks add up, and one share; into it: one share and three.
  for (const LinkClassUse& use : r.links) {
    EXPECT_EQ(use.bytes, WideCount{use.link_class == "port_out" ? 40000000u : 32000000u})
        << use.link_class;
  }
  EXPECT_EQ(r.wire_bytes, WideCount{16000000});  // each share once added, once spread
}

TEST(Nccl, PartsOfTheTimeAddUpAndOneRankStandsForAll) {
  std::mt19937 random(7);
  class : public SimulationTrace {
  } trace;
  for (int i = 0; i < 60; ++i) {
    const Rank ranks = 2 + static_cast<Rank>(random() % 9);
    Topology t = nccl_machine(ranks);
    t.device.hbm_gb_per_s = assumed(50);
    const std::uint64_t bytes = 2 * ranks * (1 + random() % (std::uint64_t{1} << (8 + i % 14)));
    for (const char* algorithm : {"ring", "nvls", "all_gather", "reduce_scatter", "all_to_all"}) {
      SCOPED_TRACE(fmt::format("{} of {} bytes on {} ranks", algorithm, bytes, ranks));
      const SimulationResult r = run(t, algorithm, bytes);
      const LatencyBreakdown& b = r.breakdown;
      EXPECT_NEAR(b.launch_us + b.synchronisation_us + b.wire_us + b.contention_us + b.codec_us +
                      b.release_us,
                  r.latency_us, 1e-6 * r.latency_us);
      const SimulationResult all = run(t, algorithm, bytes, {.library = true, .trace = &trace});
      EXPECT_EQ(r.simulated_ranks, 1u);
      EXPECT_EQ(all.simulated_ranks, ranks);
      EXPECT_EQ(all.latency, r.latency);
      EXPECT_EQ(all.wire_bytes, r.wire_bytes);
      ASSERT_EQ(all.links.size(), r.links.size());
      for (std::size_t l = 0; l < r.links.size(); ++l)
        EXPECT_EQ(all.links[l].bytes, r.links[l].bytes);
    }
  }
}

TEST(Nccl, WaitsForADeviceThatIsSlower) {
  const Topology t = nccl_machine(4);
  Topology slow = t;
  slow.device_overrides.push_back({{2}, t.device});
  slow.device_overrides[0].device.library->low_latency_us = assumed(13);
  for (const char* algorithm : {"ring", "all_gather", "reduce_scatter"}) {
    const SimulationResult r = run(slow, algorithm, 4 * kKi);
    EXPECT_EQ(describe(*r.library), "ring, LL");
    EXPECT_NEAR(r.latency_us - run(t, algorithm, 4 * kKi).latency_us, 10, 1e-9) << algorithm;
  }
}

/// Out of and into all ports.
std::map<std::string, WideCount> port_bytes(const SimulationResult& r) {
  std::map<std::string, WideCount> bytes;
  for (const LinkClassUse& use : r.links) bytes[use.link_class] = use.bytes;
  return bytes;
}

TEST(Multicast, CountsWhatGoesToAllOnceAndIsNeverSlower) {
  const Topology t = nccl_machine(8);
  struct Case {
    const char* algorithm;
    std::uint64_t out;  ///< part of each rank's 1 MiB, in eighths, over all ranks
    std::uint64_t multicast_out;
  };
  for (const Case& c : {Case{"one_shot", 448, 64},
                        {"two_shot", 112, 64},
                        {"all_gather", 56, 8},
                        {"reduce_scatter", 56, 56},
                        {"ring", 112, 112}}) {
    SCOPED_TRACE(c.algorithm);
    const SimulationResult unicast = run(t, c.algorithm, kMi, {});
    const SimulationResult multicast = run(t, c.algorithm, kMi, {.multicast = true});
    EXPECT_EQ(port_bytes(unicast)["port_out"], WideCount{c.out * kMi / 8});
    EXPECT_EQ(port_bytes(multicast)["port_out"], WideCount{c.multicast_out * kMi / 8});
    EXPECT_EQ(port_bytes(multicast)["port_in"], port_bytes(unicast)["port_in"]);
    EXPECT_LE(multicast.latency, unicast.latency);
  }
  // One that has to send to seven is no longer the bound: 8 MB in 800 us.
  ScheduleBuilder s("from_rank_0", {.world_size = 8, .elements = 4000000});
  const ChunkId tensor = s.add_chunk({0, 4000000});
  s.at_step(0);
  const Value encoded = s.encode(s.input(0, tensor));
  for (Rank r = 0; r < 8; ++r) s.output(s.send(encoded, r));
  const Schedule schedule = s.finish();
  const auto wire_us = [&](bool multicast) {
    return simulate({schedule, *find_codec("fp16"), DType::fp16, t, {.multicast = multicast}})
        .breakdown.wire_us;
  };
  EXPECT_NEAR(wire_us(true), 800, 1e-3);
  EXPECT_NEAR(wire_us(false), 5600, 1e-3);
}

TEST(Multicast, IsTheSameForOneRankAndForAll) {
  std::mt19937 random(11);
  class : public SimulationTrace {
  } trace;
  for (int i = 0; i < 40; ++i) {
    const Rank ranks = 2 + static_cast<Rank>(random() % 9);
    const Topology t = nccl_machine(ranks);
    const std::uint64_t bytes = std::uint64_t{4096} * ranks * (1 + random() % 64);
    for (const char* algorithm : {"one_shot", "two_shot", "all_gather"}) {
      for (const char* codec : {"fp16", "qr-q4", "int8-g32"}) {
        SCOPED_TRACE(fmt::format("{} {} of {} bytes on {} ranks", algorithm, codec, bytes, ranks));
        const SimulationResult one = run(t, algorithm, bytes, {.multicast = true}, codec);
        const SimulationResult all =
            run(t, algorithm, bytes, {.multicast = true, .trace = &trace}, codec);
        EXPECT_EQ(all.latency, one.latency);
        EXPECT_EQ(port_bytes(all), port_bytes(one));
        EXPECT_LE(one.latency, run(t, algorithm, bytes, {}, codec).latency);
      }
    }
  }
}

TEST(Nccl, RefusesWhatItCannotDo) {
  const Topology t = nccl_machine(4);
  expect_contains(message_of([&] { run(t, "two_shot", kMi); }),
                  "allowed with --library are ring, nvls, all_gather");
  expect_contains(message_of([&] { run(t, "nvls", kMi, {}, "qr-q4"); }),
                  "allowed codecs are fp16, bf16 and fp32, or another algorithm with --multicast");
  expect_contains(message_of([&] { nvls_algorithm().write({}); }), "simulated only");
  Topology plain = t;
  plain.in_switch = {};
  expect_contains(message_of([&] { run(plain, "nvls", kMi); }),
                  "section 'library.nvls' needs a switch");
  plain.device.library->nvls.reset();
  expect_contains(message_of([&] { run(plain, "nvls", kMi); }), "no NVLS is known of it");
  expect_contains(message_of([&] { run(plain, "nvls", kMi, {}); }), "does not add");
  expect_contains(message_of([&] { run(plain, "one_shot", kMi, {.multicast = true}); }),
                  "no switch that spreads messages");
}

}  // namespace
}  // namespace arlab

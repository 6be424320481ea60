// The vendor's library across servers: what its rings and trees send over which links, its times
// worked out by hand, and what it takes.

#include "sim/library/servers.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "reference/codecs/registry.h"
#include "sim/device/across_kernel.h"
#include "sim/library/library.h"
#include "sim/library/library_plan.h"
#include "sim/machine_plan.h"
#include "sim/simulator.h"
#include "tests/refusal.h"
#include "tests/sim/machine.h"

namespace arlab {
namespace {

using enum LibraryProtocol;

/// Servers of 4 ranks with ports of 10 GB/s and 1 us, and 4 cards of 4 GB/s and 1.5 us.
Topology cluster(Rank count, ServerInside inside = ServerInside::switched) {
  Topology t = servers(4 * count, 4, inside);
  t.leaf_servers = counted(count);
  t.in_switch = {inside == ServerInside::switched, inside == ServerInside::switched, assumed(0.5)};
  t.device.library = nccl(inside == ServerInside::switched);
  t.device.library->network = {.fabric = NetFabric::roce,
                               .low_latency_hop_us = assumed(9),
                               .simple_hop_us = assumed(12),
                               .eager_bytes = assumed(1e9),
                               .rendezvous_us = assumed(5),
                               .fill_hops = assumed(2),
                               .chunk_bytes = assumed(1000)};
  return t;
}

Plan plan(const Topology& t, LibraryAlgorithm algorithm, std::uint64_t bytes,
          Collective collective = Collective::all_reduce) {
  return plan_across(t, {algorithm, simple}, collective,
                     {.world_size = t.ranks.value, .elements = bytes / 2}, *find_codec("fp16"),
                     DType::fp16);
}

SimulationResult run(const Topology& t, std::string_view algorithm, std::uint64_t bytes) {
  return simulate({find_simulated_algorithm(algorithm),
                   {.world_size = t.ranks.value, .elements = bytes / 2},
                   *find_codec("fp16"),
                   DType::fp16,
                   t,
                   {.library = true}});
}

/// Bytes by sender and receiver, of servers or of ranks.
std::map<std::pair<Rank, Rank>, std::uint64_t> sent(const Plan& plan, Rank per_node) {
  std::map<std::pair<Rank, Rank>, std::uint64_t> bytes;
  for (const PlannedMessage& m : plan.messages) {
    const std::pair nodes(m.from / per_node, m.to / per_node);
    if (nodes.first != nodes.second) bytes[nodes] += m.bytes;
  }
  return bytes;
}

TEST(Servers, RingsUseAllCardsAndAllLinksOfAMeshAlike) {
  const std::uint64_t tensor = 160000;
  for (const Rank count : {2u, 3u, 4u, 7u}) {
    const Topology t = cluster(count, ServerInside::mesh);
    const Plan ring = plan(t, LibraryAlgorithm::ring, tensor);
    const auto passed = 2 * tensor * (t.ranks.value - 1) / t.ranks.value;
    const auto servers = sent(ring, 4);
    EXPECT_EQ(servers.size(), count);
    for (const auto& [pair, bytes] : servers) {
      EXPECT_EQ(pair.second, (pair.first + 1) % count);
      EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(passed), 16);
    }
    // Every link of the mesh inside is on one ring, and every rank sends over its card.
    std::set<Rank> over_cards;
    std::map<std::pair<Rank, Rank>, std::uint64_t> inside;
    for (const auto& [pair, bytes] : sent(ring, 1)) {
      if (pair.first / 4 == pair.second / 4) {
        inside[pair] = bytes;
        EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(passed) / 4, 4);
      } else {
        over_cards.insert(pair.first);
        const bool closes = count % 2 == 1 && pair.first / 4 == count - 1;
        EXPECT_TRUE(closes || pair.first % 4 == pair.second % 4) << "not on its rail";
      }
    }
    EXPECT_EQ(inside.size(), 12 * count);
    EXPECT_EQ(over_cards.size(), t.ranks.value);
  }
}

TEST(Servers, TreesShareTheWorkOfInnerServers) {
  const std::uint64_t tensor = 160000;
  for (Rank count = 2; count <= 33; ++count) {
    const Plan trees = plan(cluster(count), LibraryAlgorithm::tree, tensor);
    std::map<Rank, std::uint64_t> out;
    std::map<Rank, std::uint64_t> in;
    std::uint64_t all = 0;
    for (const auto& [pair, bytes] : sent(trees, 4)) {
      out[pair.first] += bytes;
      in[pair.second] += bytes;
      all += bytes;
    }
    // Two trees of count - 1 links, half of the tensor up and down each.
    EXPECT_EQ(all, 2 * (count - 1) * tensor);
    for (Rank server = 0; server < count; ++server) {
      EXPECT_EQ(out[server], in[server]);
      EXPECT_LE(out[server], 2 * tensor) << server << " of " << count;
    }
    EXPECT_EQ(trees.longest_way->hops_inside, 6u);
  }
  const auto depth = [&](Rank count) {
    return plan(cluster(count), LibraryAlgorithm::tree, tensor).longest_way->hops_between / 2;
  };
  EXPECT_EQ(depth(2), 1u);
  EXPECT_EQ(depth(3), 2u);
  EXPECT_EQ(depth(4), 2u);
  EXPECT_EQ(depth(8), 3u);
}

/// A hop of the network that cluster() describes: a floor, the receiver is asked, eight chunks of 1000 bytes of each of four
/// ranks half fill the pipeline.
double hop_us(double floor_us, double bytes) {
  return floor_us * (1 + 2 * bytes / (bytes + 32000)) + 5 * bytes / (bytes + 1e9);
}

TEST(Servers, TakeTheTimesWorkedOutByHand) {
  const Topology t = cluster(2);
  const double close = 1e-2;
  // The cards of a server carry 16000 bytes per us, a port 10000; what ends last pays the latency of
  // its link, 1 of a port.
  const double bytes = 16e6;
  const auto size = static_cast<std::uint64_t>(bytes);
  const auto fixed = [&](LibraryAlgorithm a, LibraryProtocol p) {
    const double hops = a == LibraryAlgorithm::ring ? 3 : 2;
    const double inside = a == LibraryAlgorithm::nvls ? 0 : a == LibraryAlgorithm::ring ? 11 : 6;
    const double start = a == LibraryAlgorithm::nvls ? 7 : p == simple ? 20 : p == ll128 ? 10 : 3;
    const double hop = p == simple && a != LibraryAlgorithm::nvls ? 0.5 : 0;
    return start + inside * (1 + hop) +
           hops * hop_us(p == simple ? 12 : 9, p == simple ? bytes : 8) + (hops - 1) * 1.5;
  };
  EXPECT_NEAR(run(t, "ring", size).latency_us,
              fixed(LibraryAlgorithm::ring, simple) + 1 + 2 * 7.0 / 8 * 0.75 * bytes / 10000,
              close);
  EXPECT_NEAR(run(t, "tree", size).latency_us,
              fixed(LibraryAlgorithm::tree, simple) + 1 + 1.5 * bytes / 10000, close);
  // The switch reads at half of the port, and every rank writes its quarter of the sum.
  EXPECT_NEAR(run(t, "nvls", size).latency_us,
              fixed(LibraryAlgorithm::nvls, simple) + 1 + (2 + 0.25) * bytes / 10000, close);
  EXPECT_NEAR(run(t, "all_gather", size).latency_us,
              20 + 6 * 1.5 + hop_us(12, bytes) + 1 + 7.0 / 8 * 0.75 * bytes / 10000, close);
  EXPECT_NEAR(run(t, "tree", 8).latency_us, fixed(LibraryAlgorithm::tree, low_latency) + 1.5,
              close);
  // With faster ports the cards are the limit.
  Topology fast = t;
  fast.link_type("link").bandwidth_gb_per_s = assumed(100);
  EXPECT_NEAR(run(fast, "ring", size).latency_us,
              fixed(LibraryAlgorithm::ring, simple) + 1.5 + 2 * 7.0 / 8 * bytes / 16000, close);
  EXPECT_NEAR(run(fast, "tree", size).latency_us,
              fixed(LibraryAlgorithm::tree, simple) + 1.5 + bytes / 16000, close);
  // Half of eager_bytes, and all but none, ask first: in two hops 5 us each.
  Topology asks = t;
  asks.device.library->network.eager_bytes = assumed(16);
  EXPECT_NEAR(run(asks, "tree", 16).latency_us - run(t, "tree", 16).latency_us, 5, close);
  // A card carries what all four ranks of a server send to one of the other.
  EXPECT_NEAR(run(t, "all_to_all", size).latency_us,
              6 + hop_us(12, bytes) + 1.5 + 4 * bytes / 8 / 4000, close);
}

/// A declared floor is that of all protocols, and what asking and filling add are multiples of it; without one it is the
/// fabric's, of which TCP's is the longest.
TEST(Servers, AFloorIsOfTheHopOrOfTheFabric) {
  Topology t = cluster(2);
  LibraryNetwork& network = t.device.library->network;
  network = {.fabric = NetFabric::efa, .hop_floor_us = assumed(40)};
  const LibraryNetwork usual;
  const double asked = usual.rendezvous_hops.value;
  const double eager = usual.eager_bytes.value;
  const double pipeline = 8 * 4 * usual.chunk_bytes.value;
  for (const LibraryProtocol protocol : {low_latency, simple}) {
    EXPECT_NEAR(hop_us_across(network, protocol, 4, 0), 40, 1e-9);
    EXPECT_NEAR(hop_us_across(network, protocol, 4, eager),
                40 * (1 + asked / 2 + usual.fill_hops.value * eager / (eager + pipeline)), 1e-9);
    EXPECT_NEAR(hop_us_across(network, protocol, 4, 1e15), 40 * (1 + asked + usual.fill_hops.value),
                1e-3);
  }
  network.hop_floor_us = unless_given(0);
  std::map<NetFabric, double> floors;
  for (const NetFabric fabric : kNetFabrics) {
    network.fabric = fabric;
    const Quantity floor = hop_floor_of(network);
    floors[fabric] = floor.value;
    EXPECT_LT(floor.low, floor.value) << name_of(fabric);
    EXPECT_GT(floor.high, floor.value);
    EXPECT_EQ(hop_us_across(network, simple, 4, 0), floor.value);
  }
  EXPECT_LT(floors[NetFabric::roce], floors[NetFabric::efa]);
  EXPECT_LT(floors[NetFabric::efa], floors[NetFabric::tcp]);
  network.fabric.reset();
  EXPECT_EQ(hop_floor_of(network).value, floors[NetFabric::roce]);
}

/// A file says which fabric, and between which ends the floor lies; it reads back, and nonsense is refused.
TEST(Servers, FilesDeclareAFabricAndItsFloor) {
  const auto file = [](const std::string& network) {
    return "base = \"p5-2x8\"\nname = \"mine\"\n[library.network]\n" + network;
  };
  const Topology mine = parse_topology(
      file("fabric = \"tcp\"\nhop_floor_us = { value = 50, source = \"measured\", note = \"n\", "
           "interval = [40, 60] }\n"),
      "mine");
  const LibraryNetwork& network = mine.device.library->network;
  EXPECT_EQ(network.fabric, NetFabric::tcp);
  EXPECT_EQ(network.hop_floor_us.high, 60);
  EXPECT_EQ(parse_topology(to_toml(mine), "again"), mine);
  const auto refused = [&](const std::string& text) {
    return message_of([&] { parse_topology(file(text), "mine"); });
  };
  expect_contains(refused("fabric = \"myrinet\"\n"), "allowed are roce, infiniband, efa, tcp");
  for (const char* interval : {"[60, 70]", "[40]", "[0, 60]", "[60, 40]"}) {
    expect_contains(
        refused(fmt::format("hop_floor_us = {{ value = 50, source = \"measured\", note "
                            "= \"n\", interval = {} }}\n",
                            interval)),
        "hop_floor_us.interval': it must be two numbers above 0, with the value between");
  }
}

TEST(Servers, TheLibraryTakesWhatIsFastest) {
  const CodecPtr codec = find_codec("fp16");
  for (const Rank servers : {2u, 3u, 4u, 7u}) {
    const Topology some = cluster(servers);
    for (std::uint64_t bytes = 64; bytes <= (1u << 28); bytes *= 4) {
      const Algorithm& chosen = library_algorithm(
          {.world_size = 4 * servers, .elements = bytes / 2}, *codec, DType::fp16, some);
      const double least = run(some, chosen.name, bytes).latency_us;
      for (const char* other : {"ring", "tree", "nvls"}) {
        EXPECT_LE(least, run(some, other, bytes).latency_us * 1.001) << bytes << " " << other;
      }
    }
  }
  const Topology t = cluster(4);
  EXPECT_EQ(choice_across(t, Collective::all_reduce, 16, 64).protocol, low_latency);
  EXPECT_EQ(choice_across(t, Collective::all_reduce, 16, 1 << 28).protocol, simple);
  EXPECT_EQ(choice_across(t, Collective::all_to_all, 16, 16 << 15).protocol, low_latency);
  EXPECT_EQ(choice_across(t, Collective::all_to_all, 16, 16 << 16).protocol, simple);
  Topology no_ll128 = t;
  no_ll128.device.library->network.ll128 = false;
  bool any = false;
  for (std::uint64_t bytes = 64; bytes <= (1u << 26); bytes *= 2) {
    any = any || choice_across(t, Collective::all_reduce, 16, bytes).protocol == ll128;
    EXPECT_NE(choice_across(no_ll128, Collective::all_reduce, 16, bytes).protocol, ll128);
  }
  EXPECT_TRUE(any);
  EXPECT_EQ(library_algorithms(t, 16), (std::vector<std::string>{"ring", "tree", "nvls"}));
}

TEST(Servers, RcclAcrossThemGoesOnFromItsOwnNumbers) {
  Topology t = cluster(2, ServerInside::mesh);
  const LibraryNetwork network = t.device.library->network;
  t.device.library = library_of(8, 1000);
  t.device.library->algorithms = {"two_shot"};
  t.device.library->low_latency_us = assumed(15);
  t.device.library->simple_us = assumed(2);
  t.device.library->simple_hop_us = assumed(6);
  t.device.library->network = network;
  EXPECT_NEAR(run(t, "tree", 8).latency_us, 15 + 6 * 1 + 2 * 9 + 2 * 1.5, 1e-2);
  EXPECT_NEAR(run(t, "ring", 16000000).latency_us,
              2 + 11 * (1 + 2 * 3) + 3 * (hop_us(12, 16e6) + 1.5) + 2 * 7.0 / 8 * 1000, 1e-2);
}

TEST(Servers, AFileOfThemGoesOnFromTheServerItIsMadeOf) {
  const auto file = [](const char* group) {
    return fmt::format(R"(base = "h100-8"
name = "two"
summary = "two servers"
kind = "fat_tree"
ranks = {{ value = 16, source = "assumed", note = "round" }}
group_size = {{ value = {}, source = "assumed", note = "round" }}
nics = {{ value = {}, source = "assumed", note = "round" }}
leaf_servers = {{ value = 2, source = "assumed", note = "round" }}
[nic]
bandwidth_gb_per_s = {{ value = 46, source = "assumed", note = "round" }}
latency_us = {{ value = 2, source = "assumed", note = "round" }}
[uplink]
bandwidth_gb_per_s = {{ value = 46, source = "assumed", note = "round" }}
latency_us = {{ value = 1, source = "assumed", note = "round" }}
)",
                       group, group);
  };
  const Topology two = parse_topology(file("8"), "two");
  ASSERT_TRUE(two.device.library);
  EXPECT_EQ(*two.device.library, *find_topology("h100-8").device.library);
  EXPECT_TRUE(two.in_switch.reduction);
  EXPECT_FALSE(two.uncertainty);
  EXPECT_EQ(two.server_uncertainty, find_topology("h100-8").uncertainty);
  EXPECT_EQ(parse_topology(to_toml(two), "again"), two);
  EXPECT_EQ(run(two, "nvls", 1 << 28).library->algorithm, LibraryAlgorithm::nvls);
  // Servers of four are others than those of the base.
  const Topology fours = parse_topology(file("4"), "fours");
  expect_contains(message_of([&] { library_algorithms(fours, 16); }),
                  "does not say how NCCL or RCCL");
}

/// Ranks of the topology, all groups at once.
std::vector<Picoseconds> placed(const Topology& t, std::string_view algorithm, std::uint64_t bytes,
                                const std::vector<std::vector<Rank>>& groups) {
  const CodecPtr codec = find_codec("fp16");
  std::vector<PlacedPlan> plans;
  for (const std::vector<Rank>& ranks : groups) {
    plans.push_back({.plan = placeable_plan_of(
                         find_simulated_algorithm(algorithm),
                         {.world_size = static_cast<Rank>(ranks.size()), .elements = bytes / 2},
                         *codec, DType::fp16, t, ranks, true),
                     .ranks = ranks});
  }
  std::vector<Picoseconds> latencies;
  for (const SimulationResult& each : simulate_together(plans, t))
    latencies.push_back(each.latency);
  return latencies;
}

TEST(Servers, SomeRanksAreAMachineOfTheirOwn) {
  const Topology four = cluster(4);
  for (const std::uint64_t bytes : {4096u, 1u << 20, 1u << 28}) {
    std::vector<Rank> all(16);
    std::iota(all.begin(), all.end(), 0);
    for (const char* algorithm : {"ring", "tree", "nvls", "all_gather", "all_to_all"}) {
      EXPECT_EQ(placed(four, algorithm, bytes, {all}).front(), run(four, algorithm, bytes).latency);
    }
    // Half of the servers, with half of the ranks and cards of each.
    Topology half = cluster(2);
    half.ranks = counted(4);
    half.group_size = counted(2);
    half.nics = counted(2);
    half.device.library->nvls.reset();
    for (const char* algorithm : {"ring", "tree", "all_to_all"}) {
      const Picoseconds alone = run(half, algorithm, bytes).latency;
      const std::vector<Picoseconds> both =
          placed(four, algorithm, bytes, {{1, 2, 9, 10}, {4, 7, 12, 15}});
      EXPECT_EQ(both, std::vector<Picoseconds>(2, alone)) << algorithm << " " << bytes;
    }
  }
  // One server: as there, by its switch, too.
  EXPECT_EQ(placed(four, "nvls", 1 << 28, {{4, 5, 6, 7}}),
            placed(cluster(1), "nvls", 1 << 28, {{0, 1, 2, 3}}));
}

TEST(Servers, SomeRanksShareCardsWithOthers) {
  const auto gb_per_s = [](Topology t, const std::vector<std::vector<Rank>>& groups) {
    const std::uint64_t bytes = std::uint64_t{1} << 30;
    return static_cast<double>(bytes) * 1e3 /
           static_cast<double>(placed(t, "ring", bytes, groups).front());
  };
  Topology one_card = cluster(2);
  one_card.nics = counted(1);
  one_card.link_types.push_back({"pcie", assumed(6), assumed(2)});
  // A pair of servers sends each way what it sums: 4 GB/s of a card.
  EXPECT_NEAR(gb_per_s(cluster(2), {{0, 4}}), 4, 0.05);
  EXPECT_NEAR(gb_per_s(cluster(2), {{0, 4}, {1, 5}, {2, 6}, {3, 7}}), 4, 0.05);
  EXPECT_NEAR(gb_per_s(one_card, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}), 1, 0.02);
}

TEST(Servers, RefuseWhatTheyCannotDo) {
  const Topology t = cluster(2);
  const auto refused = [&](std::string_view algorithm, Rank ranks) {
    return message_of([&] {
      simulate({find_simulated_algorithm(algorithm),
                {.world_size = ranks, .elements = 4096},
                *find_codec("fp16"),
                DType::fp16,
                t,
                {.library = true}});
    });
  };
  expect_contains(refused("ring", 6), "allowed are multiples of 4 ranks, or up to 4");
  expect_contains(refused("one_shot", 8), "allowed are ring, tree, nvls");
  expect_contains(message_of([&] { run(cluster(2, ServerInside::mesh), "nvls", 4096); }),
                  "has no nvls there");
  for (const std::vector<Rank>& ranks : {std::vector<Rank>{0, 1, 4}, std::vector<Rank>{0, 4, 1, 5},
                                         std::vector<Rank>{0, 1, 4, 5, 6, 7}}) {
    expect_contains(message_of([&] { placed(t, "ring", 4096, {ranks}); }),
                    "one server's come after the other's");
  }
  expect_contains(message_of([&] { placed(t, "nvls", 4096, {{0, 4}}); }), "has no nvls there");
  Topology unknown = t;
  unknown.device.library.reset();
  for (const char* algorithm : {"ring", "tree"}) {
    expect_contains(message_of([&] { run(unknown, algorithm, 4096); }), "with a section [library]");
  }
  expect_contains(message_of([&] { library_all_reduce(unknown, 8, 4096); }),
                  "with a section [library]");
  expect_contains(message_of([&] {
                    simulate({find_algorithm("one_shot"),
                              {.world_size = 8, .elements = 4096},
                              *find_codec("fp16"),
                              DType::fp16,
                              t,
                              {.multicast = true}});
                  }),
                  "no switch that spreads messages");
}

}  // namespace
}  // namespace arlab

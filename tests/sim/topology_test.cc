// Machine files: those that ship, those that are wrong; and topologies by name.

#include "sim/topology/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "tests/refusal.h"
#include "tests/sim/machine.h"
#include "tests/sim/machine_file.h"

namespace arlab {
namespace {

// ---------------------------------------------------------------- machines that ship

TEST(Machines, AreAllListed) {
  const std::vector<std::string> names = listed_topologies();
  for (const char* name : {"mi300x-8", "mi300x-4", "mi300x-2", "h200-2", "h200-4", "h200-8",
                           "h800-8", "a100-8", "h20-8", "l40-8"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST(DefaultGroupSize, IsWhatIsCloseTogether) {
  const auto of = [](const char* name, Rank world_size) {
    return default_group_size(find_topology(name), world_size);
  };
  EXPECT_EQ(of("l40-8", 8), 4u);
  EXPECT_EQ(of("l40-8", 4), 2u) << "all in one group";
  EXPECT_EQ(of("l40-8", 6), 2u) << "parts of groups";
  EXPECT_EQ(of("h200-8", 8), 4u) << "one switch: as without a topology";
  EXPECT_EQ(of("mi300x-8", 8), 4u) << "all linked to all";
  EXPECT_EQ(of("fat_tree:24", 24), 8u);
  EXPECT_EQ(of("fat_tree:24", 16), 8u);
  EXPECT_EQ(of("fat_tree:64", 64), 8u) << "as many groups as ranks in one";
  EXPECT_EQ(of("fat_tree:128", 128), 16u) << "two servers: 16 servers are more than 8 ranks";
  EXPECT_EQ(of("fat_tree:24", 12), 4u) << "halves of servers";
  EXPECT_EQ(of("fat_tree:65536", 65536), 256u);
  EXPECT_EQ(of("fat_tree:24", 9), 3u) << "nothing in common: as without a topology";
  EXPECT_EQ(of("torus:8x8", 64), 8u) << "lines";
  EXPECT_EQ(of("torus:4x4x4", 64), 8u) << "two lines of 4";
  EXPECT_EQ(of("torus:16x16x16x16", 65536), 256u);
  EXPECT_EQ(of("ring:64", 64), 8u);
  EXPECT_EQ(of("ring:8", 8), 4u);
  EXPECT_EQ(of("ring:7", 7), 7u);
  EXPECT_EQ(of("full:1", 1), 1u);
  Topology dragonfly = machine(TopologyKind::dragonfly, 36, 3);
  dragonfly.ranks_per_router = counted(4);
  EXPECT_EQ(default_group_size(dragonfly, 36), 12u);
  EXPECT_EQ(default_group_size(dragonfly, 30), 6u);
}

/// A graph's group has the ranks in one sharing domain, else at one switch by their fastest links.
TEST(DefaultGroupSize, OfAGraphIsWhatHangsTogether) {
  Topology t = machine(TopologyKind::graph, 8);
  t.switches = 3;
  t.link_types = {{"slow", assumed(1), assumed(1)}, {"fast", assumed(9), assumed(1)}};
  for (Rank rank = 0; rank < 8; ++rank) {
    t.edges.push_back({{false, rank}, {true, 2}, "slow", "", true});
    t.edges.push_back({{true, rank / 4}, {false, rank}, "fast", "", true});
  }
  EXPECT_EQ(default_group_size(t, 8), 4u);
  t.domains = {{"a", assumed(5)}, {"b", assumed(5)}};
  for (Edge& edge : t.edges) {
    const NodeName rank = edge.from.is_switch ? edge.to : edge.from;
    if (edge.type == "slow") edge.domain = rank.number < 4 ? "a" : "b";
  }
  EXPECT_EQ(default_group_size(t, 8), 4u);
  for (Edge& edge : t.edges) {
    if (edge.from.number == 3 && edge.type == "slow") edge.domain = "b";
  }
  EXPECT_EQ(default_group_size(t, 8), 4u) << "groups of 3 and 5 are none: near the root";
  t.edges.clear();
  EXPECT_EQ(default_group_size(t, 8), 4u) << "single ranks: near the root";
}

TEST(GroupSizes, CutNoGroupInTwo) {
  const auto of = [](const char* name, Rank world_size, std::size_t most) {
    return group_sizes(find_topology(name), world_size, most);
  };
  EXPECT_EQ(of("fat_tree:128", 128, 9), (std::vector<Rank>{16, 8, 32, 4, 64, 2}));
  EXPECT_EQ(of("fat_tree:128", 128, 3), (std::vector<Rank>{16, 8, 32}));
  EXPECT_EQ(of("fat_tree:24", 24, 9), (std::vector<Rank>{8, 4, 2})) << "12 and 3 cut servers";
  EXPECT_EQ(of("h200-8", 8, 9), (std::vector<Rank>{4, 2}));
  EXPECT_EQ(of("full:1", 1, 9), (std::vector<Rank>{1}));
}

TEST(Machines, LoadAndSayWhereEveryNumberComesFrom) {
  for (const std::string& name : listed_topologies()) {
    SCOPED_TRACE(name);
    const Topology topology = find_topology(name);
    EXPECT_EQ(topology.name, name);
    EXPECT_FALSE(topology.summary.empty());
    EXPECT_FALSE(topology.device.name.empty());
    const Rank group = topology.group_size.value;
    const bool several = topology.kind == TopologyKind::fat_tree;
    EXPECT_TRUE(name.ends_with(several ? fmt::format("-{}x{}", topology.ranks.value / group, group)
                                       : fmt::format("-{}", topology.ranks.value)));
    EXPECT_TRUE(topology.device.library.has_value());
    EXPECT_EQ(topology.device.stores.has_value(), name.starts_with("mi"));
    // Kernels of H800 and H20 are of published tables, not of ours.
    const bool ours =
        topology.in_switch.reduction && !name.starts_with("h800") && !name.starts_with("h20-");
    EXPECT_EQ(topology.device.blocks.has_value(), ours);
    EXPECT_EQ(topology.device.library->nvls.has_value(), topology.in_switch.reduction);
    std::set<std::string> keys;
    for (const NamedQuantity& named : quantities_of(topology)) {
      EXPECT_TRUE(keys.insert(named.key).second) << named.key;
      const bool of_library = named.key == "library.simple_hop_us" ||
                              named.key == "library.low_latency_channel_gb_per_s" ||
                              named.key.ends_with("drift_us");
      const bool may_be_free =
          of_library || ((named.key.ends_with("message_us") || named.key.ends_with("hop_us") ||
                          named.key == "overhead.step_us" || named.key == "sentinels.fill_us") &&
                         topology.device.blocks);
      EXPECT_TRUE(named.quantity.value > 0 || may_be_free) << named.key;
      EXPECT_FALSE(named.quantity.note.empty()) << named.key;
      EXPECT_NE(name_of(named.quantity.source), "?") << named.key;
    }
  }
}

TEST(Machines, AreWhatTheirNamesSay) {
  EXPECT_EQ(find_topology("mi300x-8").kind, TopologyKind::full_mesh);
  EXPECT_EQ(find_topology("h200-4").kind, TopologyKind::switched);
  const Topology l40 = find_topology("l40-8");
  EXPECT_EQ(l40.kind, TopologyKind::numa);
  EXPECT_EQ(l40.group_size.value, 4u);
}

// ---------------------------------------------------------------- topologies by name

TEST(FindTopology, Generates) {
  EXPECT_EQ(find_topology("full:16").ranks.value, 16u);
  EXPECT_EQ(find_topology("full:16").kind, TopologyKind::full_mesh);
  EXPECT_EQ(find_topology("ring:1024").kind, TopologyKind::ring);
  EXPECT_EQ(find_topology("full:32768").ranks.value, 32768u);
  EXPECT_EQ(find_topology("ring:65536").ranks.value, 65536u);
  EXPECT_EQ(find_topology("torus:40x40x40").shape, (std::vector<Rank>{40, 40, 40}));
  EXPECT_EQ(find_topology("torus:8").shape, std::vector<Rank>{8});
  EXPECT_EQ(find_topology("torus:256x256").ranks.value, 65536u);
  EXPECT_EQ(find_topology("torus:1x2x3x1x2x1").ranks.value, 12u);
  for (const GeneratedTopology& g : kGeneratedTopologies) {
    const std::string parameter = g.name == "torus" ? "2x4" : "8";
    const Topology t = find_topology(fmt::format("{}:{}", g.name, parameter));
    EXPECT_EQ(t.name, fmt::format("{}:{}", g.name, parameter));
    EXPECT_EQ(t.ranks.value, 8u);
    EXPECT_FALSE(t.summary.empty());
    EXPECT_FALSE(g.summary.empty());
    EXPECT_TRUE(g.pattern.starts_with(g.name));
    for (const NamedQuantity& named : quantities_of(t)) {
      EXPECT_EQ(named.quantity.source, Source::assumed) << named.key;
      EXPECT_FALSE(named.quantity.note.empty()) << named.key;
    }
  }
}

TEST(FindTopology, GeneratesFatTreesOfServersOf8InPodsOf32) {
  for (const Rank ranks : {8, 16, 256, 264, 65536}) {
    const Topology t = find_topology(fmt::format("fat_tree:{}", ranks));
    EXPECT_EQ(t.ranks.value, ranks);
    EXPECT_EQ(t.group_size.value, 8u);
    EXPECT_EQ(t.leaf_servers.value, 32u);
    // No oversubscription: what 32 network cards bring to a leaf leaves it.
    EXPECT_EQ(t.link_type("uplink").bandwidth_gb_per_s.value,
              32 * t.link_type("nic").bandwidth_gb_per_s.value);
  }
}

/// h ranks on each of 2 h routers of at most 2 h^2 + 1 groups; the least h that suffices.
TEST(FindTopology, GeneratesBalancedDragonflies) {
  for (const auto& [ranks, h] : {std::pair<Rank, Rank>{1, 1},
                                 {6, 1},
                                 {7, 2},
                                 {72, 2},
                                 {73, 3},
                                 {342, 3},
                                 {343, 4},
                                 {65536, 12}}) {
    const Topology t = find_topology(fmt::format("dragonfly:{}", ranks));
    EXPECT_EQ(t.ranks.value, ranks);
    EXPECT_EQ(t.group_size.value, 2 * h) << ranks;
    EXPECT_EQ(t.ranks_per_router.value, h) << ranks;
  }
}

TEST(FindTopology, RefusesOtherNames) {
  const std::pair<const char*, const char*> cases[] = {
      {"mi300x", "unknown topology 'mi300x': did you mean 'mi300x-2' or 'mi300x-4' or 'mi300x-8'?"},
      {"mi300x", "? `arlab list topologies` has all; a path ends in .toml"},
      {"ours", "known are mi455x-72, p4de-2x8, "},
      {"fulls:9", "did you mean 'full:N'?"},
      {"", "unknown topology ''"},
      {"mesh:8", "unknown topology 'mesh:8'"},
      {"full:0", "'0' is not a number of ranks; allowed is 1 to 32768"},
      {"full:32769", "allowed is 1 to 32768"},
      {"ring:", "allowed is 1 to 65536"},
      {"ring:65537", "allowed is 1 to 65536"},
      {"ring:-4", "allowed is 1 to 65536"},
      {"ring:+4", "allowed is 1 to 65536"},
      {"ring:8x8", "allowed is 1 to 65536"},
      {"ring:99999999999999999999", "allowed is 1 to 65536"},
      {"torus:", "1 to 6 extents like 4x4x8 with a product of 1 to 65536"},
      {"torus:x", "1 to 6 extents"},
      {"torus:4x", "'4x' is no shape"},
      {"torus:x4", "1 to 6 extents"},
      {"torus:4xx4", "1 to 6 extents"},
      {"torus:4x0", "1 to 6 extents"},
      {"torus:4x-1", "1 to 6 extents"},
      {"torus:4,4", "1 to 6 extents"},
      {"torus:1x1x1x1x1x1x1", "1 to 6 extents"},
      {"torus:257x256", "a product of 1 to 65536"},
      {"torus:65536x65536x65536", "a product of 1 to 65536"},
      {"torus:4294967297", "1 to 6 extents"},
      {"fat_tree:12", "12 ranks do not make servers of 8; allowed are multiples of 8"},
      {"fat_tree:65544", "allowed is 1 to 65536"},
      {"dragonfly:0", "allowed is 1 to 65536"},
      {"dragonfly:72x", "allowed is 1 to 65536"},
      {"/no/such/file.toml", "topology file '/no/such/file.toml' cannot be read"},
  };
  for (const auto& [name, expected] : cases) {
    expect_contains(message_of([&, n = name] { find_topology(n); }), expected);
  }
}

// ---------------------------------------------------------------- files

const std::string kNuma = R"(
name = "mine"
summary = "a machine under test"
kind = "numa"
ranks = { value = 4, source = "assumed", note = "n" }
group_size = { value = 2, source = "assumed", note = "n" }
[link]
bandwidth_gb_per_s = { value = 10, source = "datasheet", note = "an integer is a number too" }
latency_us = { value = 1.0, source = "measured", note = "n" }
[bridge]
bandwidth_gb_per_s = { value = 4.0, source = "published", note = "n" }
latency_us = { value = 1.5, source = "fitted", note = "n" }
)" + kDeviceSections + kStoresSection +
                          kLibrarySection + kConditions;

/// Every number with the key by which it is found.
std::string numbers_of(const Topology& t) {
  std::string text;
  for (const NamedQuantity& named : quantities_of(t)) {
    text += fmt::format(" {}={}", named.key, named.quantity.value);
  }
  return text;
}

TEST(TopologyFile, IsReadAsWritten) {
  const Topology t = parse_topology(kNuma, "test");
  EXPECT_EQ(t.name, "mine");
  EXPECT_EQ(t.summary, "a machine under test");
  EXPECT_EQ(t.kind, TopologyKind::numa);
  EXPECT_EQ(t.ranks.value, 4u);
  EXPECT_EQ(t.group_size.value, 2u);
  EXPECT_EQ(t.link_type("link").bandwidth_gb_per_s.source, Source::datasheet);
  EXPECT_EQ(t.link_type("link").bandwidth_gb_per_s.note, "an integer is a number too");
  EXPECT_EQ(t.link_type("link").latency_us.source, Source::measured);
  EXPECT_EQ(t.link_type("bridge").bandwidth_gb_per_s.source, Source::published);
  EXPECT_EQ(t.link_type("bridge").latency_us.source, Source::fitted);
  EXPECT_THROW(t.link_type("nic"), std::out_of_range);
  EXPECT_FALSE(t.devices_forward);
  EXPECT_EQ(t.device.name, "accelerator");
  EXPECT_EQ(numbers_of(t),
            " ranks=4 group_size=2 link.bandwidth_gb_per_s=10 link.latency_us=1"
            " bridge.bandwidth_gb_per_s=4 bridge.latency_us=1.5 overhead.launch_us=5"
            " overhead.step_us=2 overhead.message_us=0.5 device.hbm_gb_per_s=900"
            " device.codec_gops_per_s=40 device.decode_cost=0.5 device.codec_tile_us_per_op=0.25"
            " device.codec_tile_fixed_ops=7 device.latency_overlap=1.25 device.codec_overlap=100"
            " device.all_to_all_efficiency=0.75 stores.tile_bytes=32768 stores.resident_tiles=1216"
            " stores.release_us=0.125 stores.release_coalescing_tiles=107"
            " stores.contention_codec=5.5 stores.contention_plain=1.125"
            " stores.free_packets_codec=2140 stores.free_packets_plain=6500"
            " stores.decorrelation_packets=3200 library.channels=4"
            " library.low_latency_max_bytes=16384 library.low_latency_us=17.5"
            " library.low_latency_efficiency=0.68 library.low_latency_channel_gb_per_s=0"
            " library.simple_us=2.98 library.simple_hop_us=3.05 library.drift_us=0"
            " library.exchange_low_latency_us=9 library.exchange_low_latency_gb_per_s=20"
            " library.exchange_us=12 library.exchange_drift_us=0 stragglers.0.delay_us=12.5");
  ASSERT_EQ(t.faults.size(), 1u);
  EXPECT_EQ(describe(t.faults[0].from), "switch0");
  EXPECT_EQ(describe(t.faults[0].to), "switch1");
  EXPECT_EQ(t.faults[0].bandwidth_factor, 0.5);
  EXPECT_EQ(t.faults[0].note, "cable");
  ASSERT_EQ(t.stragglers.size(), 1u);
  EXPECT_EQ(t.stragglers[0].rank, 3u);
  EXPECT_EQ(t.stragglers[0].delay_us.source, Source::measured);
}

/// A file of another kind: kNuma without bridge, stores, library, faults and stragglers.
std::string of_kind(const std::string& kind, const std::string& keys, const std::string& sections) {
  std::string text = kNuma;
  const auto cut = [&text](const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    text.erase(at, to.empty() ? std::string::npos : text.find(to) - at);
  };
  cut("group_size", "[link]");
  cut("[bridge]", "[overhead]");
  cut("[stores]", "");
  const std::string named = "kind = \"numa\"";
  text.replace(text.find(named), named.size(), "kind = \"" + kind + "\"\n" + keys);
  return text + sections;
}

std::string count(const std::string& key, int value) {
  return fmt::format("{} = {{ value = {}, source = \"assumed\", note = \"n\" }}\n", key, value);
}

std::string links(const std::string& name, double gb_per_s) {
  return fmt::format("[{}]\n{}{}", name,
                     fmt::format("bandwidth_gb_per_s = {{ value = {}, source = \"assumed\", note = "
                                 "\"n\" }}\n",
                                 gb_per_s),
                     count("latency_us", 1));
}

TEST(TopologyFile, OptionalPartsMayBeMissing) {
  const Topology t = parse_topology(of_kind("switch", "", ""), "test");
  EXPECT_EQ(t.kind, TopologyKind::switched);
  EXPECT_FALSE(t.device.stores.has_value());
  EXPECT_FALSE(t.device.library.has_value());
  EXPECT_TRUE(t.faults.empty());
  EXPECT_TRUE(t.stragglers.empty());
}

TEST(TopologyFile, MayHaveBlocksInsteadOfStores) {
  const Topology t = parse_topology(of_kind("switch", "", kBlocksSection), "test");
  ASSERT_TRUE(t.device.blocks.has_value());
  expect_contains(numbers_of(t),
                  " blocks.resident=528 blocks.tile_elements=2048 blocks.slot_bytes=18432"
                  " blocks.load_us=0.5 blocks.release_us=0.0625 blocks.phase_us=0.75"
                  " blocks.meet_us=9");
  expect_contains(message_of([] {
                    parse_topology(of_kind("switch", "", kStoresSection + kBlocksSection), "test");
                  }),
                  "sections 'stores' and 'blocks' are two models of a kernel; allowed is one");
}

TEST(TopologyFile, MaySayWhatCodecsTake) {
  const std::string row =
      "qr-q4 = { fp16 = [72, 25.5], bf16 = [65, 26], slots = 2, cycles = 1.5 }\n";
  const auto parsed = [](const std::string& rows, const std::string& blocks = kBlocksSection) {
    return parse_topology(of_kind("switch", "", blocks + "[codecs]\n" + rows), "test");
  };
  const Topology t = parsed("note = \"counted\"\n" + row);
  const CodecTimes expected{"qr-q4", {72, 25.5}, {65, 26}, 2, 1.5};
  EXPECT_EQ(t.device.codecs, std::vector<CodecTimes>{expected});
  EXPECT_EQ(parse_topology(to_toml(t), "again").device.codecs, t.device.codecs);
  for (const auto& [wrong, words] : std::initializer_list<std::pair<const char*, const char*>>{
           {"a = { fp16 = [1], bf16 = [1, 2], slots = 1, cycles = 1 }\n",
            "two numbers: of encode, and of decode"},
           {"a = { fp16 = [1, 2], bf16 = [1, 2], slots = 0, cycles = 1 }\n",
            "codecs.a': 0 is out of range"},
           {"a = { fp16 = [1, 2], bf16 = [1, 2], slots = 1 }\n", "missing key 'codecs.a.cycles'"},
           {"a = { fp16 = [1, 2], bf16 = [1, 2], slots = 1, cycles = 1, b = 1 }\n",
            "unknown key 'codecs.a.b'"},
           {"a = 1\n", "codecs.a"}}) {
    expect_contains(message_of([&] { parsed(wrong); }), words);
  }
  expect_contains(message_of([&] { parsed(row, ""); }), "section 'codecs' needs section 'blocks'");
}

TEST(TopologyFile, MaySayHowFastTheDeviceCalculates) {
  std::string compute = "[compute]\n" + count("bf16_tflops", 312);
  for (const char* share : {"gemm_efficiency", "attention_efficiency", "memory_efficiency"}) {
    compute += count(share, 1);
  }
  const Topology t = parse_topology(of_kind("switch", "", compute + count("kernel_us", 4)), "test");
  ASSERT_TRUE(t.device.compute.has_value());
  expect_contains(
      numbers_of(t),
      " compute.bf16_tflops=312 compute.gemm_efficiency=1"
      " compute.attention_efficiency=1 compute.memory_efficiency=1 compute.kernel_us=4");
  const auto message = [&](const std::string& more) {
    return message_of([&] { parse_topology(of_kind("switch", "", compute + more), "test"); });
  };
  expect_contains(message(""), "missing key 'compute.kernel_us'");
  expect_contains(message(count("kernel_us", 0)), "'compute.kernel_us.value': 0 is out of range");
  compute.replace(compute.find("value = 1,"), 10, "value = 2,");
  expect_contains(message(count("kernel_us", 4)), "'compute.gemm_efficiency.value': 2 is out of");
}

/// One flag more may cost nothing, where flags are polled side by side; a launch never.
TEST(TopologyFile, FlagsMayCostNothing) {
  std::string text = of_kind("switch", "", "");
  const auto set = [](std::string in, const std::string& key, const std::string& value) {
    const std::size_t at = in.find(key + " = { value = ") + key.size() + 13;
    return in.replace(at, in.find(',', at) - at, value);
  };
  EXPECT_EQ(parse_topology(set(text, "message_us", "0"), "test").device.message_us.value, 0);
  expect_contains(message_of([&] { parse_topology(set(text, "launch_us", "0"), "test"); }),
                  "overhead.launch_us");
}

TEST(TopologyFile, OfEveryKind) {
  EXPECT_EQ(parse_topology(of_kind("full_mesh", "", ""), "test").kind, TopologyKind::full_mesh);
  const Topology ring = parse_topology(of_kind("ring", "", ""), "test");
  EXPECT_TRUE(ring.devices_forward);
  EXPECT_FALSE(
      parse_topology(of_kind("ring", "devices_forward = false\n", ""), "test").devices_forward);
  EXPECT_TRUE(
      parse_topology(of_kind("full_mesh", "devices_forward = true\n", ""), "test").devices_forward);

  const Topology torus = parse_topology(of_kind("torus", "shape = [2, 2]\n", ""), "test");
  EXPECT_EQ(torus.shape, (std::vector<Rank>{2, 2}));
  EXPECT_TRUE(torus.devices_forward);

  const Topology tree =
      parse_topology(of_kind("fat_tree", count("group_size", 2) + count("leaf_servers", 3),
                             links("nic", 25) + links("uplink", 100)),
                     "test");
  EXPECT_EQ(tree.group_size.value, 2u);
  EXPECT_EQ(tree.leaf_servers.value, 3u);
  EXPECT_EQ(tree.link_type("nic").bandwidth_gb_per_s.value, 25);
  EXPECT_EQ(tree.link_type("uplink").bandwidth_gb_per_s.value, 100);

  const Topology dragonfly =
      parse_topology(of_kind("dragonfly", count("group_size", 2) + count("ranks_per_router", 1),
                             links("local", 30) + links("global", 20)),
                     "test");
  EXPECT_EQ(dragonfly.group_size.value, 2u);
  EXPECT_EQ(dragonfly.ranks_per_router.value, 1u);
  EXPECT_EQ(dragonfly.link_type("local").bandwidth_gb_per_s.value, 30);
  EXPECT_EQ(dragonfly.link_type("global").bandwidth_gb_per_s.value, 20);
}

constexpr const char* kEdges = R"(
[[edges]]
from = "rank0"
to = "switch0"
type = "pcie"
domain = "upstream"
[[edges]]
from = "rank1"
to = "switch0"
type = "pcie"
duplex = false
)";

/// kNuma as a graph: its link type in [links.pcie].
std::string graph(const std::string& edges = kEdges) {
  std::string text = of_kind("graph", "switches = 1\n", edges);
  text.replace(text.find("[link]"), 6, "[links.pcie]");
  const std::string domain =
      "[domains.upstream]\nbandwidth_gb_per_s = { value = 5, source = \"assumed\", note = \"n\" "
      "}\n";
  return text.insert(text.find("[overhead]"), domain);
}

TEST(TopologyFile, OfAGraph) {
  const Topology t = parse_topology(graph(), "test");
  EXPECT_EQ(t.kind, TopologyKind::graph);
  EXPECT_EQ(t.switches, 1u);
  ASSERT_EQ(t.link_types.size(), 1u);
  EXPECT_EQ(t.link_types[0].name, "pcie");
  EXPECT_EQ(t.link_types[0].bandwidth_gb_per_s.value, 10);
  ASSERT_EQ(t.domains.size(), 1u);
  EXPECT_EQ(t.domains[0].name, "upstream");
  EXPECT_EQ(t.domains[0].bandwidth_gb_per_s.value, 5);
  ASSERT_EQ(t.edges.size(), 2u);
  EXPECT_EQ(describe(t.edges[0].from), "rank0");
  EXPECT_EQ(describe(t.edges[0].to), "switch0");
  EXPECT_EQ(t.edges[0].type, "pcie");
  EXPECT_EQ(t.edges[0].domain, "upstream");
  EXPECT_TRUE(t.edges[0].duplex);
  EXPECT_EQ(t.edges[1].domain, "");
  EXPECT_FALSE(t.edges[1].duplex);
  std::set<std::string> keys;
  for (const NamedQuantity& named : quantities_of(t)) keys.insert(named.key);
  EXPECT_TRUE(keys.contains("links.pcie.latency_us"));
  EXPECT_TRUE(keys.contains("domains.upstream.bandwidth_gb_per_s"));
}

// ---------------------------------------------------------------- written and read back

TEST(ToToml, ReadsBackToTheSame) {
  std::vector<Topology> all;
  for (const std::string& name : listed_topologies()) all.push_back(find_topology(name));
  for (const char* name : {"full:8", "ring:5", "torus:2x3x4", "fat_tree:64", "dragonfly:72"}) {
    all.push_back(find_topology(name));
  }
  all.push_back(parse_topology(kNuma, "test"));
  all.push_back(parse_topology(graph(), "test"));
  all.push_back(
      parse_topology(of_kind("ring", "devices_forward = false\n", kBlocksSection), "test"));
  all.push_back(servers(16, 2));
  all.push_back(servers(16, 1, ServerInside::pcie, 2));
  all.push_back(servers(16, 4, ServerInside::mesh));
  all.back().summary = "quotes \" and \\ and \xc3\xa9";
  all.back().device.launch_us = {1.0 / 3, Source::measured, "a third"};
  Topology& varying = all.emplace_back(find_topology("h200-8"));
  varying.link_events = {{{false, 1}, {true, 0}, 2.5, 0.5, "slow"},
                         {{false, 1}, {true, 0}, 1.0 / 3, 0, "dead"}};
  varying.background = {{{false, 0}, {false, 3}, 1.0 / 7, 1, 9, "others"}};
  varying.jitter = {.launch_us = 0.5, .message_us = 0.1};
  for (const Rank rank : {2, 5}) varying.device_overrides.push_back({{rank}, varying.device});
  varying.device_overrides[0].device.launch_us = {7, Source::assumed, "slow"};
  varying.device_overrides[1].device.library->low_latency_us = {11, Source::assumed, "old"};
  varying.uncertainty = Uncertainty{.scatter_percent = 1.0 / 3,
                                    .note = "a \"fit\"",
                                    .constants = {"overhead.launch_us", "link.latency_us"},
                                    .sigma_percent = {10, 0.1},
                                    .correlation = {{}, {-1.0 / 7}}};
  for (const Topology& t : all) {
    SCOPED_TRACE(t.name);
    const std::string text = to_toml(t);
    // In the order of the file, which a machine of ours need not have.
    Topology read = parse_topology(text, t.name);
    const auto by_name = [](const LinkType& a, const LinkType& b) { return a.name < b.name; };
    Topology expected = t;
    if (t.kind != TopologyKind::dragonfly) expected.ranks_per_router = {};  // not in the file
    std::sort(read.link_types.begin(), read.link_types.end(), by_name);
    std::sort(expected.link_types.begin(), expected.link_types.end(), by_name);
    EXPECT_EQ(read, expected) << text;
  }
}

// ---------------------------------------------------------------- files that build on another

TEST(Base, GivesWhatAFileDoesNotSay) {
  const Topology base = find_topology("h200-8");
  const Topology t = parse_topology(R"(
base = "h200-8"
name = "slower"
[link]
bandwidth_gb_per_s = { value = 100, source = "assumed", note = "half the links" }
)",
                                    "slower.toml");
  EXPECT_EQ(t.name, "slower");
  EXPECT_EQ(t.summary, "as h200-8, with changes in slower.toml");
  EXPECT_EQ(t.link_type("link").bandwidth_gb_per_s,
            (Quantity{100, Source::assumed, "half the links"}));
  EXPECT_EQ(t.link_type("link").latency_us, base.link_type("link").latency_us);
  EXPECT_EQ(t.device, base.device) << "with where its numbers come from";
}

TEST(Base, OfAnotherKindGivesWhatBothHave) {
  const Topology base = find_topology("h200-8");
  const Topology t = parse_topology(R"(
base = "h200-8"
name = "two-servers"
kind = "fat_tree"
ranks = { value = 16, source = "assumed", note = "two" }
group_size = { value = 8, source = "assumed", note = "HGX" }
leaf_servers = { value = 2, source = "assumed", note = "one pod" }
nics = { value = 4, source = "assumed", note = "2 GPUs per card" }
[pcie]
bandwidth_gb_per_s = { value = 50, source = "datasheet", note = "PCIe 5.0 x16" }
latency_us = { value = 1, source = "assumed", note = "typical" }
[nic]
bandwidth_gb_per_s = { value = 48, source = "datasheet", note = "400 Gbit/s" }
latency_us = { value = 3, source = "assumed", note = "typical" }
[uplink]
bandwidth_gb_per_s = { value = 96, source = "assumed", note = "not oversubscribed" }
latency_us = { value = 1, source = "assumed", note = "typical" }
)",
                                    "two.toml");
  // Servers that are the base; the library's way over other networks than a fat tree is unknown.
  EXPECT_EQ(t.device, base.device);
  EXPECT_EQ(t.in_switch, base.in_switch);
  Device device = base.device;
  device.library.reset();
  const std::string ring = "base = \"h200-8\"\nname = \"mine\"\nkind = \"ring\"\n";
  EXPECT_EQ(parse_topology(ring, "test").device, device);
  EXPECT_FALSE(parse_topology(ring, "test").in_switch.reduction);
  EXPECT_EQ(t.link_type("link"), base.link_type("link"));
  EXPECT_EQ(server_of(t).hubs, 4u);
  EXPECT_EQ(default_group_size(t, 16), 8u);
  // A base that is generated, and one model of a kernel in place of another.
  EXPECT_EQ(parse_topology("base = \"fat_tree:16\"\nname = \"mine\"", "test").ranks.value, 16u);
  const Topology blocks =
      parse_topology("base = \"mi300x-8\"\nname = \"mine\"\n" + kBlocksSection, "test");
  EXPECT_FALSE(blocks.device.stores.has_value());
  EXPECT_TRUE(blocks.device.blocks.has_value());
}

/// A fit is about its own numbers: not about those that the file has in their place.
TEST(Base, IsAsUncertainWhereItsNumbersStand) {
  const std::string base = to_toml(
      Uncertainty{.scatter_percent = 4,
                  .note = "fit",
                  .constants = {"overhead.launch_us", "link.bandwidth_gb_per_s", "blocks.load_us"},
                  .sigma_percent = {1, 2, 3},
                  .correlation = {{}, {0.1}, {0.2, 0.3}}});
  const auto derived = [&](const std::string& own) {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / fmt::format("arlab-uncertain-{}", getpid());
    std::filesystem::create_directories(folder);
    Topology plain = find_topology("h200-8");
    plain.uncertainty.reset();
    std::ofstream(folder / "base.toml") << to_toml(plain) + base;
    Topology t = parse_topology("base = \"base.toml\"\nname = \"t\"\n" + own, "t.toml", folder);
    std::filesystem::remove_all(folder);
    return t.uncertainty;
  };
  const std::string number = " = { value = 9, source = \"assumed\", note = \"n\" }\n";
  EXPECT_EQ(to_toml(derived("").value()), base);
  const Uncertainty slow = derived("[link]\nbandwidth_gb_per_s" + number).value();
  EXPECT_EQ(slow.constants, (std::vector<std::string>{"overhead.launch_us", "blocks.load_us"}));
  EXPECT_EQ(slow.sigma_percent, (std::vector<double>{1, 3}));
  EXPECT_EQ(slow.correlation, (std::vector<std::vector<double>>{{}, {0.2}}));
  const std::string launch = "[overhead]\nlaunch_us" + number;
  EXPECT_FALSE(
      derived(launch + "[link]\nbandwidth_gb_per_s" + number + "[blocks]\nload_us" + number));
  EXPECT_FALSE(derived("kind = \"ring\"")) << "other links";
  EXPECT_EQ(derived(std::regex_replace(base, std::regex("fit"), "own"))->note, "own");
}

/// One section of today was four.
TEST(TopologyFiles, HaveFormerNamesForOneVersionMore) {
  const Topology h100 = find_topology("h100-8");
  std::string former = to_toml(h100);
  for (const auto& [present, name] : std::initializer_list<std::pair<const char*, const char*>>{
           {"\\[library\\.ll128\\]", "[nccl_ll128]"},
           {"\\[library\\.nvls\\]", "[nccl_nvls]"},
           {"\\[library\\]", "[nccl]"},
           {"\"library\\.(ll128|nvls)\\.", "\"nccl_$1."},
           {"\"library\\.", "\"nccl."}}) {
    const std::string renamed = std::regex_replace(former, std::regex(present), name);
    EXPECT_NE(renamed, former) << present;
    former = renamed;
  }
  EXPECT_EQ(parse_topology(former, "former"), h100);
  const std::string network =
      "base = \"h100-8\"\nname = \"mine\"\n[library_network]\nll128 = false\n";
  EXPECT_FALSE(parse_topology(network, "mine").device.library->network.ll128);
  EXPECT_EQ(parse_topology(to_toml(parse_topology(network, "mine")), "again"),
            parse_topology(network, "mine"));
  expect_contains(message_of([&] { parse_topology(former + "\n[library]\n", "both"); }),
                  "sections 'nccl' and 'library' are one; allowed is [library]");
}

/// A number that is said to be another machine's is.
TEST(Topologies, CopiesAreWhatTheyAreCopiesOf) {
  const std::regex copy("as ([a-z0-9-]+)(, fitted|, measured)?");
  std::size_t copies = 0;
  for (const std::string& name : listed_topologies()) {
    for (const NamedQuantity& named : quantities_of(find_topology(name))) {
      std::smatch match;
      if (!std::regex_match(named.quantity.note, match, copy)) continue;
      ++copies;
      for (const NamedQuantity& original : quantities_of(find_topology(match[1].str()))) {
        if (original.key != named.key) continue;
        EXPECT_EQ(named.quantity.value, original.quantity.value)
            << name << ": " << named.key << " is not that of " << match[1];
      }
    }
  }
  EXPECT_GT(copies, 100u);
}

TEST(Base, IsAFileBesideTheOne) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("arlab-base-{}", getpid());
  std::filesystem::create_directories(folder / "deep");
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  write("a.toml", "base = \"deep/b.toml\"\nname = \"a\"\n");
  write("deep/b.toml", "base = \"c.toml\"\nname = \"b\"\ncaveat = \"from b\"\n");
  write("deep/c.toml", "base = \"h200-4\"\nname = \"c\"\n");
  const Topology a = read_topology(folder / "a.toml");
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.caveat, "from b");
  EXPECT_EQ(a.ranks.value, 4u);
  write("deep/c.toml", "base = \"b.toml\"\nname = \"c\"\n");
  expect_contains(message_of([&] { read_topology(folder / "a.toml"); }),
                  "key 'base': more than 8 files build on each other");
  write("deep/c.toml", "base = \"none.toml\"\nname = \"c\"\n");
  expect_contains(message_of([&] { read_topology(folder / "a.toml"); }),
                  "none.toml' cannot be read");
  std::filesystem::remove_all(folder);
}

TEST(Base, ThatIsWrongIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"base = \"h200-9\"\nname = \"a\"", "unknown topology 'h200-9'"},
      {"base = 8\nname = \"a\"", "key 'base': it is an integer, but must be a string"},
      {"base = \"h200-8\"", "missing key 'name'"},
      {"base = \"h200-8\"\nname = \"a\"\nkind = \"numa\"", "missing key 'group_size'"},
      {"base = \"h200-8\"\nname = \"a\"\n[links]\n", "unknown key 'links'"},
  };
  for (const auto& [text, expected] : cases) {
    expect_contains(message_of([text = text] { parse_topology(text, "my.toml"); }), expected);
  }
}

TEST(Servers, ThatDoNotFitTogetherAreRefused) {
  const auto refused = [](Topology t, const std::string& expected) {
    expect_contains(message_of([&] { require_valid(t, "test"); }), expected);
  };
  refused(servers(8, 3),
          "key 'nics.value': 3 network cards are no whole number for each of 4 ranks");
  refused(servers(8, 4, ServerInside::pcie, 3), "key 'pcie_switches.value': 3 do not divide the 4");
  refused(servers(8, 2, ServerInside::switched, 4),
          "some of the 4 have none of the 2 network cards");
  Topology bare = servers(8, 2);
  bare.link_types.pop_back();
  refused(bare, "missing key 'pcie'");
  Topology rooted = servers(8, 2);
  rooted.link_types.push_back({"root", assumed(1), assumed(1)});
  refused(rooted, "key 'root': nothing in such a server is one");
  Topology meshed = servers(8, 1, ServerInside::mesh);
  meshed.link_types.erase(meshed.link_types.begin());
  refused(meshed, "missing key 'link'");
}

/// text with its first `what` replaced.
std::string replaced(std::string text, const std::string& what, const std::string& replacement) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), replacement);
}

TEST(TopologyFile, WrongGraphsAreRefused) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"\"rank0\"", "\"rank4\"", "'edges' 0: there is no rank4; there are rank0 to rank3, switch0"},
      {"\"switch0\"", "\"switch1\"", "'edges' 0: there is no switch1"},
      {"\"rank0\"", "\"gpu0\"", "'edges[0].from': 'gpu0' is no node; allowed are rank0, rank1"},
      {"\"rank0\"", "\"rank\"", "is no node"},
      {"\"rank0\"", "\"rank-1\"", "is no node"},
      {"\"rank0\"", "\"rank0x\"", "is no node"},
      {"\"rank0\"", "\"rank99999999999\"", "is no node"},
      {"\"rank0\"", "0", "'edges[0].from': it is an integer, but must be a string"},
      {"\"rank0\"", "\"switch0\"", "'edges' 0: it leads from switch0 to itself"},
      {"type = \"pcie\"", "type = \"nvlink\"",
       "'edges' 0: unknown type 'nvlink': allowed are pcie"},
      {"domain = \"upstream\"", "domain = \"top\"",
       "unknown domain 'top': sections [domains.NAME] are upstream"},
      {"type = \"pcie\"\n", "", "missing key 'edges[0].type'"},
      {"duplex = false", "duplex = 0", "'edges[1].duplex': it must be true or false"},
      {"duplex = false", "simplex = true", "unknown key 'edges[1].simplex'"},
      {"[[edges]]", "[edges]", "line"},
      {"switches = 1", "switches = -1", "'switches': it must be an integer from 0 to 65536"},
      {"[links.pcie]", "[links.\"pc\\nie\"]", "is no name; allowed are letters, digits"},
      {"[links.pcie]", "[links.\"pc\\u007fie\"]", "is no name; allowed are letters, digits"},
      {"[domains.upstream]", "[domains.\"a b\"]", "'a b' is no name"},
      {"[links.pcie]", "[link.pcie]", "missing key 'links'"},
      {"[domains.upstream]", "[domain.upstream]", "unknown key 'domain'"},
  };
  for (const auto& [what, replacement, expected] : cases) {
    SCOPED_TRACE(fmt::format("{} -> {}", what, replacement));
    const std::string text = replaced(graph(), what, replacement);
    const std::string message = message_of([&] { parse_topology(text, "my.toml"); });
    EXPECT_TRUE(message.starts_with("my.toml: ")) << message;
    expect_contains(message, expected);
  }
}

TEST(TopologyFile, WrongOnesAreRefusedWithFileKeyAndWhatIsAllowed) {
  struct Case {
    const char* what;
    const char* replacement;
    const char* key;      // key in the message
    const char* allowed;  // its text on the key
  };
  const Case cases[] = {
      // out of range
      {"value = 10,", "value = -10,", "'link.bandwidth_gb_per_s.value'", "allowed is 1e-06 to 1"},
      {"value = 10,", "value = 0,", "'link.bandwidth_gb_per_s.value'", "allowed is 1e-06 to 1"},
      {"value = 10,", "value = -0.0,", "'link.bandwidth_gb_per_s.value'", "allowed is 1e-06 to 1"},
      {"value = 10,", "value = nan,", "'link.bandwidth_gb_per_s.value'", "allowed is 1e-06 to 1"},
      {"value = 10,", "value = inf,", "'link.bandwidth_gb_per_s.value'", "allowed is 1e-06 to 1"},
      {"value = 1.0,", "value = -inf,", "'link.latency_us.value'", "allowed is 1e-06 to 1"},
      {"value = 4.0,", "value = 0.0,", "'bridge.bandwidth_gb_per_s.value'",
       "allowed is 1e-06 to 1"},
      {"value = 1.5,", "value = -1,", "'bridge.latency_us.value'", "allowed is 1e-06 to 1"},
      {"value = 5.0,", "value = -5.0,", "'overhead.launch_us.value'", "allowed is 1e-06 to 1"},
      {"value = 2.0,", "value = nan,", "'overhead.step_us.value'", "allowed is 0, or 1e-06 to 1"},
      {"value = 5.0,", "value = 0,", "'overhead.launch_us.value'", "allowed is 1e-06 to 1"},
      {"value = 0.5,", "value = -1,", "'overhead.message_us.value'", "allowed is 0, or 1e-06 to 1"},
      {"value = 40.0,", "value = 0,", "'device.codec_gops_per_s.value'", "allowed is 1e-06 to 1"},
      {"value = 7.0,", "value = -3,", "'device.codec_tile_fixed_ops.value'",
       "allowed is 1e-06 to 1"},
      {"value = 1.25,", "value = 0.99,", "'device.latency_overlap.value'",
       "allowed is 1 (one after the other) to 100"},
      {"value = 100.0,", "value = 101,", "'device.codec_overlap.value'", "to 100"},
      {"value = 100.0,", "value = nan,", "'device.codec_overlap.value'", "to 100"},
      {"value = 0.75,", "value = 1.01,", "'device.all_to_all_efficiency.value'",
       "allowed is 1e-06 to 1"},
      {"value = 0.75,", "value = 0,", "'device.all_to_all_efficiency.value'", "1e-06 to 1"},
      {"value = 0.68,", "value = 2,", "'library.low_latency_efficiency.value'", "1e-06 to 1"},
      {"value = 1216,", "value = 0,", "'stores.resident_tiles.value'", "allowed is 1e-06 to 1"},
      {"value = 2.98,", "value = -1,", "'library.simple_us.value'", "allowed is 1e-06 to 1"},
      {"value = 12.5,", "value = -1,", "'stragglers.0.delay_us.value'", "allowed is 1e-06 to 1"},
      {"rank = 3", "rank = 4", "'stragglers' 0", "there is no rank 4; allowed is 0 to 3"},
      {"rank = 3", "rank = -1", "'stragglers[0].rank'", "integer from 0 to 65535"},
      {"bandwidth_factor = 0.5", "bandwidth_factor = -1", "'faults' 0",
       "allowed are 0 (it does not work) and 1e-06 to 1000000"},
      {"bandwidth_factor = 0.5", "bandwidth_factor = nan", "'faults' 0", "allowed are 0"},
      {"bandwidth_factor = 0.5", "bandwidth_factor = 1e7", "'faults' 0", "allowed are 0"},
      {"bandwidth_factor = 0.5", "", "'faults[0].bandwidth_factor'", "missing key"},
      {"note = \"cable\"", "", "'faults[0].note'", "missing key"},
      {"from = \"switch0\"", "from = \"rank4\"", "'faults' 0",
       "there is no rank4; there are rank0 to rank3, switch0 to switch1 (of the groups)"},
      {"from = \"switch0\"", "from = \"switch4294967295\"", "'faults' 0", "there is no"},
      {"note = \"cable\"",
       "note = \"cable\"\n[[faults]]\nfrom = \"switch0\"\nto = \"switch1\"\nbandwidth_factor = 1\n"
       "note = \"again\"",
       "'faults' 1", "the link from switch0 to switch1 is named twice"},
      {"rank = 3",
       "rank = 3\ndelay_us = { value = 1, source = \"assumed\", note = \"n\" }\n"
       "[[stragglers]]\nrank = 3",
       "'stragglers' 1", "rank 3 is named twice"},
      {"[[faults]]", "[faults]", "'faults'", "must be an array of tables: [[faults]]"},
      {"kind = \"numa\"", "kind = \"numa\"\nshape = [2, 2]", "'shape'", "unknown key"},
      {"kind = \"numa\"", "kind = \"numa\"\nswitches = 2", "'switches'", "unknown key"},
      {"kind = \"numa\"", "kind = \"numa\"\ndevices_forward = 1", "'devices_forward'",
       "true or false"},
      {"[stores]", "[stores]\ncolour = 1", "'stores.colour'",
       "allowed in 'stores' are contention_codec, "},
      {"release_us", "release", "'stores.release_us'", "missing key"},
      {"simple_us", "simpel_us", "missing key 'library.simple_us'",
       "; is 'library.simpel_us' meant to be it?"},
      {"[library]", "[[library]]", "'library'", "an array, but must be a table"},
      {"value = 4,", "value = 0,", "'ranks.value'", "integer from 1 to 65536"},
      {"value = 4,", "value = 65537,", "'ranks.value'", "integer from 1 to 65536"},
      {"value = 4,", "value = 4294967300,", "'ranks.value'", "integer from 1 to 65536"},
      {"value = 4,", "value = -4,", "'ranks.value'", "integer from 1 to 65536"},
      {"value = 2,", "value = 3,", "'group_size.value'", "does not divide the 4 ranks"},
      {"value = 2,", "value = 8,", "'group_size.value'", "does not divide the 4 ranks"},
      // wrong type
      {"name = \"mine\"", "name = 3", "'name'", "is an integer, but must be a string"},
      {"name = \"mine\"", "name = \"\"", "'name'", "must not be empty"},
      {"name = \"mine\"", "name = \"my\\nown\"", "'name'", "must be one line"},
      {"kind = \"numa\"", "kind = \"mesh\"", "'kind'",
       "full_mesh, ring, switch, numa, torus, fat_tree, dragonfly, graph"},
      {"kind = \"numa\"", "kind = [1]", "'kind'", "is an array, but must be a string"},
      {"value = 4,", "value = 4.0,", "'ranks.value'", "integer from 1 to 65536"},
      {"value = 10,", "value = \"10\",", "'link.bandwidth_gb_per_s.value'", "must be a number"},
      {"value = 10,", "value = true,", "'link.bandwidth_gb_per_s.value'", "must be a number"},
      {"value = 10,", "value = 2024-01-01,", "'link.bandwidth_gb_per_s.value'", "a date"},
      {"{ value = 5.0, source = \"assumed\", note = \"n\" }", "5.0", "'overhead.launch_us'",
       "is a floating-point number, but must be a table { value"},
      {"[link]\n", "[link]\nlatency_us.value = 1\n[other]\n", "'link.bandwidth_gb_per_s'",
       "missing key"},
      {"[device]\n", "[device]\n\"codec\\ngops\" = 1\n", "'device.codec gops'", "unknown key"},
      // provenance
      {"source = \"datasheet\"", "source = \"rumour\"", "'link.bandwidth_gb_per_s.source'",
       "datasheet, measured, fitted, published, assumed"},
      {"source = \"datasheet\", ", "", "'link.bandwidth_gb_per_s.source'", "missing key"},
      {", note = \"an integer is a number too\"", "", "'link.bandwidth_gb_per_s.note'", "missing"},
      {"note = \"an integer is a number too\"", "note = \"\"", "'link.bandwidth_gb_per_s.note'",
       "must not be empty"},
      // missing and unknown keys
      {"name = \"mine\"", "", "'name'", "missing key"},
      {"summary = ", "summery = ", "missing key 'summary'", "; is 'summery' meant to be it?"},
      {"value = 10, ", "", "'link.bandwidth_gb_per_s.value'", "missing key"},
      {"[bridge]", "[bridges]", "'bridge'", "missing key"},
      {"codec_tile_us_per_op", "codec_tile", "'device.codec_tile_us_per_op'", "missing key"},
      {"kind = \"numa\"", "kind = \"numa\"\ncolour = \"red\"", "'colour'", "unknown key"},
      {"[link]", "[link]\nspeed = 3", "'link.speed'",
       "allowed in 'link' are bandwidth_gb_per_s, latency_us"},
      {"value = 10,", "value = 10, unit = \"GB/s\",", "'link.bandwidth_gb_per_s.unit'",
       "are value, source, note"},
      {"kind = \"numa\"", "kind = \"switch\"", "'bridge'", "unknown key"},
      // not TOML
      {"[link]", "[link", "line 7", "column"},
      {"value = 10,", "value = ,", "line 8", "column"},
      {"name = \"mine\"", "name = \"mine\"\nname = \"yours\"", "line 3", "column"},
      {"name = \"mine\"", "name = \"\xff\"", "line 2", "column"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.what) + " -> " + c.replacement);
    const std::string message =
        message_of([&] { parse_topology(replaced(kNuma, c.what, c.replacement), "my.toml"); });
    EXPECT_TRUE(message.starts_with("my.toml: ")) << message;
    expect_contains(message, c.key);
    expect_contains(message, c.allowed);
  }
  expect_contains(message_of([] { parse_topology("", "my.toml"); }), "missing key 'name'");
}

TEST(TopologyFile, IsFoundByItsPath) {
  const auto directory =
      std::filesystem::path(testing::TempDir()) / "arlab_topology_file_is_found_by_its_path";
  std::filesystem::create_directories(directory / "folder.toml");
  const auto path = directory / "mine.toml";
  std::ofstream(path) << kNuma;
  EXPECT_EQ(find_topology(path.string()).name, "mine");
  expect_contains(message_of([&] { find_topology((directory / "folder.toml").string()); }),
                  "cannot be read");
  std::filesystem::remove_all(directory);
}

TEST(TopologyFile, WrongShapesAreRefused) {
  const auto refused = [](const std::string& text) {
    return message_of([&] { parse_topology(text, "my.toml"); });
  };
  const auto torus = [&](const char* shape) {
    return refused(of_kind("torus", fmt::format("shape = {}\n", shape), ""));
  };
  expect_contains(torus("[2, 3]"), "key 'shape': its extents multiply to 6, not to the 4 ranks");
  expect_contains(torus("[65536, 65536, 65536, 65536]"), "not to the 4 ranks");
  for (const char* shape : {"[]", "4", "\"2x2\"", "[1, 1, 1, 1, 1, 1, 4]"}) {
    expect_contains(torus(shape), "key 'shape': it must be an array of 1 to 6 integers");
  }
  for (const char* shape : {"[0]", "[-2, -2]", "[2.0, 2]", "[65537]", "[[4]]"}) {
    expect_contains(torus(shape), "key 'shape': it must be an integer from 1 to 65536");
  }
  expect_contains(refused(of_kind("torus", "", "")), "missing key 'shape'");

  const std::string tree = links("nic", 25) + links("uplink", 100);
  expect_contains(refused(of_kind("fat_tree", count("group_size", 2), tree)),
                  "missing key 'leaf_servers'");
  expect_contains(
      refused(of_kind("fat_tree", count("group_size", 3) + count("leaf_servers", 1), tree)),
      "'group_size.value': 3 does not divide the 4 ranks");
  expect_contains(
      refused(of_kind("fat_tree", count("group_size", 2) + count("leaf_servers", 0), tree)),
      "'leaf_servers.value': it must be an integer from 1 to 65536");
  expect_contains(refused(of_kind("fat_tree", count("group_size", 2) + count("leaf_servers", 1),
                                  links("nic", 25))),
                  "missing key 'uplink'");
  const std::string between = links("local", 30) + links("global", 20);
  expect_contains(
      refused(
          of_kind("dragonfly", count("group_size", 65536) + count("ranks_per_router", 2), between)),
      "131072 ranks in a group are out of range; allowed is 1 to 65536");
}

/// Four billion links would take all memory before anybody looks at them.
TEST(TopologyFile, TooManyLinksAreRefused) {
  Topology t = machine(TopologyKind::numa, 65536, 1);
  expect_contains(message_of([&] { require_valid(t, "my.toml"); }),
                  "my.toml: key 'group_size.value': groups of 1 make 4294901760 links between "
                  "switches; allowed are 4194304");
  EXPECT_NO_THROW(require_valid(machine(TopologyKind::numa, 65536, 32), "my.toml"));
  t = machine(TopologyKind::dragonfly, 65536, 1);
  expect_contains(message_of([&] { require_valid(t, "my.toml"); }), "allowed are 4194304");
  t = machine(TopologyKind::dragonfly, 65536, 65536);
  expect_contains(message_of([&] { require_valid(t, "my.toml"); }), "allowed are 4194304");
  EXPECT_NO_THROW(require_valid(find_topology("dragonfly:65536"), "my.toml"));
}

}  // namespace
}  // namespace arlab

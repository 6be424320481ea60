// Machine files: those that ship, those that are wrong, and the links and routes they stand for.

#include "sim/topology/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

namespace arlab {
namespace {

/// what() of the InvalidInput that `action` throws; fails the test when it throws none or more than
/// one line.
template <class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const InvalidInput& error) {
    std::string what = error.what();
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    return what;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

// ---------------------------------------------------------------- machines that ship

TEST(Machines, AreAllListed) {
  const std::vector<std::string> names = listed_topologies();
  for (const char* name : {"mi300x-8", "mi300x-4", "mi300x-2", "h200-2", "h200-4", "h200-8",
                           "h800-8", "a100-8", "h20-8", "l40-8"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST(Machines, LoadAndSayWhereEveryNumberComesFrom) {
  for (const std::string& name : listed_topologies()) {
    SCOPED_TRACE(name);
    const Topology topology = find_topology(name);
    EXPECT_EQ(topology.name, name);
    EXPECT_FALSE(topology.summary.empty());
    EXPECT_FALSE(topology.device.empty());
    EXPECT_TRUE(name.ends_with(fmt::format("-{}", topology.ranks.value)));
    const auto quantities = quantities_of(topology);
    EXPECT_EQ(quantities.size(), topology.kind == TopologyKind::numa ? 11u : 8u);
    for (const NamedQuantity& named : quantities) {
      EXPECT_GT(named.quantity.value, 0) << named.key;
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

/// mi300x-2 and -4 are part of the same machine as mi300x-8, and so on.
TEST(Machines, OfOneDeviceHaveTheSameQuantities) {
  for (const auto& [small, large] : {std::pair{"mi300x-2", "mi300x-8"},
                                     {"mi300x-4", "mi300x-8"},
                                     {"h200-2", "h200-8"},
                                     {"h200-4", "h200-8"}}) {
    const auto a = quantities_of(find_topology(small));
    const auto b = quantities_of(find_topology(large));
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 1; i < a.size(); ++i) {  // 0 is the number of ranks
      EXPECT_EQ(a[i].quantity.value, b[i].quantity.value) << small << " " << a[i].key;
    }
  }
}

// ---------------------------------------------------------------- topologies by name

TEST(FindTopology, Generates) {
  EXPECT_EQ(find_topology("full:16").ranks.value, 16u);
  EXPECT_EQ(find_topology("full:16").kind, TopologyKind::full_mesh);
  EXPECT_EQ(find_topology("ring:1024").kind, TopologyKind::ring);
  for (const NamedQuantity& named : quantities_of(find_topology("ring:8"))) {
    EXPECT_EQ(named.quantity.source, Source::assumed) << named.key;
    EXPECT_FALSE(named.quantity.note.empty()) << named.key;
  }
}

TEST(FindTopology, RefusesOtherNames) {
  const std::pair<const char*, const char*> cases[] = {
      {"mi300x", "unknown topology 'mi300x': known are a100-8"},
      {"", "unknown topology ''"},
      {"mesh:8", "unknown topology 'mesh:8'"},
      {"full:0", "allowed is 1 to 1024"},
      {"full:1025", "allowed is 1 to 1024"},
      {"ring:", "allowed is 1 to 1024"},
      {"ring:-4", "allowed is 1 to 1024"},
      {"ring:8x8", "allowed is 1 to 1024"},
      {"ring:99999999999999999999", "allowed is 1 to 1024"},
      {"torus:4x4x4", "the closed-form model does not know torus yet"},
      {"fat_tree:16", "the closed-form model does not know fat_tree yet"},
      {"dragonfly:72", "the closed-form model does not know dragonfly yet"},
      {"/no/such/file.toml", "topology file '/no/such/file.toml' cannot be read"},
  };
  for (const auto& [name, expected] : cases) {
    expect_contains(message_of([&, n = name] { find_topology(n); }), expected);
  }
}

// ---------------------------------------------------------------- files

constexpr const char* kNuma = R"(
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
[overhead]
launch_us = { value = 5.0, source = "assumed", note = "n" }
step_us = { value = 2.0, source = "assumed", note = "n" }
message_us = { value = 0.5, source = "assumed", note = "n" }
[device]
name = "accelerator"
codec_gops_per_s = { value = 40.0, source = "assumed", note = "n" }
codec_startup_us = { value = 3.0, source = "assumed", note = "n" }
)";

TEST(TopologyFile, IsReadAsWritten) {
  const Topology t = parse_topology(kNuma, "test");
  EXPECT_EQ(t.name, "mine");
  EXPECT_EQ(t.summary, "a machine under test");
  EXPECT_EQ(t.kind, TopologyKind::numa);
  EXPECT_EQ(t.ranks.value, 4u);
  EXPECT_EQ(t.group_size.value, 2u);
  EXPECT_EQ(t.link_bandwidth_gb_per_s.value, 10);
  EXPECT_EQ(t.link_bandwidth_gb_per_s.source, Source::datasheet);
  EXPECT_EQ(t.link_bandwidth_gb_per_s.note, "an integer is a number too");
  EXPECT_EQ(t.link_latency_us.value, 1);
  EXPECT_EQ(t.link_latency_us.source, Source::measured);
  EXPECT_EQ(t.bridge_bandwidth_gb_per_s.value, 4);
  EXPECT_EQ(t.bridge_bandwidth_gb_per_s.source, Source::published);
  EXPECT_EQ(t.bridge_latency_us.value, 1.5);
  EXPECT_EQ(t.bridge_latency_us.source, Source::fitted);
  EXPECT_EQ(t.launch_overhead_us.value, 5);
  EXPECT_EQ(t.step_overhead_us.value, 2);
  EXPECT_EQ(t.message_overhead_us.value, 0.5);
  EXPECT_EQ(t.device, "accelerator");
  EXPECT_EQ(t.codec_gops_per_s.value, 40);
  EXPECT_EQ(t.codec_startup_us.value, 3);
}

/// kNuma with its first `what` replaced.
std::string with(const std::string& what, const std::string& replacement) {
  std::string text = kNuma;
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), replacement);
}

TEST(TopologyFile, WrongOnesAreRefusedWithFileKeyAndWhatIsAllowed) {
  struct Case {
    const char* what;
    const char* replacement;
    const char* key;      // that the message names
    const char* allowed;  // what it says of it
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
      {"value = 2.0,", "value = nan,", "'overhead.step_us.value'", "allowed is 1e-06 to 1"},
      {"value = 0.5,", "value = 0,", "'overhead.message_us.value'", "allowed is 1e-06 to 1"},
      {"value = 40.0,", "value = 0,", "'device.codec_gops_per_s.value'", "allowed is 1e-06 to 1"},
      {"value = 3.0,", "value = -3,", "'device.codec_startup_us.value'", "allowed is 1e-06 to 1"},
      {"value = 4,", "value = 0,", "'ranks.value'", "integer from 1 to 1024"},
      {"value = 4,", "value = 1025,", "'ranks.value'", "integer from 1 to 1024"},
      {"value = 4,", "value = 4294967300,", "'ranks.value'", "integer from 1 to 1024"},
      {"value = 4,", "value = -4,", "'ranks.value'", "integer from 1 to 1024"},
      {"value = 2,", "value = 3,", "'group_size.value'", "does not divide the 4 ranks"},
      {"value = 2,", "value = 8,", "'group_size.value'", "does not divide the 4 ranks"},
      // wrong type
      {"name = \"mine\"", "name = 3", "'name'", "is an integer, but must be a string"},
      {"name = \"mine\"", "name = \"\"", "'name'", "must not be empty"},
      {"name = \"mine\"", "name = \"my\\nown\"", "'name'", "must be one line"},
      {"kind = \"numa\"", "kind = \"mesh\"", "'kind'", "full_mesh, ring, switch, numa"},
      {"kind = \"numa\"", "kind = [1]", "'kind'", "is an array, but must be a string"},
      {"value = 4,", "value = 4.0,", "'ranks.value'", "integer from 1 to 1024"},
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
      {"summary = ", "summery = ", "'summary'", "missing key"},
      {"value = 10, ", "", "'link.bandwidth_gb_per_s.value'", "missing key"},
      {"[bridge]", "[bridges]", "'bridge'", "missing key"},
      {"codec_startup_us", "codec_startup", "'device.codec_startup_us'", "missing key"},
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
        message_of([&] { parse_topology(with(c.what, c.replacement), "my.toml"); });
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

// ---------------------------------------------------------------- links and routes

std::vector<std::string> way(const Topology& topology, Rank from, Rank to) {
  const std::vector<Link> links = links_of(topology);
  std::vector<std::string> names;
  for (const LinkId id : route_between(topology, from, to).links) {
    names.push_back(describe(links.at(id)));
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(Routes, InAFullMeshAreOneLink) {
  const Topology t = find_topology("full:4");
  EXPECT_EQ(links_of(t).size(), 12u);
  EXPECT_EQ(way(t, 0, 1), Names{"link 0->1"});
  EXPECT_EQ(way(t, 3, 0), Names{"link 3->0"});
  EXPECT_EQ(way(t, 2, 3), Names{"link 2->3"});
}

TEST(Routes, InTheLargestMeshAreStillOneLink) {
  const Topology t = find_topology("full:1024");
  EXPECT_EQ(links_of(t).size(), 1024u * 1023);
  EXPECT_EQ(way(t, 1023, 1022), Names{"link 1023->1022"});
}

TEST(Routes, InARingGoTheShorterWayAndUpwardsWhenEqual) {
  const Topology t = find_topology("ring:4");
  EXPECT_EQ(links_of(t).size(), 8u);
  EXPECT_EQ(way(t, 3, 0), Names{"link 3->0"});
  EXPECT_EQ(way(t, 0, 3), Names{"link 0->3"});
  EXPECT_EQ(way(t, 3, 1), (Names{"link 3->0", "link 0->1"}));
  EXPECT_EQ(route_between(t, 3, 1).latency_us, 2 * t.link_latency_us.value);
  EXPECT_EQ(way(find_topology("ring:5"), 1, 4), (Names{"link 1->0", "link 0->4"}));
}

TEST(Routes, ThroughASwitchArePortToPort) {
  const Topology t = find_topology("h200-4");
  EXPECT_EQ(links_of(t).size(), 8u);
  EXPECT_EQ(way(t, 1, 3), (Names{"port out of 1", "port into 3"}));
}

TEST(Routes, AcrossGroupsTakeTheBridge) {
  const Topology t = find_topology("l40-8");
  EXPECT_EQ(links_of(t).size(), 18u);
  EXPECT_EQ(way(t, 0, 3), (Names{"port out of 0", "port into 3"}));
  EXPECT_EQ(way(t, 3, 4), (Names{"port out of 3", "bridge 0->1", "port into 4"}));
  EXPECT_EQ(way(t, 7, 0), (Names{"port out of 7", "bridge 1->0", "port into 0"}));
  EXPECT_EQ(route_between(t, 0, 3).latency_us, t.link_latency_us.value);
  EXPECT_EQ(route_between(t, 3, 4).latency_us, t.link_latency_us.value + t.bridge_latency_us.value);
}

/// For every ordered pair of ranks, whatever the kind: a route joins up, and no two pairs of a mesh
/// share a link.
TEST(Routes, LeadFromTheSenderToTheReceiver) {
  for (const char* name : {"full:1", "full:7", "ring:2", "ring:7", "ring:8", "h800-8", "l40-8"}) {
    SCOPED_TRACE(name);
    const Topology t = find_topology(name);
    const std::vector<Link> links = links_of(t);
    std::set<LinkId> seen;
    for (Rank from = 0; from < t.ranks.value; ++from) {
      for (Rank to = 0; to < t.ranks.value; ++to) {
        if (from == to) continue;
        const Route route = route_between(t, from, to);
        ASSERT_FALSE(route.links.empty());
        EXPECT_EQ(links.at(route.links.front()).from, from);
        EXPECT_EQ(links.at(route.links.back()).to, to);
        if (t.kind == TopologyKind::ring) {
          EXPECT_LE(route.links.size(), t.ranks.value / 2);
          for (std::size_t i = 1; i < route.links.size(); ++i) {
            EXPECT_EQ(links[route.links[i - 1]].to, links[route.links[i]].from);
          }
        }
        if (t.kind == TopologyKind::full_mesh) {
          EXPECT_TRUE(seen.insert(route.links[0]).second);
        }
      }
    }
  }
}

}  // namespace
}  // namespace arlab

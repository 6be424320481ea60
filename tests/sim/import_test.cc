// Machines out of what other tools say: each sample by hand, and what is wrong is refused.

#include "sim/topology/import.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "sim/topology/fabric.h"
#include "sim/topology/routes.h"
#include "tests/refusal.h"

namespace arlab {
namespace {

std::string sample(const char* name) {
  std::ifstream file(fmt::format("{}/{}", ARLAB_IMPORTS, name));
  EXPECT_TRUE(file) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Topology imported(const char* name, const ImportOptions& options = {}) {
  return import_topology(sample(name), name, options);
}

std::size_t hops(const Topology& t, Rank from, Rank to) {
  const Fabric fabric(t);
  return Routes(fabric).route(from, to).size();
}

TEST(NvidiaSmi, OfADgxIsASwitch) {
  const Topology t = imported("dgx.txt");
  EXPECT_EQ(t.kind, TopologyKind::switched);
  EXPECT_EQ(t.ranks.value, 8u);
  EXPECT_DOUBLE_EQ(t.link_type("link").bandwidth_gb_per_s.value, 18 * 20.6);
  EXPECT_EQ(t.link_type("link").bandwidth_gb_per_s.source, Source::assumed);
  EXPECT_EQ(t.device, generic_device());
  EXPECT_EQ(parse_topology(to_toml(t), "again"), t);
}

TEST(NvidiaSmi, WithABaseHasItsDeviceAndLinks) {
  const Topology base = find_topology("h200-8");
  const Topology t = imported("dgx.txt", {.name = "mine", .base = base});
  EXPECT_EQ(t.name, "mine");
  EXPECT_EQ(t.device, base.device);
  EXPECT_EQ(t.link_types, base.link_types) << "both are switches";
}

/// 4 cards, each behind one PCIe switch with two GPUs.
TEST(NvidiaSmi, AsSeveralServersKnowsWhoSharesACard) {
  const Topology t = imported("dgx.txt", {.servers = 2});
  EXPECT_EQ(t.kind, TopologyKind::fat_tree);
  EXPECT_EQ(t.inside, ServerInside::switched);
  EXPECT_EQ(t.ranks.value, 16u);
  EXPECT_EQ(t.nics.value, 4u);
  EXPECT_EQ(server_of(t).hubs, 4u);
  EXPECT_EQ(hops(t, 0, 1), 2u) << "NVLink";
  EXPECT_EQ(hops(t, 0, 9), 4u) << "PCIe, card, card, PCIe";
}

/// GPUs in pairs behind PCIe switches, two of these on each of two NUMA nodes, whose root complexes are
/// their own: NODE, not PHB.
TEST(NvidiaSmi, OfAPcieServerIsAGraph) {
  const Topology t = imported("pcie.txt");
  EXPECT_EQ(t.kind, TopologyKind::graph);
  EXPECT_EQ(t.switches, 4u + 4u);
  EXPECT_EQ(t.edges.size(), 8u + 4u + 6u);
  EXPECT_TRUE(t.link_type("upstream").root_port);
  EXPECT_EQ(hops(t, 0, 1), 2u);
  EXPECT_EQ(hops(t, 0, 2), 5u) << "two root complexes of one node";
  EXPECT_EQ(hops(t, 0, 7), 5u) << "from node to node";
  EXPECT_EQ(default_group_size(t, 8), 4u) << "pairs are too few: two of them";
  const Topology servers = imported("pcie.txt", {.servers = 3});
  EXPECT_EQ(servers.inside, ServerInside::pcie);
  EXPECT_EQ(servers.pcie_switches.value, 4u);
  EXPECT_EQ(servers.nics.value, 1u);
  EXPECT_EQ(servers.ranks.value, 24u);
  EXPECT_EQ(hops(servers, 6, 15), 8u) << "both over the root complex, one card each";
}

/// GPUs 0 and 1 behind one switch, 2 behind none; PHB is the same root complex.
TEST(NvidiaSmi, TellsRootComplexesFromNodes) {
  const Topology t = import_topology(
      "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tPIX\tPHB\t0\nGPU1\tPIX\tX\tPHB\t0\nGPU2\tPHB\tPHB\tX\t0\n",
      "it", {});
  EXPECT_EQ(t.switches, 1u + 1u);
  EXPECT_EQ(hops(t, 0, 2), 3u);
}

TEST(NvidiaSmi, TakesRatesFromWhatGoesWithTheMatrix) {
  const auto with = [](const char* more) {
    return import_topology(sample("pcie.txt") + more, "it", {});
  };
  const auto pcie = [](const Topology& t) { return t.link_type("pcie").bandwidth_gb_per_s; };
  EXPECT_EQ(pcie(with("")).source, Source::assumed);
  const Topology queried = with("pcie.link.gen.max, pcie.link.width.max\n5, 16\n5, 16\n");
  EXPECT_DOUBLE_EQ(pcie(queried).value, 48);
  EXPECT_EQ(pcie(queried).source, Source::published);
  EXPECT_DOUBLE_EQ(queried.link_type("upstream").bandwidth_gb_per_s.value, 48);
  const Topology listed = with(
      "01:00.0 Infiniband controller: Mellanox [ConnectX-7]\n\tLnkCap:\tSpeed 32GT/s, Width x16\n"
      "c1:00.0 3D controller: NVIDIA Corporation\n\tLnkCap:\tPort #0, Speed 16GT/s, Width x8\n");
  EXPECT_DOUBLE_EQ(pcie(listed).value, 12);
  EXPECT_EQ(pcie(with("pcie.link.gen.max, pcie.link.width.max\n9, 16\n")).source, Source::assumed);
  const ImportOptions two{.servers = 2};
  EXPECT_DOUBLE_EQ(import_topology(sample("pcie.txt") + "[ConnectX-7]", "it", two)
                       .link_type("nic")
                       .bandwidth_gb_per_s.value,
                   50);
}

TEST(NvidiaSmi, OfNvlinksBetweenSomeIsAGraphOfBoth) {
  const Topology t = imported("hybrid.txt");
  EXPECT_EQ(t.kind, TopologyKind::graph);
  EXPECT_TRUE(t.has_link_type("nvlink1"));
  EXPECT_EQ(t.link_type("nvlink2").bandwidth_gb_per_s.value,
            2 * t.link_type("nvlink1").bandwidth_gb_per_s.value);
  EXPECT_EQ(hops(t, 0, 1), 1u);
  EXPECT_GT(hops(t, 0, 3), 1u) << "SYS: over PCIe, not through a GPU";
}

TEST(Nccl, SaysRatesToo) {
  const Topology t = imported("nccl.xml");
  EXPECT_EQ(t.kind, TopologyKind::switched);
  EXPECT_EQ(t.ranks.value, 8u);
  EXPECT_DOUBLE_EQ(t.link_type("link").bandwidth_gb_per_s.value, 18 * 20.6);
  EXPECT_EQ(t.link_type("link").bandwidth_gb_per_s.source, Source::published);
  const Topology servers = imported("nccl.xml", {.servers = 2});
  EXPECT_EQ(servers.nics.value, 4u);
  EXPECT_DOUBLE_EQ(servers.link_type("nic").bandwidth_gb_per_s.value, 50);
  EXPECT_DOUBLE_EQ(servers.link_type("pcie").bandwidth_gb_per_s.value, 48);
  EXPECT_DOUBLE_EQ(servers.link_type("uplink").bandwidth_gb_per_s.value,
                   2.0 * server_of(servers).cards_per_rail * 50)
      << "what the cards of both servers bring to a leaf";
}

TEST(AstraSim, OfOneDimensionOrOfRingsIsAKindOfOurs) {
  const auto of = [](const std::string& text) { return import_topology(text, "net.yml", {}); };
  const Topology ring =
      of("topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n");
  EXPECT_EQ(ring.kind, TopologyKind::ring);
  EXPECT_DOUBLE_EQ(ring.link_type("link").bandwidth_gb_per_s.value, 50 * 1.073741824);
  EXPECT_DOUBLE_EQ(ring.link_type("link").latency_us.value, 0.5);
  const Topology mesh =
      of("topology: FullyConnected\nnpus_count: 4\nbandwidth: 50.5\nlatency: 1e3\n");
  EXPECT_EQ(mesh.kind, TopologyKind::full_mesh);
  EXPECT_DOUBLE_EQ(mesh.link_type("link").latency_us.value, 1);
  const Topology one = of("topology: [Switch]\nnpus_count: [4]\nbandwidth: [50]\nlatency: [500]\n");
  EXPECT_EQ(one.kind, TopologyKind::switched);
  EXPECT_DOUBLE_EQ(one.link_type("link").latency_us.value, 1) << "to the switch and from it";
  const Topology torus = imported("astra.toml");
  EXPECT_EQ(torus.kind, TopologyKind::torus);
  EXPECT_EQ(torus.shape, (std::vector<Rank>{2, 4, 4})) << "the first dimension is the fastest";
}

/// Servers of 4 ranks on a switch; rank i of both is linked.
TEST(AstraSim, OfSeveralDimensionsIsAGraph) {
  const Topology t = imported("astra.yml");
  EXPECT_EQ(t.kind, TopologyKind::graph);
  EXPECT_TRUE(t.devices_forward);
  EXPECT_EQ(t.switches, 2u);
  EXPECT_EQ(t.edges.size(), 8u + 4u);
  EXPECT_EQ(hops(t, 0, 3), 2u);
  EXPECT_EQ(hops(t, 1, 5), 1u);
  EXPECT_EQ(hops(t, 0, 5), 3u);
  EXPECT_EQ(default_group_size(t, 8), 4u);
}

TEST(Import, RefusesWhatIsWrong) {
  const auto refused = [](const std::string& text, const std::string& expected,
                          const ImportOptions& options = {}) {
    const std::string message = message_of([&] { import_topology(text, "it", options); });
    EXPECT_TRUE(message.starts_with("it: ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    expect_contains(message, expected);
  };
  refused("nonsense", "it looks like nothing that can be imported");
  refused("\tGPU0\tGPU1\nGPU0\tX\tNV4\n", "2 columns of GPUs, but only 1 rows");
  refused("\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV2\tX\n",
          "row GPU1: to GPU0 it says NV2, the other way NV4");
  refused("\tGPU0\tGPU1\nGPU0\tX\tABC\nGPU1\tABC\tX\n",
          "'ABC' is no connection; allowed are X, NV1");
  refused("\tGPU0\tGPU1\nGPU0\tX\nGPU1\tNV1\tX\n", "row GPU0: 1 entries for 2 columns");
  refused("\tGPU0\tGPU2\nGPU0\tX\tNV1\n", "column 1 is 'GPU2'; expected is GPU1");
  refused("\tGPU0\tGPU1\nGPU0\tPIX\tNV1\nGPU1\tNV1\tX\n", "X belongs on the diagonal");
  refused("<system><cpu>", "not XML, at byte");
  refused("<system/>", "there is no <gpu>");
  refused(sample("nccl.xml"), "there is no line that begins with GPU0",
          {.format = ImportFormat::nvidia_smi});
  refused("topology: [ Mesh ]\nnpus_count: [ 8 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n",
          "'Mesh' is unknown; allowed are Ring, FullyConnected, Switch");
  refused("topology: [ Ring ]\nnpus_count: [ 8, 2 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n",
          "key 'npus_count': 2 values for 1 dimensions");
  refused("topology: [ Ring ]\nnpus_count: [ 8.5 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n",
          "no whole number");
  refused("topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ -1 ]\nlatency: [ 500 ]\n",
          "key 'bandwidth': '-1' is out of range");
  refused("topology: [ Ring ]\nnpus_count: [ 8 ]\n", "missing key 'bandwidth'");
  refused(
      "topology: [ Ring, Ring ]\nnpus_count: [ 512, 512 ]\nbandwidth: [ 1, 1 ]\nlatency: [ 1, 1 "
      "]\n",
      "more than 65536 ranks");
  refused("topology: [ Ring\nnpus_count: [ 8 ]\n", "line ");
  refused("topology = [\"Ring\"\nnpus_count = 8\n", "line ");
  refused("topology: " + std::string(5000, '['), "nest deeper than 8",
          {.format = ImportFormat::astra_sim});
  refused(sample("hybrid.txt"), "--servers is for servers whose GPUs are all linked",
          {.servers = 2});
  refused(sample("astra.yml"), "--servers is for what describes a server", {.servers = 2});
}

}  // namespace
}  // namespace arlab

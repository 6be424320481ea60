// Machines out of what other tools say: each sample by hand, and what is wrong is refused.

#include "sim/topology/import.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "sim/simulator.h"
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

double ring_gb_per_s(const Topology& t) {
  const CodecPtr codec = find_codec("fp16");
  const ScheduleRequest request{.world_size = t.ranks.value,
                                .elements = std::uint64_t{1} << 25,
                                .alignment = codec->info().alignment};
  return simulate({find_algorithm("ring"), request, *codec, DType::fp16, t}).busbw_gb_per_s;
}

TEST(NvidiaSmi, OfADgxIsASwitch) {
  const Topology t = imported("dgx.txt");
  EXPECT_EQ(t.kind, TopologyKind::switched);
  EXPECT_EQ(t.ranks.value, 8u);
  EXPECT_DOUBLE_EQ(t.link_type("link").bandwidth_gb_per_s.value, 18 * 20.6);
  EXPECT_EQ(t.link_type("link").bandwidth_gb_per_s.source, Source::assumed);
  Device kernels = find_topology("h100-8").device;
  kernels.name = generic_device().name;
  kernels.hbm_gb_per_s = generic_device().hbm_gb_per_s;
  kernels.memory_gb = generic_device().memory_gb;
  kernels.library.reset();
  kernels.compute.reset();
  EXPECT_EQ(t.device, kernels) << "of the nearest machine where kernels were measured";
  EXPECT_EQ(t.guessed_below_bytes, kGuessedBelowBytes);
  EXPECT_EQ(parse_topology(to_toml(t), "again"), t);
}

TEST(NvidiaSmi, WithABaseHasItsDeviceAndLinks) {
  const Topology base = find_topology("h200-8");
  const Topology t = imported("dgx.txt", {.name = "mine", .base = base});
  EXPECT_EQ(t.name, "mine");
  EXPECT_EQ(t.device, base.device);
  EXPECT_EQ(t.link_types, base.link_types) << "both are switches";
  EXPECT_EQ(t.guessed_below_bytes, 0u);
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

/// Every GPU's link is read, not the first one's for all.
TEST(NvidiaSmi, TakesTheLinkOfEveryGpu) {
  const std::string matrix =
      "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tPHB\tPHB\t0\nGPU1\tPHB\tX\tPHB\t0\nGPU2\tPHB\tPHB\tX\t0\n\n";
  const std::string listed =
      "01:00.0 VGA compatible controller: NVIDIA Corporation AD102\n\tSubsystem: NVIDIA "
      "Corporation\n"
      "\tLnkCap:\tPort #0, Speed 16GT/s, Width x16\n01:00.1 Audio device: NVIDIA Corporation\n"
      "\tLnkCap:\tPort #0, Speed 16GT/s, Width x2\n"
      "02:00.0 VGA compatible controller: NVIDIA Corporation AD102\n"
      "\tLnkCap:\tPort #0, Speed 16GT/s, Width x8\n"
      "03:00.0 VGA compatible controller: NVIDIA Corporation AD102\n"
      "\tLnkCap:\tPort #0, Speed 8GT/s, Width x4\n";
  for (const std::string& more :
       {listed,
        std::string(
            "index, pcie.link.width.max, pcie.link.gen.max\n0, 16, 4\n1, 8, 4\n2, 4, 3\n")}) {
    const Topology t = import_topology(matrix + more, "it", {});
    ASSERT_EQ(t.edges.size(), 3u) << more;
    EXPECT_DOUBLE_EQ(t.link_type(t.edges[0].type).bandwidth_gb_per_s.value, 24);
    EXPECT_DOUBLE_EQ(t.link_type(t.edges[1].type).bandwidth_gb_per_s.value, 12);
    EXPECT_DOUBLE_EQ(t.link_type(t.edges[2].type).bandwidth_gb_per_s.value, 3);
    EXPECT_EQ(t.link_type(t.edges[2].type).bandwidth_gb_per_s.source, Source::published);
  }
  const Topology fewer =
      import_topology(matrix + "pcie.link.gen.max, pcie.link.width.max\n4, 16\n4, 4\n", "it", {});
  EXPECT_DOUBLE_EQ(fewer.link_type("pcie").bandwidth_gb_per_s.value, 6) << "the slowest";
  EXPECT_EQ(fewer.link_type("pcie").bandwidth_gb_per_s.source, Source::assumed);
}

/// As pages and mails show it: bars, rules, bold words, columns without the blank between them.
TEST(NvidiaSmi, IsReadAsPeoplePasteIt) {
  const Topology plain = import_topology(
      "\tGPU0\tGPU1\tGPU2\tNIC0\tNIC1\nGPU0\tX\tNV4\tNV4\tPIX\tSYS\nGPU1\tNV4\tX\tNV4\tPIX\tSYS\n"
      "GPU2\tNV4\tNV4\tX\tPIX\tSYS\n",
      "it", {.servers = 2});
  EXPECT_EQ(plain.inside, ServerInside::mesh);
  for (const char* text :
       {"  | GPU0 | GPU1 | GPU2 | NIC0 | NIC1 | CPU Affinity\n-- | -- | :-: | -- | -- | --\n"
        "GPU0 | X | NV4 | NV4 | PIX | SYS | 0-63\nGPU1 | NV4 | X | NV4 | PIX | SYS | 0-63\n"
        "GPU2 | NV4 | NV4 | X | PIX | SYS | 0-63\n",
        "| | **GPU0** | **GPU1** | **GPU2** | NIC0 | NIC1 |\n|---|---|---|---|---|---|\n"
        "| GPU0 | X | NV4 | NV4 | PIX | SYS |\n| GPU1 | NV4 | X | NV4 | PIX | SYS |\n"
        "| `GPU2` | NV4 | NV4 | X | PIX | SYS |\n",
        "> GPU0 GPU1 GPU2 NIC0NIC1CPU Affinity\n> GPU0 X NV4 NV4 PIXSYS 0-63\n"
        "> GPU1NV4 X NV4 PIXSYS 0-63\n> GPU2 NV4NV4 X PIX SYS0-63\n",
        "\u00a0\u2502GPU0\u2502GPU1\u2502GPU2\u2502NIC0\u2502NIC1\n"
        "GPU0\u2502X\u2502NV4\u2502NV4\u2502PIX\u2502SYS\nGPU1\u2502NV4\u2502X\u2502NV4\u2502PIX"
        "\u2502SYS\n"
        "GPU2\u2502NV4\u2502NV4\u2502X\u2502PIX\u2502SYS\n"}) {
    EXPECT_EQ(import_topology(text, "it", {.servers = 2}), plain) << text;
  }
}

/// A server's matrix whose GPU i is near card i, and which has more cards, as most servers do.
std::string matrix_with_cards(const std::vector<std::string>& nearest, Rank gpus = 8) {
  std::string text = " ";
  for (Rank g = 0; g < gpus; ++g) text += fmt::format(" GPU{}", g);
  for (std::size_t c = 0; c < nearest.size(); ++c) text += fmt::format(" NIC{}", c);
  for (Rank g = 0; g < gpus; ++g) {
    text += fmt::format("\nGPU{}", g);
    for (Rank other = 0; other < gpus; ++other) text += g == other ? " X" : " NV18";
    Rank near = 0;  // the next GPU that has a card of its own
    for (const std::string& distance : nearest) {
      const bool own = distance == "PIX" || distance == "PXB";
      text += " " + (!own || near++ % gpus == g ? distance : std::string("SYS"));
    }
  }
  return text + "\n";
}

/// 9, 10 and 12 cards of an HGX H100 or a DGX A100: those of the front end and of storage carry nothing.
TEST(NvidiaSmi, ServersHaveTheCardsThatAreClosestToGpus) {
  using Cards = std::vector<std::string>;
  const auto of = [](const Cards& cards) {
    return import_topology(matrix_with_cards(cards), "it", {.servers = 2});
  };
  const Cards eight(8, "PIX");
  const auto with = [&](Cards before, const Cards& after) {
    before.insert(before.end(), eight.begin(), eight.end());
    before.insert(before.end(), after.begin(), after.end());
    return before;
  };
  EXPECT_EQ(of(eight).nics.note, "counted in the output of nvidia-smi topo -m");
  for (const Cards& cards : {with({"SYS"}, {}), with({}, {"NODE", "SYS"}),
                             with({"SYS", "NODE"}, {"SYS", "PHB"}), with({"PXB"}, {})}) {
    const Topology t = of(cards);
    EXPECT_EQ(t.nics.value, 8u) << cards.size();
    EXPECT_NE(t.nics.note.find("; without NIC"), std::string::npos) << t.nics.note;
    EXPECT_EQ(t.link_types, of(eight).link_types);
  }
  EXPECT_EQ(of({"PIX", "PIX", "NODE", "PIX", "PIX", "SYS"}).nics.value, 4u) << "of 6";
  EXPECT_EQ(of({"PHB", "SYS"}).nics.note,
            "counted in the output of nvidia-smi topo -m, those closest to GPUs: NIC0 (PHB); "
            "without NIC1 "
            "(SYS)");
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
  EXPECT_EQ(t.link_type("link").bandwidth_gb_per_s.source, Source::assumed)
      << "the file counts links, NCCL's code has their rate";
  EXPECT_EQ(t.ranks.source, Source::published);
  const Topology servers = imported("nccl.xml", {.servers = 2});
  EXPECT_EQ(servers.nics.value, 4u);
  EXPECT_DOUBLE_EQ(servers.link_type("nic").bandwidth_gb_per_s.value, 50);
  EXPECT_DOUBLE_EQ(servers.link_type("pcie").bandwidth_gb_per_s.value, 48);
  EXPECT_DOUBLE_EQ(servers.link_type("uplink").bandwidth_gb_per_s.value,
                   2.0 * server_of(servers).cards_per_rail * 50)
      << "what the cards of both servers bring to a leaf";
}

/// A GPU's <pci> below a root complex of `cpu`, or below a bridge of its own.
std::string pci_gpu(int number, const std::string& link, const std::string& inside,
                    const char* attributes = "class=\"0x030200\"") {
  return fmt::format("<pci busid=\"0000:0{}:00.0\" {} {}>{}</pci>", number, attributes, link,
                     inside);
}
std::string pcie(const char* speed, int lanes) {
  return fmt::format("link_speed=\"{}\" link_width=\"{}\"", speed, lanes);
}
std::string net(const char* name, double megabits) {
  return fmt::format("<nic><net name=\"{}\" speed=\"{:.0f}\"/></nic>", name, megabits);
}
std::string system_of(const std::string& inside, const std::string& second = "") {
  return "<system version=\"1\"><cpu numaid=\"0\">" + inside + "</cpu>" +
         (second.empty() ? "" : "<cpu numaid=\"1\">" + second + "</cpu>") + "</system>";
}

/// As clouds ship them for NCCL_TOPO_FILE: two NUMA nodes, virtual bridges with a GPU and a card each.
std::string cloud_file(int gpus) {
  std::string cpus[2];
  for (int i = 1; i <= gpus; ++i) {
    cpus[(i - 1) * 2 / gpus] += fmt::format(
        "<pci busid=\"ffff:ff:0{0}.0\" class=\"0x060400\" {1}>{2}"
        "<pci busid=\"0101:0{0}:00.0\" class=\"0x020700\" {1}/></pci>",
        i, pcie("32.0 GT/s PCIe", 16), pci_gpu(i, pcie("32.0 GT/s PCIe", 16), ""));
  }
  return system_of(cpus[0], cpus[1]);
}

TEST(Nccl, GpusByClassOnlySayNothingOfNvlink) {
  const std::string text = cloud_file(8);
  const auto message = message_of([&] { import_topology(text, "it", {}); });
  expect_contains(message, "it: it lists GPUs by PCI class only, without <gpu>");
  expect_contains(message, "--base NAME");
  expect_contains(message, "--no-nvlink");
  const Topology base = find_topology("h100-8");
  const Topology t = import_topology(text, "it", {.base = base});
  EXPECT_EQ(t.kind, TopologyKind::switched);
  EXPECT_EQ(t.link_type("link").bandwidth_gb_per_s.value,
            base.link_type("link").bandwidth_gb_per_s.value);
  EXPECT_EQ(t.in_switch, base.in_switch);
  EXPECT_EQ(t.device, base.device);
  EXPECT_NE(t.summary.find("links of h100-8"), std::string::npos) << t.summary;
  EXPECT_EQ(parse_topology(to_toml(t), "again"), t);
  const Topology pcie_alone = import_topology(text, "it", {.no_nvlink = true});
  EXPECT_EQ(pcie_alone.kind, TopologyKind::graph);
  EXPECT_DOUBLE_EQ(pcie_alone.link_type("pcie").bandwidth_gb_per_s.value, 48);
  EXPECT_NE(pcie_alone.summary.find("without NVLink, as asked for"), std::string::npos);
  const Topology servers = import_topology(text, "it", {.base = base, .servers = 2});
  EXPECT_EQ(servers.inside, ServerInside::switched);
  EXPECT_EQ(servers.nics.value, 8u);
  EXPECT_EQ(servers.link_type("nic").bandwidth_gb_per_s.source, Source::assumed);
  EXPECT_EQ(import_topology(cloud_file(2), "it", {.base = base}).ranks.value, 2u);
  EXPECT_EQ(import_topology(text, "it", {.base = find_topology("mi300x-8")}).kind,
            TopologyKind::full_mesh);
  EXPECT_EQ(import_topology(text, "it", {.base = find_topology("rtx-pro-6000-8")}).edges,
            find_topology("rtx-pro-6000-8").edges);
}

/// Some of the GPUs, or NVLinks that lead nowhere: as little is known.
TEST(Nccl, WhatIsKnownOfSomeGpusIsNotTakenForAll) {
  const std::string link = pcie("16.0 GT/s PCIe", 16);
  for (const std::string& second :
       {std::string(),
        std::string(
            "<gpu dev=\"1\" sm=\"80\"><nvlink target=\"0000:02:00.0\" count=\"12\"/></gpu>")}) {
    const std::string text =
        system_of(pci_gpu(1, link, "<gpu dev=\"0\" sm=\"80\"/>") + pci_gpu(2, link, second));
    expect_contains(message_of([&] { import_topology(text, "it", {}); }), "--no-nvlink");
    EXPECT_EQ(import_topology(text, "it", {.no_nvlink = true}).kind, TopologyKind::graph);
  }
  // Two of four linked GPUs are listed: their links to the others are not NVSwitches.
  const Topology two = import_topology(
      system_of(pci_gpu(1, link,
                        "<gpu dev=\"0\" sm=\"70\"><nvlink target=\"0000:07:00.0\" count=\"2\" "
                        "tclass=\"0x030200\"/></gpu>") +
                pci_gpu(2, link,
                        "<gpu dev=\"1\" sm=\"70\"><nvlink target=\"0000:08:00.0\" count=\"2\" "
                        "tclass=\"0x030200\"/></gpu>")),
      "it", {});
  EXPECT_EQ(two.kind, TopologyKind::graph);
  EXPECT_FALSE(two.has_link_type("nvlink2"));
  EXPECT_NE(two.summary.find("4 links to GPUs that the file does not list"), std::string::npos)
      << two.summary;
}

/// RCCL's word, in full meshes and in others.
TEST(Nccl, ReadsXgmi) {
  const auto file = [](const std::vector<std::vector<int>>& counts, const char* gcn) {
    std::string gpus;
    for (std::size_t a = 0; a < counts.size(); ++a) {
      std::string links;
      for (std::size_t b = 0; b < counts.size(); ++b) {
        if (counts[a][b] == 0) continue;
        links += fmt::format("<xgmi target=\"0000:0{}:00.0\" count=\"{}\" tclass=\"0x120000\"/>",
                             b + 1, counts[a][b]);
      }
      gpus += pci_gpu(static_cast<int>(a) + 1, pcie("32.0 GT/s PCIe", 16),
                      fmt::format("<gpu dev=\"{}\" sm=\"304\" gcn=\"{}\" arch=\"38911\">{}</gpu>",
                                  a, gcn, links),
                      "class=\"0x120000\" vendor=\"0x1002\"");
    }
    return system_of(gpus);
  };
  const std::string mesh = file({{0, 1, 1}, {1, 0, 1}, {1, 1, 0}}, "gfx942");
  const Topology full = import_topology(mesh, "it", {});
  EXPECT_EQ(full.kind, TopologyKind::full_mesh);
  EXPECT_DOUBLE_EQ(full.link_type("link").bandwidth_gb_per_s.value, 48);
  EXPECT_EQ(full.link_type("link").bandwidth_gb_per_s.source, Source::assumed);
  const Topology base = find_topology("mi300x-8");
  EXPECT_EQ(import_topology(mesh, "it", {.base = base}).link_types, base.link_types);
  const Topology some = import_topology(
      file({{0, 4, 0, 1}, {4, 0, 1, 0}, {0, 1, 0, 4}, {1, 0, 4, 0}}, "910"), "it", {});
  EXPECT_EQ(some.kind, TopologyKind::graph);
  EXPECT_DOUBLE_EQ(some.link_type("xgmi4").bandwidth_gb_per_s.value, 4 * 36);
  EXPECT_DOUBLE_EQ(some.link_type("xgmi1").bandwidth_gb_per_s.value, 36);
  EXPECT_EQ(hops(some, 0, 1), 1u);
  EXPECT_EQ(hops(some, 0, 2), 2u) << "PCIe";
}

/// The third GPU is on x4, wherever it stands in the file, or behind a bridge that is.
TEST(Nccl, LinksOfSeveralWidthsAreSeveralLinks) {
  const auto gpu = [](int number, int lanes) {
    return pci_gpu(number, pcie("16.0 GT/s PCIe", lanes),
                   fmt::format("<gpu dev=\"{}\" sm=\"89\"/>", number - 1));
  };
  const Topology last = import_topology(system_of(gpu(1, 16) + gpu(2, 16) + gpu(3, 4)), "it", {});
  const Topology first = import_topology(system_of(gpu(1, 4) + gpu(2, 16) + gpu(3, 16)), "it", {});
  EXPECT_EQ(last.link_types, first.link_types);
  EXPECT_DOUBLE_EQ(last.link_type("pcie_gen4_x4").bandwidth_gb_per_s.value, 6);
  EXPECT_DOUBLE_EQ(last.link_type("pcie_gen4_x16").bandwidth_gb_per_s.value, 24);
  EXPECT_EQ(last.edges[2].type, "pcie_gen4_x4");
  EXPECT_NEAR(ring_gb_per_s(last), 6, 0.1);
  EXPECT_NEAR(ring_gb_per_s(first), 6, 0.1);
  const auto bridge = [](const char* bus, const char* speed, int lanes, const std::string& inside) {
    return fmt::format("<pci busid=\"{}\" class=\"0x060400\" {}>{}</pci>", bus, pcie(speed, lanes),
                       inside);
  };
  const Topology below = import_topology(
      system_of(bridge("0000:40:00.0", "16.0 GT/s PCIe", 16,
                       gpu(1, 16) + bridge("0000:41:00.0", "8.0 GT/s PCIe", 4, gpu(2, 16)))),
      "it", {});
  EXPECT_DOUBLE_EQ(below.link_type("pcie_gen3_x4").bandwidth_gb_per_s.value, 3);
  EXPECT_DOUBLE_EQ(below.link_type("upstream").bandwidth_gb_per_s.value, 24);
}

// As in virtual machines of clouds.
TEST(Nccl, OfALinkWithoutLanesTheSpeedCounts) {
  const auto gpu = [](int number) {
    return pci_gpu(number, pcie("32.0 GT/s PCIe", 0),
                   fmt::format("<gpu dev=\"{}\" sm=\"90\"/>", number - 1));
  };
  const Topology read = import_topology(system_of(gpu(1) + gpu(2)), "it", {});
  ASSERT_EQ(read.link_types.size(), 1);
  const Quantity rate = read.link_types.front().bandwidth_gb_per_s;
  EXPECT_DOUBLE_EQ(rate.value, 48);
  EXPECT_EQ(rate.source, Source::assumed);
  EXPECT_NE(rate.note.find("16, as NCCL takes it"), std::string::npos) << rate.note;
}

TEST(Nccl, LinksWithoutACountAreRefused) {
  const auto gpus = [](const char* link) {
    return system_of(pci_gpu(1, pcie("32.0 GT/s PCIe", 16),
                             fmt::format("<gpu dev=\"0\" sm=\"90\">{}</gpu>", link)) +
                     pci_gpu(2, pcie("32.0 GT/s PCIe", 16), "<gpu dev=\"1\" sm=\"90\"/>"));
  };
  for (const auto& [link, lacks] :
       {std::pair(R"(<nvlink target="0000:02:00.0" nlinks="18" tclass="0x030200"/>)", "count"),
        std::pair(R"(<nvlink count="18"/>)", "target")}) {
    EXPECT_NE(message_of([&] {
                import_topology(gpus(link), "it", {});
              }).find(fmt::format("GPU 0: nvlink has no {}", lacks)),
              std::string::npos)
        << link;
  }
}

TEST(Nccl, ALinkAsleepIsNoPublishedRate) {
  const auto gpu = [](int number, const char* speed) {
    return pci_gpu(number, pcie(speed, 8),
                   fmt::format("<gpu dev=\"{}\" sm=\"120\"><c2c bw=\"43125\" count=\"8\"/></gpu>",
                               number - 1));
  };
  const Topology alone =
      import_topology(system_of(gpu(1, "2.5 GT/s PCIe") + gpu(2, "2.5 GT/s PCIe")), "it", {});
  const Quantity rate = alone.link_type("pcie").bandwidth_gb_per_s;
  EXPECT_DOUBLE_EQ(rate.value, 12) << "PCIe 4.0, and its lanes";
  EXPECT_EQ(rate.source, Source::assumed);
  EXPECT_NE(rate.note.find("asleep"), std::string::npos);
  EXPECT_NE(rate.note.find("C2C to the processor (8 x 43.125 GB/s) is not modelled"),
            std::string::npos);
  const Topology beside =
      import_topology(system_of(gpu(1, "2.5 GT/s PCIe") + gpu(2, "32.0 GT/s PCIe")), "it", {});
  for (const Edge& edge : beside.edges) {
    EXPECT_DOUBLE_EQ(beside.link_type(edge.type).bandwidth_gb_per_s.value, 24)
        << "as its neighbour";
  }
}

/// The way between sockets is as fast as NCCL takes it for the processor, whose family is written in two
/// ways: 25, and 0xaf with the extended family above it.
TEST(Nccl, TheProcessorSaysHowFastSocketsAreLinked) {
  const auto socket = [](const std::string& processor) {
    const std::string cpus =
        fmt::format("<cpu {0}>{1}</cpu><cpu {0}>{2}</cpu>", processor,
                    pci_gpu(1, pcie("16 GT/s", 16), "<gpu dev=\"0\" sm=\"89\"/>"),
                    pci_gpu(2, pcie("16 GT/s", 16), "<gpu dev=\"1\" sm=\"89\"/>"));
    const Topology t = import_topology("<system>" + cpus + "</system>", "it", {});
    EXPECT_EQ(t.link_type("socket").bandwidth_gb_per_s.source, Source::assumed);
    return t.link_type("socket").bandwidth_gb_per_s.value;
  };
  const auto intel = [](int model) {
    return fmt::format("vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"{}\"", model);
  };
  const auto amd = [](int family) {
    return fmt::format("vendor=\"AuthenticAMD\" familyid=\"{}\" modelid=\"1\"", family);
  };
  EXPECT_DOUBLE_EQ(socket(intel(79)), 6);
  EXPECT_DOUBLE_EQ(socket(intel(106)), 10);
  EXPECT_DOUBLE_EQ(socket(intel(143)), 22);
  EXPECT_DOUBLE_EQ(socket(intel(207)), 40);
  EXPECT_DOUBLE_EQ(socket(amd(23)), 16);
  EXPECT_DOUBLE_EQ(socket(amd(0x8f)), 16);
  EXPECT_DOUBLE_EQ(socket(amd(25)), 24);
  EXPECT_DOUBLE_EQ(socket(amd(0xaf)), 24);
  EXPECT_DOUBLE_EQ(socket(amd(0xbf)), 32);
  EXPECT_DOUBLE_EQ(socket("arch=\"arm64\""), 6);
  EXPECT_DOUBLE_EQ(socket(""), 16);
}

/// Cards have a speed each; one that is on no PCIe carries nothing.
TEST(Nccl, ServersHaveTheCardsOnPcieOfGpus) {
  const std::string link = pcie("32.0 GT/s PCIe", 16);
  const std::string gpu = pci_gpu(1, link, "<gpu dev=\"0\" sm=\"121\"/>");
  const auto card = [&](const char* bus, const char* name, double megabits) {
    return fmt::format("<pci busid=\"{}\" class=\"0x020000\" {}>{}</pci>", bus, link,
                       net(name, megabits));
  };
  const Topology two =
      import_topology(system_of(gpu + card("0000:11:00.0", "roce0", 200000) + net("vpn0", 10000)),
                      "it", {.servers = 2});
  EXPECT_EQ(two.nics.value, 1u);
  EXPECT_DOUBLE_EQ(two.link_type("nic").bandwidth_gb_per_s.value, 25);
  EXPECT_NE(two.nics.note.find("without vpn0 (on no PCIe)"), std::string::npos) << two.nics.note;
  const Topology mixed = import_topology(
      system_of(gpu + card("0000:11:00.0", "eth0", 1000) + card("0000:12:00.0", "roce0", 400000)),
      "it", {.servers = 2});
  EXPECT_EQ(mixed.nics.value, 1u) << "the fast one";
  EXPECT_DOUBLE_EQ(mixed.link_type("nic").bandwidth_gb_per_s.value, 50);
  const Topology kilobits = import_topology(
      system_of(gpu + card("0000:11:00.0", "cxi0", 200000000)), "it", {.servers = 2});
  EXPECT_DOUBLE_EQ(kilobits.link_type("nic").bandwidth_gb_per_s.value, 25);
  EXPECT_EQ(kilobits.link_type("nic").bandwidth_gb_per_s.source, Source::assumed);
  const Topology unknown =
      import_topology(system_of(gpu + card("0000:11:00.0", "ib0", -1)), "it", {.servers = 2});
  EXPECT_DOUBLE_EQ(unknown.link_type("nic").bandwidth_gb_per_s.value, 1.25);
  EXPECT_EQ(unknown.link_type("nic").bandwidth_gb_per_s.source, Source::assumed);
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
  refused(sample("nccl.xml"), "--no-nvlink is for files that list none", {.no_nvlink = true});
  refused(sample("dgx.txt"), "--no-nvlink is for NCCL's XML", {.no_nvlink = true});
  refused(sample("astra.yml"), "--no-nvlink is for what describes a server", {.no_nvlink = true});
  refused(cloud_file(4), "links are those of --base 'rtx-pro-6000-8', which are between 8 GPUs",
          {.base = find_topology("rtx-pro-6000-8")});
  refused(
      matrix_with_cards(std::vector<std::string>(6, "PIX")),
      "6 network cards are no whole number for each of 8 GPUs, nor the other way round: NIC0 (PIX)",
      {.servers = 2});
  refused(system_of(pci_gpu(1, pcie("16 GT/s", 16), "<gpu dev=\"0\"/>") + net("veth0", 10000)),
          "none of its network cards is on PCIe, which --servers needs: veth0", {.servers = 2});
  refused("<system><cpu host_hash=\"1\">" + pci_gpu(1, "", "<gpu dev=\"0\"/>") +
              "</cpu><cpu host_hash=\"2\">" + pci_gpu(1, "", "<gpu dev=\"0\"/>") +
              "</cpu></system>",
          "it describes 2 hosts (host_hash)");
  refused("<system><cpu host_hash=\"1\">" +
              pci_gpu(1, "", "<gpu dev=\"0\"><nvlink target=\"ff\" count=\"18\"/></gpu>") +
              "</cpu><cpu host_hash=\"2\">" +
              pci_gpu(1, "", "<gpu dev=\"0\"><nvlink target=\"ff\" count=\"18\"/></gpu>") +
              "</cpu></system>",
          "it describes 2 hosts, which share NVSwitches; --servers takes the file of one",
          {.servers = 2});
  refused("====== ROCm System Management Interface ======\n GPU0 GPU1\nGPU0 0 XGMI\n",
          "it has no table of link types");
  refused("GPU0 GPU1\nLink Type between two GPUs\n", "there are 2 columns of GPUs, but only 0 rows",
          {.format = ImportFormat::nvidia_smi});
  refused("LINK TYPE TABLE:\n 0000:0c:00.0\n", "it has no table of link types");
  refused(sample("hybrid.txt"), "--servers is for servers whose GPUs are all linked",
          {.servers = 2});
  refused(sample("astra.yml"), "--servers is for what describes a server", {.servers = 2});
}

}  // namespace
}  // namespace arlab

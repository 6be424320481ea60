#include "sim/topology/import.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <numeric>
#include <pugixml.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "sim/topology/toml_section.h"

namespace arlab {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // of a text
constexpr Rank kMostGpus = 64;                            // of a server
constexpr std::uint32_t kMostLinksOfAGpu = 18;  // NVLinks: more pairs than that need a switch
constexpr std::uint64_t kMostEdges = 1 << 16;   // of an imported graph

Quantity number(double value, Source source, std::string note) {
  return {value, source, std::move(note)};
}

// ---------------------------------------------------------------- a server

/// What a text says of a server, whichever text it is.
struct Host {
  std::string tool;
  Rank gpus = 0;
  std::vector<std::vector<std::uint32_t>> direct;  ///< NVLinks between two GPUs
  std::vector<std::uint32_t> to_switch;            ///< NVLinks of a GPU to NVSwitches
  std::vector<Rank> hub;                           ///< of a GPU: PCIe switch, or kNone
  std::vector<Rank> cpu;                           ///< of a GPU: NUMA node
  Rank hubs = 0;
  Rank cpus = 0;
  std::vector<Rank> cpu_of_hub;
  std::vector<Rank> complex;         ///< of a GPU: root complex
  std::vector<Rank> complex_of_hub;  ///< root complex
  std::vector<Rank> cpu_of_complex;
  Rank cards = 0;     ///< network cards
  Quantity nvlink;    ///< of one link and direction
  Quantity pcie;      ///< of a GPU
  Quantity upstream;  ///< of a PCIe switch
  Quantity card;

  static constexpr Rank kNone = UINT32_MAX;

  bool has_nvlink(Rank a, Rank b) const {
    return direct[a][b] > 0 || (to_switch[a] > 0 && to_switch[b] > 0);
  }
};

Quantity times(std::uint32_t count, const Quantity& one) {
  return number(count * one.value, one.source, fmt::format("{} x {}", count, one.note));
}

Quantity assumed_us(double us, const char* of) {
  return number(us, Source::assumed, fmt::format("typical of {}", of));
}

/// The same for all GPUs, and more than none.
template <class Values>
bool all_alike(const Values& values) {
  return !values.empty() && values.front() > 0 &&
         std::all_of(values.begin(), values.end(), [&](auto v) { return v == values.front(); });
}

/// NVLinks of every pair, where all pairs have equally many; else 0.
std::uint32_t links_of_every_pair(const Host& host) {
  std::vector<std::uint32_t> counts;
  for (Rank a = 0; a < host.gpus; ++a) {
    for (Rank b = 0; b < host.gpus; ++b) {
      if (a != b) counts.push_back(host.direct[a][b]);
    }
  }
  return all_alike(counts) ? counts.front() : 0;
}

void add_type(Topology& t, const std::string& name, const Quantity& gb_per_s,
              const Quantity& latency_us) {
  if (!t.has_link_type(name)) t.link_types.push_back({name, gb_per_s, latency_us});
}

/// Whether GPUs of one PCIe switch (or NUMA node) are neighbours, and all of these have equally
/// many.
bool in_equal_runs(const std::vector<Rank>& of, Rank count) {
  if (count == 0 || of.size() % count != 0) return false;
  for (std::size_t i = 0; i < of.size(); ++i) {
    if (of[i] != i / (of.size() / count)) return false;
  }
  return true;
}

/// NVLink and PCIe, edge by edge: GPU - PCIe switch - root complex - root complex.
void make_graph(const Host& host, Topology& t) {
  t.kind = TopologyKind::graph;
  const bool has_nvswitch =
      std::any_of(host.to_switch.begin(), host.to_switch.end(), [](auto n) { return n > 0; });
  const Rank first_complex = host.hubs;
  const auto complexes = static_cast<Rank>(host.cpu_of_complex.size());
  t.switches = host.hubs + complexes + (has_nvswitch ? 1 : 0);
  const auto edge = [&t](NodeName from, NodeName to, const std::string& type) {
    t.edges.push_back({from, to, type, "", true});
  };
  const auto nvlinks = [&](std::uint32_t count) {
    std::string type = fmt::format("nvlink{}", count);
    add_type(t, type, times(count, host.nvlink), assumed_us(0.7, "NVLink"));
    return type;
  };
  for (Rank a = 0; a < host.gpus; ++a) {
    if (host.to_switch[a] > 0) {
      edge({false, a}, {true, t.switches - 1}, nvlinks(host.to_switch[a]));
    }
    for (Rank b = a + 1; b < host.gpus; ++b) {
      if (host.direct[a][b] > 0) edge({false, a}, {false, b}, nvlinks(host.direct[a][b]));
    }
  }
  add_type(t, "pcie", host.pcie, assumed_us(1, "PCIe"));
  for (Rank a = 0; a < host.gpus; ++a) {
    const bool has_hub = host.hub[a] != Host::kNone;
    edge({false, a}, {true, has_hub ? host.hub[a] : first_complex + host.complex[a]}, "pcie");
  }
  if (host.hubs > 0) {
    add_type(t, "upstream", host.upstream, assumed_us(0.5, "a PCIe switch"));
    t.link_type("upstream").root_port = true;
  }
  for (Rank h = 0; h < host.hubs; ++h) {
    edge({true, h}, {true, first_complex + host.complex_of_hub[h]}, "upstream");
  }
  for (Rank a = 0; a < complexes; ++a) {
    for (Rank b = a + 1; b < complexes; ++b) {
      const bool same_cpu = host.cpu_of_complex[a] == host.cpu_of_complex[b];
      if (same_cpu) {
        add_type(t, "fabric",
                 number(225, Source::assumed,
                        "between root complexes of a NUMA node: no bound in published tables"),
                 assumed_us(0.1, "a processor"));
      } else {
        add_type(t, "socket",
                 number(16, Source::assumed,
                        fmt::format("between NUMA nodes, as NCCL takes for AMD; {} does not say",
                                    host.tool)),
                 assumed_us(1, "a way from socket to socket"));
      }
      edge({true, first_complex + a}, {true, first_complex + b}, same_cpu ? "fabric" : "socket");
    }
  }
  // As a file has them.
  std::sort(t.link_types.begin(), t.link_types.end(),
            [](const LinkType& a, const LinkType& b) { return a.name < b.name; });
}

Count counted(Rank value, const std::string& tool) {
  return {value, Source::published, fmt::format("counted in the output of {}", tool)};
}

/// So many of the servers behind one switch per rail.
void make_fat_tree(const Host& host, Rank servers, std::string_view origin, Topology& t) {
  const bool has_nvlink = t.kind != TopologyKind::graph;
  if (!has_nvlink) {
    for (Rank a = 0; a < host.gpus; ++a) {
      for (Rank b = 0; b < host.gpus; ++b) {
        if (a == b || !host.has_nvlink(a, b)) continue;
        fail("{}: --servers is for servers whose GPUs are all linked by NVLink, or by PCIe alone",
             origin);
      }
    }
  }
  if (host.cards == 0) fail("{}: it lists no network card, which --servers needs", origin);
  const bool by_hub = in_equal_runs(host.hub, host.hubs);
  const Rank hubs = by_hub ? host.hubs : host.cpus;
  if (!by_hub && !in_equal_runs(host.cpu, host.cpus)) {
    fail(
        "{}: GPUs of one PCIe switch or NUMA node must be neighbours, equally many of each, for "
        "--servers",
        origin);
  }
  t.inside = t.kind == TopologyKind::switched    ? ServerInside::switched
             : t.kind == TopologyKind::full_mesh ? ServerInside::mesh
                                                 : ServerInside::pcie;
  std::vector<LinkType> link;
  if (has_nvlink) link.push_back(t.link_type("link"));
  t.kind = TopologyKind::fat_tree;
  t.link_types = link;
  t.edges.clear();
  t.switches = 0;
  t.group_size = counted(host.gpus, host.tool);
  t.ranks = {host.gpus * servers, Source::assumed,
             fmt::format("{} servers, as asked for", servers)};
  t.leaf_servers = {servers, Source::assumed, "all on the same leaves"};
  t.nics = counted(host.cards, host.tool);
  if (t.inside == ServerInside::pcie) t.pcie_switches = counted(hubs, host.tool);
  add_type(t, "pcie", host.pcie, assumed_us(1, "PCIe"));
  if (server_of(t).has_root) {
    add_type(t, "root", host.upstream, assumed_us(0.5, "a root complex"));
  }
  add_type(t, "nic", host.card, assumed_us(3, "a network card and a switch"));
  const Server server = server_of(t);
  add_type(t, "uplink",
           number(host.card.value * server.cards_per_rail * servers, Source::assumed,
                  "what the cards bring to a leaf: not oversubscribed"),
           assumed_us(1, "a switch"));
}

Topology topology_of(const Host& host, std::string_view origin, const ImportOptions& options) {
  Topology t;
  t.ranks = counted(host.gpus, host.tool);
  t.device = options.base ? options.base->device : generic_device();
  const std::uint32_t pairs = links_of_every_pair(host);
  if (all_alike(host.to_switch)) {
    t.kind = TopologyKind::switched;
    add_type(t, "link", times(host.to_switch.front(), host.nvlink), assumed_us(0.7, "NVSwitch"));
  } else if (pairs > 0) {
    t.kind = TopologyKind::full_mesh;
    add_type(t, "link", times(pairs, host.nvlink), assumed_us(0.7, "NVLink"));
  } else {
    make_graph(host, t);
  }
  const bool same_kind = options.base && options.base->kind == t.kind;
  if (same_kind && t.kind != TopologyKind::graph) t.link_types = options.base->link_types;
  if (options.servers) make_fat_tree(host, *options.servers, origin, t);
  // The library's numbers are of servers with the base's links and as many GPUs.
  const bool same_servers = same_kind && host.gpus == options.base->ranks.value;
  if (same_kind && (!options.servers || t.inside == ServerInside::switched)) {
    t.in_switch = options.base->in_switch;
  }
  if (!same_kind || (options.servers && !same_servers)) t.device.library.reset();
  t.summary = fmt::format("{} GPUs, imported from {}", t.ranks.value, host.tool);
  return t;
}

/// Equivalence classes, numbered by their first member.
class Classes {
 public:
  explicit Classes(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  std::size_t find(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(std::size_t a, std::size_t b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::size_t> parent_;
};

// ---------------------------------------------------------------- nvidia-smi topo -m

/// Without what terminals take for colours and underlines.
std::string without_escapes(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain += text[i];
      continue;
    }
    while (i + 1 < text.size() && (std::isalpha(static_cast<unsigned char>(text[i + 1])) == 0)) ++i;
    ++i;
  }
  return plain;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// How far two devices are from each other, the nearest first.
enum class Distance : std::uint8_t { self, nvlink, bridge, host_bridge, node, system };

struct Entry {
  Distance distance = Distance::self;
  std::uint32_t links = 0;
};

Entry entry_of(const std::string& word, std::string_view origin, const std::string& where) {
  if (word == "X") return {};
  if (word == "PIX" || word == "PXB") return {Distance::bridge, 0};
  if (word == "PHB") return {Distance::host_bridge, 0};
  if (word == "NODE") return {Distance::node, 0};
  if (word == "SYS" || word == "SOC") return {Distance::system, 0};
  std::uint32_t links = 0;
  const char* end = word.data() + word.size();
  if (word.starts_with("NV")) {
    const auto [stop, error] = std::from_chars(word.data() + 2, end, links);
    if (error == std::errc() && stop == end && links >= 1 && links <= 1024) {
      return {Distance::nvlink, links};
    }
  }
  fail("{}: {}: {} is no connection; allowed are X, NV1, NV2, ..., PIX, PXB, PHB, NODE, SYS",
       origin, where, quote(word));
}

/// Three quarters of the nominal rate, as NCCL counts; nothing where there is no such link.
std::optional<Quantity> rate_of(double giga_transfers, unsigned lanes, const std::string& of) {
  constexpr unsigned kMostLanes = 64;
  if (!(giga_transfers >= 1 && giga_transfers <= 1000) || lanes < 1 || lanes > kMostLanes)
    return {};
  return number(giga_transfers * lanes / 8 * 0.75, Source::published,
                fmt::format("{:g} GT/s x {} {}; three quarters of it, as NCCL counts",
                            giga_transfers, lanes, of));
}

/// What a text that goes with the matrix says of the first GPU's link: lspci -vv, or nvidia-smi
/// --query-gpu=pcie.link.gen.max,pcie.link.width.max --format=csv.
std::optional<Quantity> pcie_rate_in(std::string_view text) {
  const std::string all(text);
  const auto number_after = [&all](std::size_t at, std::string_view key) {
    at = all.find(key, at);
    return at == std::string::npos ? 0 : std::strtod(all.c_str() + at + key.size(), nullptr);
  };
  const std::size_t device = all.find("NVIDIA");
  const std::size_t link = device == std::string::npos ? device : all.find("LnkCap:", device);
  if (link != std::string::npos) {
    return rate_of(number_after(link, "Speed "),
                   static_cast<unsigned>(number_after(link, "Width x")), "by lspci");
  }
  constexpr std::string_view kQuery = "pcie.link.gen.max, pcie.link.width.max";
  const std::size_t query = all.find(kQuery);
  if (query == std::string::npos) return {};
  constexpr double kGigaTransfers[] = {0, 2.5, 5, 8, 16, 32, 64};
  const std::size_t row = query + kQuery.size();
  const auto generation = static_cast<std::size_t>(number_after(row, "\n"));
  if (generation >= std::size(kGigaTransfers)) return {};
  return rate_of(kGigaTransfers[generation], static_cast<unsigned>(number_after(row, ",")),
                 fmt::format("(generation {}) by nvidia-smi", generation));
}

/// By the name of a card in the text, as lspci has it.
std::optional<Quantity> card_rate_in(std::string_view text) {
  constexpr std::pair<std::string_view, double> kCards[] = {
      {"ConnectX-8", 100},  {"ConnectX-7", 50},  {"ConnectX-6", 25},
      {"ConnectX-5", 12.5}, {"BlueField-3", 50}, {"BlueField-2", 25}};
  for (const auto& [card, gb_per_s] : kCards) {
    if (text.find(card) == std::string_view::npos) continue;
    return number(gb_per_s, Source::datasheet, fmt::format("{}, the fastest there is", card));
  }
  return {};
}

Host read_nvidia_smi(std::string_view text, std::string_view origin) {
  std::istringstream lines(without_escapes(text));
  std::vector<std::string> devices;
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) {
      if (!rows.empty()) break;  // the legend follows
      continue;
    }
    if (devices.empty()) {
      if (words.front() != "GPU0") continue;
      for (const std::string& word : words) {
        const bool gpu = word.starts_with("GPU") && word.size() > 3 &&
                         std::isdigit(static_cast<unsigned char>(word[3])) != 0;
        const bool card = word.starts_with("NIC") || word.starts_with("mlx") ||
                          word.starts_with("bnxt") || word.starts_with("irdma");
        if (!gpu && !card) break;  // CPU Affinity, NUMA Affinity
        devices.push_back(word);
      }
      continue;
    }
    if (rows.size() == devices.size() || words.front() != devices[rows.size()]) break;
    rows.push_back(words);
  }
  if (devices.empty()) fail("{}: there is no line that begins with GPU0, GPU1, ...", origin);
  if (devices.size() > 2 * std::size_t{kMostGpus}) {
    fail("{}: {} devices are too many; allowed are {}", origin, devices.size(), 2 * kMostGpus);
  }
  Host host;
  host.tool = "nvidia-smi topo -m";
  host.gpus = static_cast<Rank>(std::count_if(
      devices.begin(), devices.end(), [](const auto& name) { return name.starts_with("GPU"); }));
  for (Rank i = 0; i < host.gpus; ++i) {
    if (devices[i] != fmt::format("GPU{}", i)) {
      fail("{}: column {} is {}; expected is GPU{}", origin, i, quote(devices[i]), i);
    }
  }
  // Rows of network cards are sometimes left out.
  if (rows.size() < host.gpus) {
    fail("{}: there are {} columns of GPUs, but only {} rows", origin, host.gpus, rows.size());
  }
  std::vector<std::vector<Entry>> entries(devices.size(), std::vector<Entry>(devices.size()));
  for (std::size_t a = 0; a < rows.size(); ++a) {
    const std::string where = fmt::format("row {}", devices[a]);
    if (rows[a].size() <= devices.size()) {
      fail("{}: {}: {} entries for {} columns", origin, where, rows[a].size() - 1, devices.size());
    }
    for (std::size_t b = 0; b < devices.size(); ++b) {
      entries[a][b] = entry_of(rows[a][b + 1], origin, where);
      if ((entries[a][b].distance == Distance::self) != (a == b)) {
        fail("{}: {}: X belongs on the diagonal, and nowhere else", origin, where);
      }
      const Entry& mirrored = entries[b][a];
      if (b < a &&
          (mirrored.distance != entries[a][b].distance || mirrored.links != entries[a][b].links)) {
        fail("{}: {}: to {} it says {}, the other way {}", origin, where, devices[b],
             rows[a][b + 1], rows[b][a + 1]);
      }
      if (a < host.gpus && b >= host.gpus) entries[b][a] = entries[a][b];
    }
  }

  const bool every_pair = host.gpus > 1 && [&] {
    for (Rank a = 0; a < host.gpus; ++a) {
      for (Rank b = 0; b < host.gpus; ++b) {
        if (a != b && entries[a][b].links != entries[0][1].links) return false;
      }
    }
    return entries[0][1].links > 0;
  }();
  const bool switched = every_pair && (host.gpus - 1) * entries[0][1].links > kMostLinksOfAGpu;
  host.to_switch.assign(host.gpus, switched ? entries[0][1].links : 0);
  host.direct.assign(host.gpus, std::vector<std::uint32_t>(host.gpus));
  for (Rank a = 0; a < host.gpus && !switched; ++a) {
    for (Rank b = 0; b < host.gpus; ++b) host.direct[a][b] = entries[a][b].links;
  }

  // NVLink hides where on PCIe two GPUs are: a network card that is near both shows it.
  Classes bridges(devices.size());
  Classes complexes(devices.size());
  Classes nodes(devices.size());
  for (std::size_t a = 0; a < devices.size(); ++a) {
    for (std::size_t b = 0; b < devices.size(); ++b) {
      const Distance distance = entries[a][b].distance;
      if (a == b || distance == Distance::nvlink) continue;
      if (distance <= Distance::bridge) bridges.join(a, b);
      if (distance <= Distance::host_bridge) complexes.join(a, b);
      if (distance <= Distance::node) nodes.join(a, b);
    }
  }
  std::map<std::size_t, Rank> cpu_numbers;
  std::map<std::size_t, Rank> complex_numbers;
  std::map<std::size_t, Rank> hub_numbers;
  std::map<std::size_t, std::size_t> members;
  for (std::size_t i = 0; i < devices.size(); ++i) ++members[bridges.find(i)];
  const auto numbered = [](std::map<std::size_t, Rank>& numbers, std::size_t of) {
    return numbers.try_emplace(of, static_cast<Rank>(numbers.size())).first->second;
  };
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Rank cpu = numbered(cpu_numbers, nodes.find(i));
    if (i >= host.gpus && members[bridges.find(i)] == 1) {  // a card by itself is behind no GPU
      ++host.cards;
      continue;
    }
    const Rank complex = numbered(complex_numbers, complexes.find(i));
    if (complex == host.cpu_of_complex.size()) host.cpu_of_complex.push_back(cpu);
    Rank hub = Host::kNone;
    if (members[bridges.find(i)] > 1) {
      hub = numbered(hub_numbers, bridges.find(i));
      if (hub == host.cpu_of_hub.size()) {
        host.cpu_of_hub.push_back(cpu);
        host.complex_of_hub.push_back(complex);
      }
    }
    if (i < host.gpus) {
      host.cpu.push_back(cpu);
      host.complex.push_back(complex);
      host.hub.push_back(hub);
    } else {
      ++host.cards;
    }
  }
  host.hubs = static_cast<Rank>(hub_numbers.size());
  host.cpus = static_cast<Rank>(cpu_numbers.size());
  host.nvlink = number(20.6, Source::assumed,
                       "one NVLink of A100 to H200, as NCCL counts it; the matrix has no rates");
  host.pcie = pcie_rate_in(text).value_or(
      number(24, Source::assumed, "PCIe 4.0 x16 as NCCL counts it; the text has no rate"));
  host.upstream = host.pcie;
  host.upstream.note += "; an uplink as a GPU";
  host.card = card_rate_in(text).value_or(
      number(25, Source::assumed, "200 Gbit/s; the text does not say what the cards are"));
  return host;
}

// ---------------------------------------------------------------- NCCL's topology

class NcclTopology {
 public:
  explicit NcclTopology(std::string_view origin) : origin_(origin) { host_.tool = "NCCL"; }

  Host read(std::string_view text) {
    pugi::xml_document document;
    const pugi::xml_parse_result parsed =
        document.load_buffer(text.data(), text.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!parsed) fail("{}: not XML, at byte {}: {}", origin_, parsed.offset, parsed.description());
    const pugi::xml_node system = document.child("system");
    if (!system) fail("{}: there is no <system>", origin_);
    for (const pugi::xml_node& cpu : system.children("cpu")) {
      visit(cpu, host_.cpus, Host::kNone, 0);
      host_.cpu_of_complex.push_back(
          host_.cpus);  // which root complexes it has the file does not say
      ++host_.cpus;
    }
    host_.complex_of_hub = host_.cpu_of_hub;
    host_.gpus = static_cast<Rank>(gpus_.size());
    if (gpus_.empty()) fail("{}: there is no <gpu> below <system><cpu><pci>", origin_);
    link_gpus();
    host_.nvlink = nvlink();
    host_.pcie = pcie_rate(gpus_.front().pci, "of a GPU");
    host_.upstream =
        hub_nodes_.empty() ? host_.pcie : pcie_rate(hub_nodes_.front(), "of a PCIe switch");
    return std::move(host_);
  }

 private:
  struct Gpu {
    pugi::xml_node pci;
    pugi::xml_node gpu;  ///< may be missing in files that people write
    std::uint32_t device = 0;
    Rank hub = Host::kNone;
    Rank cpu = 0;
  };

  void visit(const pugi::xml_node& node, Rank cpu, Rank hub, int depth) {
    constexpr int kMostDepth = 32;
    if (depth > kMostDepth) fail("{}: <pci> nest deeper than {}", origin_, kMostDepth);
    for (const pugi::xml_node& nic : node.children("nic")) {
      for (const pugi::xml_node& net : nic.children("net")) add_card(net);
    }
    for (const pugi::xml_node& pci : node.children("pci")) {
      const pugi::xml_node gpu = pci.child("gpu");
      if (gpu || std::string_view(pci.attribute("class").value()).starts_with("0x0302")) {
        if (gpus_.size() == kMostGpus) fail("{}: more than {} GPUs", origin_, kMostGpus);
        const auto index = static_cast<std::uint32_t>(gpus_.size());
        gpus_.push_back({pci, gpu, gpu.attribute("dev").as_uint(index), hub, cpu});
        continue;
      }
      Rank below = hub;
      // Bridges behind bridges count as one switch.
      if (hub == Host::kNone && pci.child("pci")) {
        below = host_.hubs++;
        host_.cpu_of_hub.push_back(cpu);
        hub_nodes_.push_back(pci);
      }
      visit(pci, cpu, below, depth + 1);
    }
  }

  void add_card(const pugi::xml_node& net) {
    constexpr Rank kMostCards = 2 * kMostGpus;
    constexpr double kMegabitsPerGigabyte = 8000;
    const double megabits = net.attribute("speed").as_double();
    if (!(megabits > 0 && megabits <= 1e8)) {
      fail("{}: net {}: speed is {}; allowed are 1 to 1e8 Mbit/s", origin_,
           quote(net.attribute("name").value()), quote(net.attribute("speed").value()));
    }
    if (host_.cards == kMostCards) fail("{}: more than {} cards", origin_, kMostCards);
    host_.card = number(megabits / kMegabitsPerGigabyte, Source::published,
                        fmt::format("the file: {:g} Mbit/s", megabits));
    ++host_.cards;
  }

  void link_gpus() {
    std::stable_sort(gpus_.begin(), gpus_.end(),
                     [](const Gpu& a, const Gpu& b) { return a.device < b.device; });
    std::map<std::string, Rank> by_bus;
    for (Rank i = 0; i < host_.gpus; ++i) {
      host_.hub.push_back(gpus_[i].hub);
      host_.cpu.push_back(gpus_[i].cpu);
      host_.complex.push_back(gpus_[i].cpu);
      by_bus[gpus_[i].pci.attribute("busid").value()] = i;
    }
    host_.to_switch.assign(host_.gpus, 0);
    host_.direct.assign(host_.gpus, std::vector<std::uint32_t>(host_.gpus));
    for (Rank i = 0; i < host_.gpus; ++i) {
      for (const pugi::xml_node& link : gpus_[i].gpu.children("nvlink")) {
        const std::uint32_t count = link.attribute("count").as_uint(1);
        if (count < 1 || count > 1024) {
          fail("{}: GPU {}: nvlink count is {}; allowed are 1 to 1024", origin_, i,
               quote(link.attribute("count").value()));
        }
        const auto other = by_bus.find(link.attribute("target").value());
        if (other == by_bus.end()) {
          host_.to_switch[i] += count;
        } else if (other->second != i) {
          host_.direct[i][other->second] += count;
        }
      }
    }
    for (Rank a = 0; a < host_.gpus; ++a) {
      for (Rank b = 0; b < a; ++b) {
        if (host_.direct[a][b] == host_.direct[b][a]) continue;
        fail("{}: GPU {} has {} NVLinks to GPU {}, but {} come back", origin_, a,
             host_.direct[a][b], b, host_.direct[b][a]);
      }
    }
  }

  /// One link and direction, as NCCL counts it (topo.h).
  Quantity nvlink() const {
    const unsigned sm = gpus_.front().gpu.attribute("sm").as_uint(90);
    const double gb_per_s = sm >= 100 ? 40.1 : sm >= 90 ? 20.6 : sm == 86 ? 12 : sm >= 70 ? 20 : 18;
    return number(gb_per_s, Source::published,
                  fmt::format("NCCL, topo.h: one NVLink of sm {}", sm));
  }

  /// Three quarters of the nominal rate, as NCCL counts.
  Quantity pcie_rate(const pugi::xml_node& pci, const char* of) const {
    const std::string speed = pci.attribute("link_speed").value();
    const double giga_transfers = std::strtod(speed.c_str(), nullptr);
    const unsigned lanes = pci.attribute("link_width").as_uint();
    return rate_of(giga_transfers, lanes, fmt::format("in the file, {}", of))
        .value_or(
            number(24, Source::assumed,
                   fmt::format("PCIe 4.0 x16 as NCCL counts it; the file has no rate {}", of)));
  }

  std::string_view origin_;
  Host host_;
  std::vector<Gpu> gpus_;
  std::vector<pugi::xml_node> hub_nodes_;
};

// ---------------------------------------------------------------- ASTRA-sim

struct Dimension {
  std::string kind;
  Rank extent = 1;
  double gb_per_s = 0;
  double latency_ns = 0;
};

/// Texts of a list, or of a single value, by key.
using Lists = std::map<std::string, std::vector<std::string>>;
constexpr const char* kAstraKeys[] = {"topology", "npus_count", "bandwidth", "latency"};

Lists lists_of_yaml(std::string_view text, std::string_view origin) {
  // The library recurses; nothing here nests.
  constexpr int kMostOpen = 8;
  int open = 0;
  for (const char c : text) {
    open += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (open > kMostOpen) fail("{}: brackets nest deeper than {}", origin, kMostOpen);
  }
  Lists lists;
  try {
    const YAML::Node file = YAML::Load(std::string(text));
    for (const char* key : kAstraKeys) {
      if (!file.IsMap() || !file[key]) continue;
      const YAML::Node node = file[key];
      if (node.IsScalar()) lists[key] = {node.Scalar()};
      if (!node.IsSequence()) continue;
      for (const YAML::Node& each : node) {
        if (!each.IsScalar())
          fail("{}: key '{}': it must be a list of words or numbers", origin, key);
        lists[key].push_back(each.Scalar());
      }
    }
  } catch (const YAML::Exception& error) {
    fail("{}: line {}, column {}: {}", origin, error.mark.line + 1, error.mark.column + 1,
         printable(error.msg));
  }
  return lists;
}

Lists lists_of_toml(std::string_view text, std::string_view origin) {
  const toml::table file = parse_toml(text, origin);
  Lists lists;
  const auto text_of = [](const toml::node& node) {
    if (const auto word = node.value<std::string>()) return *word;
    return fmt::format("{}", node.value<double>().value_or(0));
  };
  for (const char* key : kAstraKeys) {
    const toml::node* node = file.get(key);
    if (node == nullptr) continue;
    if (const toml::array* array = node->as_array()) {
      for (const toml::node& each : *array) lists[key].push_back(text_of(each));
    } else {
      lists[key] = {text_of(*node)};
    }
  }
  return lists;
}

double astra_number(const std::string& text, std::string_view origin, const char* key, double least,
                    double most) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0' && value >= least && value <= most) return value;
  fail("{}: key '{}': {} is out of range; allowed is {} to {}", origin, key, quote(text), least,
       most);
}

std::vector<Dimension> dimensions_of(std::string_view text, std::string_view origin) {
  // TOML writes key = value, YAML key: value.
  const std::size_t key = text.find("topology");
  const std::size_t sign = text.find_first_of(":=", key == std::string_view::npos ? 0 : key);
  const bool is_toml = sign != std::string_view::npos && text[sign] == '=';
  Lists lists = is_toml ? lists_of_toml(text, origin) : lists_of_yaml(text, origin);
  for (const char* each : kAstraKeys) {
    if (lists[each].empty()) fail("{}: missing key '{}'", origin, each);
    if (lists[each].size() != lists["topology"].size()) {
      fail("{}: key '{}': {} values for {} dimensions", origin, each, lists[each].size(),
           lists["topology"].size());
    }
  }
  constexpr std::size_t kMostDimensions = 6;
  if (lists["topology"].size() > kMostDimensions) {
    fail("{}: {} dimensions; allowed are {}", origin, lists["topology"].size(), kMostDimensions);
  }
  std::vector<Dimension> dimensions;
  std::uint64_t ranks = 1;
  for (std::size_t i = 0; i < lists["topology"].size(); ++i) {
    const std::string& kind = lists["topology"][i];
    if (kind != "Ring" && kind != "FullyConnected" && kind != "Switch") {
      fail("{}: key 'topology': {} is unknown; allowed are Ring, FullyConnected, Switch", origin,
           quote(kind));
    }
    const double extent =
        astra_number(lists["npus_count"][i], origin, "npus_count", 1, kMaxTopologyRanks);
    if (extent != static_cast<Rank>(extent)) {
      fail("{}: key 'npus_count': {} is no whole number", origin, quote(lists["npus_count"][i]));
    }
    ranks *= static_cast<Rank>(extent);
    if (ranks > kMaxTopologyRanks) {
      fail("{}: key 'npus_count': more than {} ranks in all", origin, kMaxTopologyRanks);
    }
    dimensions.push_back(
        {kind, static_cast<Rank>(extent),
         astra_number(lists["bandwidth"][i], origin, "bandwidth", kSmallestQuantity, 1e6),
         astra_number(lists["latency"][i], origin, "latency", 0, 1e9)});
  }
  return dimensions;
}

/// Its GB are 2^30 bytes (bw_GBps_to_Bpns); `hops` links have the latency of one of ours.
LinkType astra_link(const std::string& name, const Dimension& dimension, double hops) {
  constexpr double kGigabyte = 1.073741824;
  const double us = std::max(hops * dimension.latency_ns / 1000, kSmallestQuantity);
  return {name,
          number(dimension.gb_per_s * kGigabyte, Source::published,
                 fmt::format("ASTRA-sim's file: {:g} GB/s of 2^30 bytes", dimension.gb_per_s)),
          number(us, Source::published,
                 fmt::format("ASTRA-sim's file: {:g} ns{}", dimension.latency_ns,
                             hops > 1 ? ", to the switch and from it" : ""))};
}

void add_dimension_edges(const std::vector<Dimension>& dimensions, std::string_view origin,
                         Topology& t) {
  const Rank ranks = t.ranks.value;
  t.kind = TopologyKind::graph;
  t.devices_forward = true;
  std::uint64_t edges = 0;
  for (const Dimension& d : dimensions) {
    const std::uint64_t groups = ranks / d.extent;
    edges += d.kind == "FullyConnected" ? groups * d.extent * (d.extent - 1) / 2 : ranks;
  }
  if (edges > kMostEdges) {
    fail("{}: as a graph it has {} edges; allowed are {}", origin, edges, kMostEdges);
  }
  Rank stride = 1;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    const Dimension& d = dimensions[i];
    const std::string type = fmt::format("dimension{}", i);
    t.link_types.push_back(astra_link(type, d, 1));
    for (Rank first = 0; first < ranks; ++first) {
      if (first / stride % d.extent != 0 || d.extent == 1) continue;
      const auto member = [&](Rank digit) { return NodeName{false, first + digit * stride}; };
      if (d.kind == "Switch") {
        for (Rank k = 0; k < d.extent; ++k) {
          t.edges.push_back({member(k), {true, t.switches}, type, "", true});
        }
        ++t.switches;
      } else if (d.kind == "Ring") {
        for (Rank k = 0; k < (d.extent == 2 ? 1 : d.extent); ++k) {
          t.edges.push_back({member(k), member((k + 1) % d.extent), type, "", true});
        }
      } else {
        for (Rank a = 0; a < d.extent; ++a) {
          for (Rank b = a + 1; b < d.extent; ++b) {
            t.edges.push_back({member(a), member(b), type, "", true});
          }
        }
      }
    }
    stride *= d.extent;
  }
}

Topology read_astra_sim(std::string_view text, std::string_view origin,
                        const ImportOptions& options) {
  if (options.servers) fail("{}: --servers is for what describes a server", origin);
  const std::vector<Dimension> dimensions = dimensions_of(text, origin);
  Topology t;
  t.device = options.base ? options.base->device : generic_device();
  Rank ranks = 1;
  std::vector<std::string> words;
  bool all_rings = true;
  for (const Dimension& d : dimensions) {
    ranks *= d.extent;
    words.push_back(fmt::format("{} of {}", d.kind, d.extent));
    all_rings = all_rings && d.kind == "Ring" && d.gb_per_s == dimensions.front().gb_per_s &&
                d.latency_ns == dimensions.front().latency_ns;
  }
  t.ranks = {ranks, Source::published, "ASTRA-sim's file: npus_count"};
  t.summary = fmt::format("{}, imported from ASTRA-sim", fmt::join(words, ", "));
  const Dimension& first = dimensions.front();
  const bool single = dimensions.size() == 1;
  if (single && first.kind != "Ring") {
    const bool is_switch = first.kind == "Switch";
    t.kind = is_switch ? TopologyKind::switched : TopologyKind::full_mesh;
    t.link_types = {astra_link("link", first, is_switch ? 2 : 1)};
  } else if (all_rings) {
    t.kind = single ? TopologyKind::ring : TopologyKind::torus;
    t.devices_forward = true;
    for (const Dimension& d : dimensions) t.shape.insert(t.shape.begin(), d.extent);
    if (single) t.shape.clear();
    t.link_types = {astra_link("link", first, 1)};
  } else {
    add_dimension_edges(dimensions, origin, t);
  }
  t.device.library.reset();
  return t;
}

ImportFormat format_of(std::string_view text, std::string_view origin) {
  if (text.find("npus_count") != std::string_view::npos) return ImportFormat::astra_sim;
  if (text.find("<system") != std::string_view::npos) return ImportFormat::nccl_xml;
  if (text.find("GPU0") != std::string_view::npos) return ImportFormat::nvidia_smi;
  fail(
      "{}: it looks like nothing that can be imported: the matrix of nvidia-smi topo -m, NCCL's "
      "topology as XML, ASTRA-sim's network file; name it --from",
      origin);
}

}  // namespace

std::string_view name_of(ImportFormat format) {
  switch (format) {
    case ImportFormat::nvidia_smi:
      return "nvidia-smi";
    case ImportFormat::nccl_xml:
      return "nccl-xml";
    case ImportFormat::astra_sim:
      return "astra-sim";
  }
  return "?";
}

Topology import_topology(std::string_view text, std::string_view origin,
                         const ImportOptions& options) {
  if (text.size() > kMostBytes) fail("{}: more than {} bytes", origin, kMostBytes);
  const ImportFormat format = options.format ? *options.format : format_of(text, origin);
  Topology t;
  if (format == ImportFormat::astra_sim) {
    t = read_astra_sim(text, origin, options);
  } else {
    const Host host = format == ImportFormat::nccl_xml ? NcclTopology(origin).read(text)
                                                       : read_nvidia_smi(text, origin);
    t = topology_of(host, origin, options);
  }
  t.name = options.name;
  require_valid(t, origin);
  return t;
}

}  // namespace arlab

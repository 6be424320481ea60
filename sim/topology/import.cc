#include "sim/topology/import.h"

#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "sim/topology/import_host.h"
#include "sim/topology/toml_section.h"

namespace arlab {

Quantity number(double value, Source source, std::string note) {
  return {value, source, std::move(note)};
}

std::string_view name_of(Distance distance) {
  constexpr std::string_view kNames[] = {"X",   "NV",   "PIX", "PXB",
                                         "PHB", "NODE", "SYS", "on no PCIe"};
  return kNames[static_cast<std::size_t>(distance)];
}

std::optional<PcieLink> pcie_link(double giga_transfers, unsigned lanes, const std::string& of) {
  constexpr unsigned kMostLanes = 64;
  if (!(giga_transfers >= 1 && giga_transfers <= 1000) || lanes < 1 || lanes > kMostLanes)
    return {};
  constexpr double kGenerations[] = {2.5, 5, 8, 16, 32, 64};
  const auto* const generation =
      std::find(std::begin(kGenerations), std::end(kGenerations), giga_transfers);
  const std::string speed = generation == std::end(kGenerations)
                                ? fmt::format("{:.0f}gt", giga_transfers)
                                : fmt::format("gen{}", generation - std::begin(kGenerations) + 1);
  return PcieLink{number(giga_transfers * lanes / 8 * 0.75, Source::published,
                         fmt::format("{:g} GT/s x {} {}; three quarters of it, as NCCL counts",
                                     giga_transfers, lanes, of)),
                  fmt::format("{}_x{}", speed, lanes)};
}

PcieLink assumed_pcie(const std::string& why) {
  return {number(24, Source::assumed, fmt::format("PCIe 4.0 x16 as NCCL counts it; {}", why))};
}

bool Host::has_any_nvlink() const {
  for (Rank a = 0; a < gpus; ++a) {
    for (Rank b = 0; b < gpus; ++b) {
      if (a != b && has_nvlink(a, b)) return true;
    }
  }
  return false;
}

namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // largest text
constexpr std::uint64_t kMostEdges = 1 << 16;             // largest imported graph

Quantity times(std::uint32_t count, const Quantity& one) {
  return number(count * one.value, one.source,
                fmt::format("{} x {:g} GB/s, {}", count, one.value, one.note));
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

/// Returns the distinct values of a list, in its order.
template <class Values, class Same>
auto distinct(const Values& values, Same same) {
  Values kept;
  for (const auto& value : values) {
    const bool known =
        std::any_of(kept.begin(), kept.end(), [&](const auto& each) { return same(each, value); });
    if (!known) kept.push_back(value);
  }
  return kept;
}

/// The types of links of PCIe, one where all are alike: the type of each of them.
std::vector<std::string> add_pcie_types(const std::vector<PcieLink>& links, const std::string& name,
                                        const Quantity& latency_us, Topology& t) {
  const auto same = [](const PcieLink& a, const PcieLink& b) {
    return a.name == b.name && a.gb_per_s == b.gb_per_s;
  };
  const std::vector<PcieLink> kinds = distinct(links, same);
  std::vector<std::string> names;
  for (const PcieLink& kind : kinds) {
    std::string type = kinds.size() == 1 ? name : fmt::format("{}_{}", name, kind.name);
    while (t.has_link_type(type)) type += "_b";  // alike, but from elsewhere
    add_type(t, type, kind.gb_per_s, latency_us);
    names.push_back(type);
  }
  std::vector<std::string> of_links;
  for (const PcieLink& link : links) {
    const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const PcieLink& each) { return same(each, link); });
    of_links.push_back(names[static_cast<std::size_t>(kind - kinds.begin())]);
  }
  return of_links;
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
    std::string type = fmt::format("{}{}", host.link == "xGMI" ? "xgmi" : "nvlink", count);
    add_type(t, type, times(count, host.nvlink), assumed_us(0.7, host.link.c_str()));
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
  const std::vector<std::string> lanes =
      add_pcie_types(host.pcie, "pcie", assumed_us(1, "PCIe"), t);
  for (Rank a = 0; a < host.gpus; ++a) {
    const bool has_hub = host.hub[a] != Host::kNone;
    edge({false, a}, {true, has_hub ? host.hub[a] : first_complex + host.complex[a]}, lanes[a]);
  }
  const std::vector<std::string> upstream =
      add_pcie_types(host.upstream, "upstream", assumed_us(0.5, "a PCIe switch"), t);
  for (Rank h = 0; h < host.hubs; ++h) {
    edge({true, h}, {true, first_complex + host.complex_of_hub[h]}, upstream[h]);
    t.link_type(upstream[h]).root_port = true;
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
        add_type(t, "socket", host.socket, assumed_us(1, "a way from socket to socket"));
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

// ---------------------------------------------------------------- several servers

/// The slowest, where links of a server are taken as alike.
Quantity slowest_of(const std::vector<PcieLink>& links) {
  const auto [least, most] = std::minmax_element(
      links.begin(), links.end(),
      [](const PcieLink& a, const PcieLink& b) { return a.gb_per_s.value < b.gb_per_s.value; });
  Quantity slowest = least->gb_per_s;
  if (most->gb_per_s.value > slowest.value) {
    slowest.source = Source::assumed;
    slowest.note +=
        fmt::format("; taken for all, of which others have up to {:g}", most->gb_per_s.value);
  }
  return slowest;
}

struct CardsOfAServer {
  Count count;
  Quantity gb_per_s;
};

/// The cards that carry what the GPUs send: those nearest to GPUs, and of these the fast ones. Most
/// servers have others for their own network and storage.
CardsOfAServer cards_of(const Host& host, std::string_view origin) {
  if (host.cards.empty()) fail("{}: it lists no network card, which --servers needs", origin);
  const auto in_words = [](const std::vector<NetworkCard>& cards) {
    constexpr std::size_t kMostNamed = 8;
    std::vector<std::string> words;
    for (const NetworkCard& card : cards) {
      if (words.size() == kMostNamed) break;
      words.push_back(fmt::format("{} ({})", card.name, name_of(card.distance)));
    }
    return fmt::format(
        "{}{}", fmt::join(words, ", "),
        cards.size() > kMostNamed ? fmt::format(" and {} more", cards.size() - kMostNamed) : "");
  };
  const auto kept = [](const std::vector<NetworkCard>& cards, auto wanted) {
    std::vector<NetworkCard> those;
    std::copy_if(cards.begin(), cards.end(), std::back_inserter(those), wanted);
    return those;
  };
  const auto fits = [&](const std::vector<NetworkCard>& cards) {
    const auto count = static_cast<Rank>(cards.size());
    return count > 0 && (host.gpus % count == 0 || count % host.gpus == 0);
  };
  const auto within = [&](Distance distance) {
    return kept(host.cards, [&](const NetworkCard& card) { return card.distance <= distance; });
  };
  std::vector<NetworkCard> cards;
  for (const Distance distance :
       {Distance::bridges, Distance::host_bridge, Distance::node, Distance::system}) {
    if (cards.empty()) cards = within(distance);
  }
  if (cards.empty()) {
    fail("{}: none of its network cards is on PCIe, which --servers needs: {}", origin,
         in_words(host.cards));
  }
  const std::vector<NetworkCard> nearest = within(Distance::one_bridge);
  if (fits(nearest) && (cards.size() > host.gpus || !fits(cards))) cards = nearest;
  const auto rate = [](const NetworkCard& a, const NetworkCard& b) {
    return a.gb_per_s.value < b.gb_per_s.value;
  };
  const double fastest = std::max_element(cards.begin(), cards.end(), rate)->gb_per_s.value;
  const std::vector<NetworkCard> fast =
      kept(cards, [&](const NetworkCard& card) { return card.gb_per_s.value == fastest; });
  const bool leaves_slow_out = fits(fast) && fast.size() < cards.size();
  if (fits(fast)) cards = fast;
  if (!fits(cards)) {
    fail(
        "{}: {} network cards are no whole number for each of {} GPUs, nor the other way round: {}",
        origin, cards.size(), host.gpus, in_words(cards));
  }
  Quantity gb_per_s = std::min_element(cards.begin(), cards.end(), rate)->gb_per_s;
  if (gb_per_s.value < fastest) {
    gb_per_s.source = Source::assumed;
    gb_per_s.note += fmt::format("; taken for all, of which others have up to {:g}", fastest);
  }
  Count count = counted(static_cast<Rank>(cards.size()), host.tool);
  const std::vector<NetworkCard> others = kept(host.cards, [&](const NetworkCard& card) {
    return std::none_of(cards.begin(), cards.end(), [&](const NetworkCard& each) {
      return each.name == card.name && each.distance == card.distance;
    });
  });
  if (!others.empty()) {
    count.note +=
        fmt::format(", {}those closest to GPUs: {}; without {}",
                    leaves_slow_out ? "the fastest of " : "", in_words(cards), in_words(others));
  }
  return {count, gb_per_s};
}

/// So many of the servers behind one switch per rail.
void make_fat_tree(const Host& host, Rank servers, std::string_view origin, Topology& t) {
  const bool is_mesh = t.kind == TopologyKind::full_mesh;
  const bool has_nvlink = is_mesh || t.kind == TopologyKind::switched;
  if (!has_nvlink && (host.has_any_nvlink() || t.kind != TopologyKind::graph)) {
    fail("{}: --servers is for servers whose GPUs are all linked by NVLink, or by PCIe alone",
         origin);
  }
  if (host.hosts > 1) {
    fail("{}: it describes {} hosts, which share NVSwitches; --servers takes the file of one",
         origin, host.hosts);
  }
  const CardsOfAServer cards = cards_of(host, origin);
  const bool by_hub = in_equal_runs(host.hub, host.hubs);
  const Rank hubs = by_hub ? host.hubs : host.cpus;
  if (!by_hub && !in_equal_runs(host.cpu, host.cpus)) {
    fail(
        "{}: GPUs of one PCIe switch or NUMA node must be neighbours, equally many of each, for "
        "--servers",
        origin);
  }
  t.inside = is_mesh      ? ServerInside::mesh
             : has_nvlink ? ServerInside::switched
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
  t.nics = cards.count;
  if (t.inside == ServerInside::pcie) t.pcie_switches = counted(hubs, host.tool);
  add_type(t, "pcie", slowest_of(host.pcie), assumed_us(1, "PCIe"));
  if (server_of(t).has_root) {
    add_type(t, "root", host.upstream.empty() ? slowest_of(host.pcie) : slowest_of(host.upstream),
             assumed_us(0.5, "a root complex"));
  }
  add_type(t, "nic", cards.gb_per_s, assumed_us(3, "a network card and a switch"));
  const Server server = server_of(t);
  add_type(t, "uplink",
           number(cards.gb_per_s.value * server.cards_per_rail * servers, Source::assumed,
                  "what the cards bring to a leaf: not oversubscribed"),
           assumed_us(1, "a switch"));
}

// ---------------------------------------------------------------- one server

/// The links of the base, where the text does not tell whether its GPUs have NVLink.
void take_links(const Host& host, const Topology& base, std::string_view origin, Topology& t) {
  const bool of_servers = base.kind == TopologyKind::fat_tree;
  const bool alike = base.kind == TopologyKind::switched || base.kind == TopologyKind::full_mesh ||
                     (of_servers && base.inside != ServerInside::pcie);
  const Rank ranks = of_servers ? base.group_size.value : base.ranks.value;
  if (host.gpus > ranks || (!alike && (of_servers || host.gpus != ranks))) {
    fail("{}: {}, so links are those of --base {}, which are between {} GPUs; here are {}", origin,
         host.unknown_nvlink, quote(base.name), ranks, host.gpus);
  }
  if (alike) {
    const bool is_mesh =
        of_servers ? base.inside == ServerInside::mesh : base.kind == TopologyKind::full_mesh;
    t.kind = is_mesh ? TopologyKind::full_mesh : TopologyKind::switched;
    t.link_types = {base.link_type("link")};
  } else {
    t.kind = base.kind;
    t.group_size = base.group_size;
    t.ranks_per_router = base.ranks_per_router;
    t.shape = base.shape;
    t.switches = base.switches;
    t.devices_forward = base.devices_forward;
    t.link_types = base.link_types;
    t.domains = base.domains;
    t.edges = base.edges;
  }
  for (LinkType& type : t.link_types) {
    type.bandwidth_gb_per_s.note +=
        fmt::format("; the link of {}, as the file says nothing of NVLink", base.name);
  }
}

/// Kernels as they were measured on the nearest machine; of memory and chip the text says nothing.
Device nearest_device(const Host& host) {
  const Device unknown = generic_device();
  Device device = find_topology(host.kernels_of).device;
  device.name = unknown.name;
  device.hbm_gb_per_s = unknown.hbm_gb_per_s;
  device.memory_gb = unknown.memory_gb;
  device.library.reset();
  device.compute.reset();
  return device;
}

Topology topology_of(const Host& host, std::string_view origin, const ImportOptions& options) {
  Topology t;
  std::vector<std::string> remarks = host.remarks;
  t.ranks = counted(host.gpus, host.tool);
  t.device = options.base ? options.base->device : nearest_device(host);
  if (options.no_nvlink && host.has_any_nvlink()) {
    fail("{}: it lists NVLinks; --no-nvlink is for files that list none", origin);
  }
  const bool unknown = !host.unknown_nvlink.empty() && !options.no_nvlink;
  if (unknown && !options.base) {
    fail(
        "{}: {}, so it says nothing of NVLink: --base NAME takes that topology's links, "
        "--no-nvlink "
        "PCIe alone",
        origin, host.unknown_nvlink);
  }
  const std::uint32_t pairs = links_of_every_pair(host);
  if (unknown) {
    take_links(host, *options.base, origin, t);
  } else if (all_alike(host.to_switch)) {
    t.kind = TopologyKind::switched;
    add_type(t, "link", times(host.to_switch.front(), host.nvlink), assumed_us(0.7, "NVSwitch"));
  } else if (pairs > 0) {
    t.kind = TopologyKind::full_mesh;
    add_type(t, "link", times(pairs, host.nvlink), assumed_us(0.7, host.link.c_str()));
  } else {
    make_graph(host, t);
  }
  const bool same_kind = options.base && options.base->kind == t.kind;
  if (same_kind && t.kind != TopologyKind::graph && !unknown) {
    const double stated = t.link_type("link").bandwidth_gb_per_s.value;
    t.link_types = options.base->link_types;
    const double taken = t.link_type("link").bandwidth_gb_per_s.value;
    if (std::max(stated / taken, taken / stated) > 1.4) {
      remarks.push_back(
          fmt::format("its links are {:g} GB/s, as the base's, and {:g} as NCCL "
                      "counts those that are listed",
                      taken, stated));
    }
  }
  if (unknown) remarks.push_back(fmt::format("links of {}", options.base->name));
  const bool alike = options.base && (options.base->kind == TopologyKind::switched ||
                                      options.base->kind == TopologyKind::full_mesh);
  // One GPU has no links to another that could differ from those of the base.
  const bool alone = options.base && host.gpus == 1 && options.servers;
  if (!unknown && alike && !same_kind && !alone) {
    remarks.push_back(fmt::format("links are not those of {}, which is a {}", options.base->name,
                                  name_of(options.base->kind)));
  }
  if (options.no_nvlink) remarks.emplace_back("without NVLink, as asked for");
  if (!options.base) {
    remarks.push_back(fmt::format("kernels of {} (--base NAME takes others)", host.kernels_of));
  }
  if (!same_kind) t.guessed_below_bytes = kGuessedBelowBytes;
  if (options.servers) make_fat_tree(host, *options.servers, origin, t);
  // The library's numbers are of servers with the base's links and as many GPUs, or with one.
  const bool same_servers = same_kind && host.gpus == options.base->ranks.value;
  if (same_kind && (!options.servers || t.inside == ServerInside::switched)) {
    t.in_switch = options.base->in_switch;
  }
  if (alone && t.device.library) {
    t.device.library->nvls.reset();
  } else if (!same_kind || (options.servers && !same_servers)) {
    t.device.library.reset();
  }
  t.summary = fmt::format("{} GPUs, imported from {}", t.ranks.value, host.tool);
  for (const std::string& remark : distinct(remarks, std::equal_to<std::string>())) {
    t.summary += "; " + remark;
  }
  return t;
}

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
  if (options.no_nvlink) fail("{}: --no-nvlink is for what describes a server", origin);
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
  if (!options.base) t.summary += "; kernels of round numbers (--base NAME takes others)";
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

/// Refuses known texts of other kinds, and names the text to give instead.
void refuse_known(std::string_view text, std::string_view origin) {
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"hwloc2.dtd", "hwloc's XML"}, {"<graphs", "what NCCL writes into NCCL_GRAPH_DUMP_FILE"}};
  for (const auto& [sign, what] : kOthers) {
    if (text.find(sign) == std::string_view::npos) continue;
    fail("{}: it is {}, which is not read; what NCCL and RCCL write into NCCL_TOPO_DUMP_FILE is",
         origin, what);
  }
}

ImportFormat format_of(std::string_view text, std::string_view origin) {
  if (text.find("npus_count") != std::string_view::npos) return ImportFormat::astra_sim;
  if (text.find("<system") != std::string_view::npos) return ImportFormat::nccl_xml;
  constexpr std::string_view kOfAmd[] = {
      "ROCm System Management", "between two GPUs", " TABLE:",  "(Topology) ",
      "\"link_type\"",          "link_type_gpu_",   "num_hops", "WEIGHT TABLE"};
  for (const std::string_view sign : kOfAmd) {
    if (text.find(sign) != std::string_view::npos) return ImportFormat::amd_smi;
  }
  refuse_known(text, origin);
  if (text.find("GPU0") != std::string_view::npos) return ImportFormat::nvidia_smi;
  fail(
      "{}: it looks like nothing that can be imported: the matrix of nvidia-smi topo -m, the "
      "tables of rocm-smi --showtopo or amd-smi topology, NCCL's topology as XML, ASTRA-sim's "
      "network file; name it --from",
      origin);
}

}  // namespace

std::string_view name_of(ImportFormat format) {
  switch (format) {
    case ImportFormat::nvidia_smi:
      return "nvidia-smi";
    case ImportFormat::amd_smi:
      return "amd-smi";
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
    refuse_known(text, origin);
    const Host host = format == ImportFormat::nccl_xml  ? read_nccl_xml(text, origin)
                      : format == ImportFormat::amd_smi ? read_amd_smi(text, origin)
                                                        : read_nvidia_smi(text, origin);
    if (options.no_nvlink && format != ImportFormat::nccl_xml) {
      fail("{}: --no-nvlink is for NCCL's XML; the text says which GPUs have NVLink", origin);
    }
    t = topology_of(host, origin, options);
  }
  t.name = options.name;
  require_valid(t, origin);
  return t;
}

}  // namespace arlab

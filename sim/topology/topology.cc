#include "sim/topology/topology.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "reference/collectives/algorithm.h"
#include "sim/topology/machine_files.h"
#include "sim/topology/quantities.h"
#include "sim/topology/toml_section.h"

namespace arlab {

std::string_view name_of(Source source) {
  switch (source) {
    case Source::datasheet:
      return "datasheet";
    case Source::measured:
      return "measured";
    case Source::fitted:
      return "fitted";
    case Source::published:
      return "published";
    case Source::assumed:
      return "assumed";
  }
  return "?";
}

std::string_view name_of(TopologyKind kind) {
  switch (kind) {
    case TopologyKind::full_mesh:
      return "full_mesh";
    case TopologyKind::ring:
      return "ring";
    case TopologyKind::switched:
      return "switch";
    case TopologyKind::numa:
      return "numa";
    case TopologyKind::torus:
      return "torus";
    case TopologyKind::fat_tree:
      return "fat_tree";
    case TopologyKind::dragonfly:
      return "dragonfly";
    case TopologyKind::graph:
      return "graph";
  }
  return "?";
}

std::string_view name_of(ServerInside inside) {
  switch (inside) {
    case ServerInside::switched:
      return "switch";
    case ServerInside::mesh:
      return "mesh";
    case ServerInside::pcie:
      return "pcie";
  }
  return "?";
}

std::vector<std::string> link_types_of(TopologyKind kind) {
  switch (kind) {
    case TopologyKind::full_mesh:
    case TopologyKind::ring:
    case TopologyKind::switched:
    case TopologyKind::torus:
      return {"link"};
    case TopologyKind::numa:
      return {"link", "bridge"};
    case TopologyKind::fat_tree:
      return {"link", "nic", "uplink"};
    case TopologyKind::dragonfly:
      return {"link", "local", "global"};
    case TopologyKind::graph:
      break;
  }
  return {};
}

std::string describe(NodeName node) {
  return fmt::format("{}{}", node.is_switch ? "switch" : "rank", node.number);
}

const LinkType& Topology::link_type(std::string_view type) const {
  for (const LinkType& candidate : link_types) {
    if (candidate.name == type) return candidate;
  }
  throw std::out_of_range(fmt::format("topology '{}' has no links of type '{}'", name, type));
}

bool Topology::has_link_type(std::string_view type) const {
  return std::any_of(link_types.begin(), link_types.end(),
                     [type](const LinkType& candidate) { return candidate.name == type; });
}

LinkType& Topology::link_type(std::string_view type) {
  return const_cast<LinkType&>(std::as_const(*this).link_type(type));
}

std::string name_with_caveat(const Topology& t) {
  return t.caveat.empty() ? t.name : fmt::format("{} (not to be trusted: {})", t.name, t.caveat);
}

// ---------------------------------------------------------------- nodes

Server server_of(const Topology& t) {
  const Rank ranks = std::max<Rank>(t.group_size.value, 1);
  const Rank cards = t.nics.value > 0 ? t.nics.value : ranks;
  Server server;
  const bool own_card = cards % ranks == 0 && t.pcie_switches.value == 0;
  if (own_card && t.inside != ServerInside::pcie && !t.has_link_type("pcie")) {
    server.rails = ranks;
  } else {
    server.hubs = t.pcie_switches.value > 0 ? t.pcie_switches.value : std::min(cards, ranks);
    server.rails = std::min(cards, server.hubs);
    server.has_root = t.inside == ServerInside::pcie && server.hubs > 1;
  }
  server.cards_per_rail = std::max<Rank>(cards / std::max<Rank>(server.rails, 1), 1);
  return server;
}

std::vector<SwitchSort> switches_of(const Topology& t) {
  std::vector<SwitchSort> sorts;
  Rank next = 0;
  const auto add = [&](Rank count, std::string words) {
    if (count > 0) sorts.push_back({next, count, std::move(words)});
    next += count;
  };
  const Rank ranks = t.ranks.value;
  switch (t.kind) {
    case TopologyKind::switched:
      add(1, "to which all ranks are linked");
      break;
    case TopologyKind::numa:
      add(ranks / t.group_size.value, "of the groups");
      break;
    case TopologyKind::fat_tree: {
      const Rank servers = ranks / t.group_size.value;
      const Server server = server_of(t);
      if (t.inside == ServerInside::switched) add(servers, "inside the servers");
      add(servers * server.hubs, fmt::format("for PCIe, {} in each server", server.hubs));
      if (server.has_root) add(servers, "the root complexes of the servers");
      if (servers == 1) break;
      const Rank pods = (servers + t.leaf_servers.value - 1) / t.leaf_servers.value;
      add(pods * server.rails, fmt::format("the leaves, {} rails in each pod", server.rails));
      add(1, "the core");
      break;
    }
    case TopologyKind::dragonfly: {
      const Rank routers = t.group_size.value;
      const Rank per_group = routers * t.ranks_per_router.value;
      add((ranks + per_group - 1) / per_group * routers,
          fmt::format("the routers, {} in each group", routers));
      break;
    }
    case TopologyKind::graph:
      add(t.switches, "");
      break;
    default:
      break;
  }
  return sorts;
}

std::string nodes_in_words(const Topology& t) {
  const auto range = [](const char* what, Rank first, Rank count) {
    return count == 1 ? fmt::format("{}{}", what, first)
                      : fmt::format("{}{} to {}{}", what, first, what, first + count - 1);
  };
  std::string text = range("rank", 0, t.ranks.value);
  for (const SwitchSort& sort : switches_of(t)) {
    text += ", " + range("switch", sort.first, sort.count);
    if (!sort.words.empty()) text += " (" + sort.words + ")";
  }
  return text;
}

// ---------------------------------------------------------------- groups

namespace {

/// Returns the ranks per unit of a graph: those on one sharing domain of a link, else on the same other end of the fastest one.
/// Runs of ranks with the same, if all are equally long; 1 where there are none.
std::uint64_t ranks_of_a_unit(const Topology& t) {
  struct Home {
    double gb_per_s = -1;
    std::string name;
    bool operator==(const Home&) const = default;
  };
  std::vector<Home> homes(t.ranks.value);
  for (const Edge& edge : t.edges) {
    const double gb_per_s = edge.domain.empty() ? t.link_type(edge.type).bandwidth_gb_per_s.value
                                                : std::numeric_limits<double>::infinity();
    for (const auto& [end, other] : {std::pair(edge.from, edge.to), {edge.to, edge.from}}) {
      if (end.is_switch || gb_per_s <= homes[end.number].gb_per_s) continue;
      if (edge.domain.empty() && !other.is_switch) continue;
      homes[end.number] = {gb_per_s, edge.domain.empty() ? describe(other) : edge.domain};
    }
  }
  Rank unit = 0;
  for (Rank begin = 0, end = 0; begin < homes.size(); begin = end) {
    for (end = begin; end < homes.size() && homes[end].name == homes[begin].name;) ++end;
    if (homes[begin].name.empty() || (unit != 0 && end - begin != unit)) return 1;
    unit = end - begin;
  }
  return unit;
}

/// Neighbouring ranks that are closer to each other than to others.
std::uint64_t unit_of(const Topology& t) {
  switch (t.kind) {
    case TopologyKind::full_mesh:
    case TopologyKind::switched:
      return t.ranks.value;
    case TopologyKind::numa:
    case TopologyKind::fat_tree:
      return t.group_size.value;
    case TopologyKind::dragonfly:
      return std::uint64_t{t.group_size.value} * t.ranks_per_router.value;
    case TopologyKind::torus:
      return t.shape.back();
    case TopologyKind::graph:
      return ranks_of_a_unit(t);
    case TopologyKind::ring:
      break;
  }
  return 1;
}

}  // namespace

Rank default_group_size(const Topology& topology, Rank world_size) {
  if (unit_of(topology) >= world_size) return default_group_size(world_size);
  std::vector<Rank> ranks(world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return default_group_size(topology, ranks);
}

Rank default_group_size(const Topology& topology, const std::vector<Rank>& ranks) {
  const auto world_size = static_cast<Rank>(ranks.size());
  const std::uint64_t unit = unit_of(topology);
  Rank common = 0;
  Rank parts = 0;
  bool whole = true;
  for (std::size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    while (end < ranks.size() && ranks[end] / unit == ranks[begin] / unit) ++end;
    common = std::gcd(common, static_cast<Rank>(end - begin));
    whole = whole && end - begin == unit;
    ++parts;
  }
  if (parts <= 1 || (!whole && common == 1)) return default_group_size(world_size);
  Rank group = common;
  while (whole && (group < world_size / group || world_size % group != 0)) group += common;
  return group;
}

std::vector<Rank> group_sizes(const Topology& topology, Rank world_size, std::size_t most) {
  const Rank usual = default_group_size(topology, world_size);
  const std::uint64_t unit = unit_of(topology);
  std::vector<Rank> sizes = {usual};
  for (Rank size = 2; size < world_size; ++size) {
    const bool fits = size % unit == 0 || unit % size == 0;
    if (world_size % size == 0 && fits && size != usual) sizes.push_back(size);
  }
  const auto steps_from_usual = [usual](Rank size) {
    return std::max(size, usual) / static_cast<double>(std::min(size, usual));
  };
  std::stable_sort(sizes.begin(), sizes.end(),
                   [&](Rank a, Rank b) { return steps_from_usual(a) < steps_from_usual(b); });
  if (sizes.size() > most) sizes.resize(most);
  return sizes;
}

// ---------------------------------------------------------------- validity

namespace {

/// Links between the switches of a kind where their number grows with a square.
std::uint64_t links_between_switches(const Topology& t) {
  const std::uint64_t ranks = t.ranks.value;
  const std::uint64_t size = t.group_size.value;
  if (t.kind == TopologyKind::numa) {
    const std::uint64_t groups = ranks / size;
    return groups * (groups - 1);
  }
  if (t.kind != TopologyKind::dragonfly) return 0;
  const std::uint64_t per_group = size * t.ranks_per_router.value;
  const std::uint64_t groups = (ranks + per_group - 1) / per_group;
  return groups * size * (size - 1) + groups * (groups - 1);
}

void require_servers(const Topology& t, std::string_view origin) {
  if (t.leaf_servers.value < 1) {
    fail("{}: key 'leaf_servers.value': it must be at least 1", origin);
  }
  const Rank ranks = t.group_size.value;
  const auto divides = [](Rank a, Rank b) { return a % b == 0 || b % a == 0; };
  if (t.nics.value > 0 && !divides(t.nics.value, ranks)) {
    fail(
        "{}: key 'nics.value': {} network cards are no whole number for each of {} ranks, nor the "
        "other way round",
        origin, t.nics.value, ranks);
  }
  const Server server = server_of(t);
  if (server.hubs > 0 && ranks % server.hubs != 0) {
    fail("{}: key 'pcie_switches.value': {} do not divide the {} ranks of a server", origin,
         server.hubs, ranks);
  }
  const Rank cards = t.nics.value > 0 ? t.nics.value : ranks;
  if (server.hubs > 0 && !divides(cards, server.hubs)) {
    fail(
        "{}: key 'pcie_switches.value': {} network cards are no whole number for each of {} PCIe "
        "switches, nor the other way round",
        origin, cards, server.hubs);
  }
  if (!server.is_alike() && t.inside != ServerInside::pcie) {
    fail(
        "{}: key 'pcie_switches.value': some of the {} have none of the {} network cards; that is "
        "allowed with inside = \"pcie\", where others lead to one",
        origin, server.hubs, cards);
  }
  for (const char* type : {"link", "pcie", "root", "nic", "uplink"}) {
    const bool wanted = std::string_view(type) == "link"   ? t.inside != ServerInside::pcie
                        : std::string_view(type) == "pcie" ? server.hubs > 0
                        : std::string_view(type) == "root" ? server.has_root
                                                           : true;
    if (wanted && !t.has_link_type(type)) fail("{}: missing key '{}'", origin, type);
    if (!wanted && t.has_link_type(type)) {
      fail("{}: key '{}': nothing in such a server is one; leave it out", origin, type);
    }
  }
}

void require_counts(const Topology& t, std::string_view origin) {
  const Rank ranks = t.ranks.value;
  const Rank most = t.kind == TopologyKind::full_mesh ? kMaxFullMeshRanks : kMaxTopologyRanks;
  if (ranks < 1 || ranks > most) {
    fail("{}: key 'ranks.value': {} is out of range; allowed is 1 to {}", origin, ranks, most);
  }
  const Rank group = t.group_size.value;
  const bool grouped = t.kind == TopologyKind::numa || t.kind == TopologyKind::fat_tree;
  if (grouped && (group < 1 || ranks % group != 0)) {
    fail("{}: key 'group_size.value': {} does not divide the {} ranks", origin, group, ranks);
  }
  if (t.kind == TopologyKind::fat_tree) require_servers(t, origin);
  if (t.kind == TopologyKind::dragonfly) {
    const std::uint64_t per_group = std::uint64_t{group} * t.ranks_per_router.value;
    if (per_group < 1 || per_group > kMaxTopologyRanks) {
      fail(
          "{}: keys 'group_size.value' and 'ranks_per_router.value': {} ranks in a group are out "
          "of range; allowed is 1 to {}",
          origin, per_group, kMaxTopologyRanks);
    }
  }
  const std::uint64_t links = links_between_switches(t);
  if (links > kMaxSwitchLinks) {
    fail("{}: key 'group_size.value': groups of {} make {} links between switches; allowed are {}",
         origin, group, links, kMaxSwitchLinks);
  }
  if (t.kind == TopologyKind::torus) {
    std::uint64_t product = t.shape.empty() ? 0 : 1;
    for (const Rank extent : t.shape) product = std::min<std::uint64_t>(product * extent, 1 << 20);
    if (product != ranks) {
      fail("{}: key 'shape': its extents multiply to {}, not to the {} ranks", origin, product,
           ranks);
    }
  }
}

void require_node(const Topology& t, NodeName node, std::string_view where) {
  const std::vector<SwitchSort> sorts = switches_of(t);
  const Rank switches = sorts.empty() ? 0 : sorts.back().first + sorts.back().count;
  if (node.number < (node.is_switch ? switches : t.ranks.value)) return;
  fail("{}: there is no {}; there are {}", where, describe(node), nodes_in_words(t));
}

/// Names end up in messages and as parts of dotted keys.
void require_name(const std::string& name, std::string_view origin, std::string_view key) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  if (!name.empty() && std::all_of(name.begin(), name.end(), allowed)) return;
  fail("{}: key '{}': {} is no name; allowed are letters, digits, '_' and '-'", origin, key,
       quote(name));
}

void require_graph(const Topology& t, std::string_view origin) {
  std::vector<std::string> types;
  for (const LinkType& type : t.link_types) {
    require_name(type.name, origin, "links");
    types.push_back(type.name);
  }
  std::vector<std::string> domains;
  for (const SharingDomain& domain : t.domains) {
    require_name(domain.name, origin, "domains");
    domains.push_back(domain.name);
  }
  const auto known = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (std::size_t i = 0; i < t.edges.size(); ++i) {
    const Edge& edge = t.edges[i];
    const std::string where = fmt::format("{}: key 'edges' {}", origin, i);
    require_node(t, edge.from, where);
    require_node(t, edge.to, where);
    if (edge.from == edge.to) {
      fail("{}: it leads from {} to itself; an edge joins two nodes", where, describe(edge.from));
    }
    if (!known(types, edge.type)) {
      fail("{}: unknown type '{}': {}", where, edge.type,
           instead_of(edge.type, {types, "allowed are"}));
    }
    if (!edge.domain.empty() && !known(domains, edge.domain)) {
      fail("{}: unknown domain '{}': {}", where, edge.domain,
           instead_of(edge.domain, {domains, "sections [domains.NAME] are"}));
    }
    if (!edge.domain.empty() && t.link_type(edge.type).both_ways_gb_per_s) {
      fail("{}: its type has a both_ways_gb_per_s, which is a domain of its own; allowed is one",
           where);
    }
  }
}

/// Written so that a NaN fails too.
void require_between(double value, double least, double most, std::string_view where,
                     const char* what) {
  if (value >= least && value <= most) return;
  fail("{}: {} {} is out of range; allowed is {} to {}", where, what, value, least, most);
}

void require_factor(double factor, std::string_view where) {
  if (factor == 0 || (factor >= kSmallestQuantity && factor <= 1 / kSmallestQuantity)) return;
  fail("{}: bandwidth_factor {} is out of range; allowed are 0 (it does not work) and {} to {}",
       where, factor, kSmallestQuantity, 1 / kSmallestQuantity);
}

/// Checks changes during a collective, and variation from run to run and from rank to rank.
void require_varying(const Topology& t, std::string_view origin) {
  for (std::size_t i = 0; i < t.link_events.size(); ++i) {
    const LinkEvent& event = t.link_events[i];
    const std::string where = fmt::format("{}: key 'link_events' {}", origin, i);
    require_node(t, event.from, where);
    require_node(t, event.to, where);
    require_between(event.at_us, 0, kLargestQuantity, where, "at_us");
    require_factor(event.bandwidth_factor, where);
  }
  for (std::size_t i = 0; i < t.background.size(); ++i) {
    const BackgroundFlow& flow = t.background[i];
    const std::string where = fmt::format("{}: key 'background' {}", origin, i);
    require_node(t, flow.from, where);
    require_node(t, flow.to, where);
    if (flow.from == flow.to) fail("{}: it leads from {} to itself", where, describe(flow.from));
    require_between(flow.gb_per_s, kSmallestQuantity, kLargestQuantity, where, "gb_per_s");
    require_between(flow.from_us, 0, kLargestQuantity, where, "from_us");
    require_between(flow.until_us, flow.from_us, kLargestQuantity, where, "until_us");
  }
  std::set<Rank> seen;
  for (std::size_t i = 0; i < t.device_overrides.size(); ++i) {
    const std::string where = fmt::format("{}: key 'device_overrides' {}", origin, i);
    if (t.device_overrides[i].ranks.empty()) fail("{}: it names no ranks", where);
    for (const Rank rank : t.device_overrides[i].ranks) {
      if (rank >= t.ranks.value) {
        fail("{}: there is no rank {}; allowed is 0 to {}", where, rank, t.ranks.value - 1);
      }
      if (!seen.insert(rank).second) fail("{}: rank {} is named twice", where, rank);
    }
  }
  require_between(t.jitter.launch_us, 0, kLargestQuantity, origin, "jitter.launch_us");
  require_between(t.jitter.message_us, 0, kLargestQuantity, origin, "jitter.message_us");
}

void require_conditions(const Topology& t, std::string_view origin) {
  for (std::size_t i = 0; i < t.faults.size(); ++i) {
    const LinkFault& fault = t.faults[i];
    const std::string where = fmt::format("{}: key 'faults' {}", origin, i);
    require_node(t, fault.from, where);
    require_node(t, fault.to, where);
    require_factor(fault.bandwidth_factor, where);
  }
  std::set<std::pair<std::string, std::string>> faulty;
  for (std::size_t i = 0; i < t.faults.size(); ++i) {
    const std::pair ends(describe(t.faults[i].from), describe(t.faults[i].to));
    if (faulty.insert(ends).second) continue;
    fail("{}: key 'faults' {}: the link from {} to {} is named twice", origin, i, ends.first,
         ends.second);
  }
  require_varying(t, origin);
  std::set<Rank> seen;
  for (std::size_t i = 0; i < t.stragglers.size(); ++i) {
    const Rank rank = t.stragglers[i].rank;
    const std::string where = fmt::format("{}: key 'stragglers' {}", origin, i);
    if (rank >= t.ranks.value) {
      fail("{}: there is no rank {}; allowed is 0 to {}", where, rank, t.ranks.value - 1);
    }
    if (!seen.insert(rank).second) fail("{}: rank {} is named twice", where, rank);
  }
}

void require_library(const Topology& t, std::string_view origin) {
  if (!t.device.library) return;
  std::vector<std::string> allowed;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective == Collective::all_reduce) allowed.push_back(algorithm.name);
  }
  const Library& library = *t.device.library;
  if (library.chooses_by_expectation()) {
    const bool no_rings = !is_given(library.ring_gb_per_s);
    if (no_rings || !is_given(library.low_latency_ring_gb_per_s)) {
      fail(
          "{}: missing key 'library.{}', by which NCCL chooses; of RCCL it is "
          "low_latency_max_bytes",
          origin, no_rings ? "ring_gb_per_s" : "low_latency_ring_gb_per_s");
    }
  }
  const std::vector<std::string>& names = library.algorithms;
  const auto unknown = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return std::find(allowed.begin(), allowed.end(), name) == allowed.end();
  });
  if (names.empty() || unknown != names.end()) {
    fail("{}: key 'library.algorithms': {}; allowed are one or more of {}", origin,
         names.empty() ? "there are none" : quote(*unknown) + " is no all-reduce", join(allowed));
  }
}

void require_uncertainty(const std::optional<Uncertainty>& known, std::string_view section,
                         std::string_view origin) {
  if (!known) return;
  const Uncertainty& u = *known;
  const auto is_percent = [](double value) { return value >= 0 && value <= 1000; };
  const auto is_correlation = [](double value) { return value >= -1 && value <= 1; };
  bool fits = u.sigma_percent.size() == u.constants.size() &&
              u.correlation.size() == u.constants.size() && is_percent(u.scatter_percent) &&
              std::all_of(u.sigma_percent.begin(), u.sigma_percent.end(), is_percent);
  for (std::size_t i = 0; fits && i < u.correlation.size(); ++i) {
    const std::vector<double>& row = u.correlation[i];
    fits = row.size() == i && std::all_of(row.begin(), row.end(), is_correlation);
  }
  if (!fits) {
    fail(
        "{}: section '{}' does not fit together; allowed are as many numbers in "
        "sigma_percent (0 to 1000) as there are constants, and in row i of correlation i numbers "
        "from -1 to 1",
        origin, section);
  }
}

void require_codecs(const Topology& topology, std::string_view origin) {
  for (const CodecTimes& codec : topology.device.codecs) {
    for (const double number : {codec.fp16.encode, codec.fp16.decode, codec.bf16.encode,
                                codec.bf16.decode, codec.slots, codec.cycles}) {
      if (number >= kSmallestQuantity && number <= kLargestQuantity) continue;
      fail("{}: key 'codecs.{}': {} is out of range; allowed is {} to {}", origin,
           printable(codec.codec), number, kSmallestQuantity, kLargestQuantity);
    }
  }
}

/// Where flags are written and polled side by side, one more costs nothing.
bool may_be_zero_quantity(std::string_view key) {
  return key.ends_with("message_us") || key.ends_with("hop_us") ||
         key.ends_with("overhead.step_us") || key.ends_with("sentinels.fill_us") ||
         key.ends_with("rendezvous_us") || key.ends_with("drift_us") ||
         key.ends_with("library.low_latency_channel_gb_per_s") ||
         key.ends_with("library.exchange_gb_per_s") ||
         key.find("blocks.multiprocessor") != std::string_view::npos;
}

}  // namespace

void require_valid(const Topology& topology, std::string_view origin) {
  require_library(topology, origin);
  require_counts(topology, origin);
  require_graph(topology, origin);
  require_conditions(topology, origin);
  require_uncertainty(topology.uncertainty, "uncertainty", origin);
  require_uncertainty(topology.server_uncertainty, "server_uncertainty", origin);
  if (topology.device.stores && topology.device.blocks) {
    fail("{}: sections 'stores' and 'blocks' are two models of a kernel; allowed is one", origin);
  }
  const Device& device = topology.device;
  if (!device.blocks && (device.small || device.sentinels || !device.codecs.empty())) {
    fail("{}: section '{}' needs section 'blocks', whose kernels these are", origin,
         device.small       ? "small"
         : device.sentinels ? "sentinels"
                            : "codecs");
  }
  require_codecs(topology, origin);
  const bool can_nvls = topology.in_switch.multicast && topology.in_switch.reduction;
  if (device.library && device.library->nvls && !can_nvls) {
    fail(
        "{}: section 'library.nvls' needs a switch that can do it: [switch] with multicast = true "
        "and "
        "reduction = true",
        origin);
  }
  // Called for each simulation, so a key is looked at only where its value is not allowed for all.
  const auto require_quantity = [&](std::string_view key, const Quantity& quantity) {
    const double value = quantity.value;
    // Less than 1 would mean that two times take longer together than one after the other.
    if (!(value >= 1 && value <= kLargestOverlap) && key.ends_with("_overlap")) {
      fail(
          "{}: key '{}.value': {} is out of range; allowed is 1 (one after the other) to {} (the "
          "longer alone)",
          origin, key, value, kLargestOverlap);
    }
    // More than all of the bandwidth there is not.
    if (value > 1 && key.ends_with("efficiency")) {
      fail("{}: key '{}.value': {} is out of range; allowed is {} to 1", origin, key, value,
           kSmallestQuantity);
    }
    const bool is_count = value >= 1 && value <= kMostChannels && value == std::floor(value);
    if (!is_count && key.ends_with(".channels")) {
      fail("{}: key '{}.value': {} is out of range; allowed is a whole number from 1 to {}", origin,
           key, value, kMostChannels);
    }
    if (value >= kSmallestQuantity && value <= kLargestQuantity) return;
    const bool may_be_zero = may_be_zero_quantity(key);
    if (value == 0 && (may_be_zero || !is_given(quantity))) return;
    fail("{}: key '{}.value': {} is out of range; allowed is {}{} to {}", origin, key, value,
         may_be_zero ? "0, or " : "", kSmallestQuantity, kLargestQuantity);
  };
  for_each_quantity(topology, require_quantity);
  for (const DeviceOverride& each : topology.device_overrides) {
    for_each_quantity_of(each.device, [&](const std::string& key, const Quantity& quantity) {
      require_quantity("device_overrides." + key, quantity);
    });
  }
}

std::vector<NamedQuantity> quantities_of(const Topology& topology) {
  std::vector<NamedQuantity> all;
  for_each_count(topology, [&all](const char* key, const Count& count) {
    all.push_back({key, {static_cast<double>(count.value), count.source, count.note}});
  });
  for_each_quantity(topology, [&](const std::string& key, const Quantity& quantity) {
    if (!is_optional_quantity(key) || is_given(quantity)) all.push_back({key, quantity});
  });
  return all;
}

// ---------------------------------------------------------------- topologies by name

namespace {

Quantity assumed(double value) {
  return {value, Source::assumed, "round number of a generated topology"};
}

Count counted(Rank value) { return {value, Source::assumed, "follows from the name"}; }

std::vector<std::string> known_topologies() {
  std::vector<std::string> known = listed_topologies();
  for (const GeneratedTopology& g : kGeneratedTopologies) known.emplace_back(g.pattern);
  return known;
}

/// 4x4x8, one to six factors.
std::vector<Rank> extents_of(std::string_view name, std::string_view text) {
  std::vector<Rank> extents;
  const char* at = text.data();
  const char* end = at + text.size();
  std::uint64_t product = 1;
  for (bool more = true; more;) {
    Rank extent = 0;
    const auto [stop, error] = std::from_chars(at, end, extent);
    product *= std::min<std::uint64_t>(extent, kMaxTopologyRanks + 1);
    if (error != std::errc() || extent < 1 || product > kMaxTopologyRanks || extents.size() == 6 ||
        (stop != end && *stop != 'x')) {
      fail(
          "topology '{}': '{}' is no shape; allowed are 1 to 6 extents like 4x4x8 with a product "
          "of 1 to {}",
          name, text, kMaxTopologyRanks);
    }
    extents.push_back(extent);
    more = stop != end;
    if (more) at = stop + 1;
  }
  return extents;
}

Rank ranks_of(std::string_view name, std::string_view text, Rank most) {
  Rank ranks = 0;
  const char* end = text.data() + text.size();
  const auto [parsed_to, error] = std::from_chars(text.data(), end, ranks);
  if (error != std::errc() || parsed_to != end || ranks < 1 || ranks > most) {
    fail("topology '{}': '{}' is not a number of ranks; allowed is 1 to {}", name, text, most);
  }
  return ranks;
}

/// The balanced dragonfly of Kim et al. (2008): a = 2 h routers in a group, p = h ranks per router,
/// h global links per router, up to a h + 1 groups.
void shape_dragonfly(Topology& t) {
  Rank h = 1;
  while (std::uint64_t{2} * h * h * (2 * h * h + 1) < t.ranks.value) ++h;
  t.group_size = counted(2 * h);
  t.ranks_per_router = counted(h);
}

/// Generated topologies ask "what if"; their numbers are round and belong to no machine.
Topology generated(std::string_view name, std::string_view shape, std::string_view parameter) {
  Topology t;
  t.name = std::string(name);
  t.device = generic_device();
  if (shape == "full") {
    t.kind = TopologyKind::full_mesh;
  } else if (shape == "ring") {
    t.kind = TopologyKind::ring;
  } else if (shape == "torus") {
    t.kind = TopologyKind::torus;
  } else if (shape == "fat_tree") {
    t.kind = TopologyKind::fat_tree;
  } else {
    t.kind = TopologyKind::dragonfly;
  }
  if (t.kind == TopologyKind::torus) {
    t.shape = extents_of(name, parameter);
    Rank ranks = 1;
    for (const Rank extent : t.shape) ranks *= extent;
    t.ranks = counted(ranks);
  } else {
    const bool mesh = t.kind == TopologyKind::full_mesh;
    t.ranks = counted(ranks_of(name, parameter, mesh ? kMaxFullMeshRanks : kMaxTopologyRanks));
  }
  for (const std::string& type : link_types_of(t.kind)) {
    t.link_types.push_back({type, assumed(50), assumed(1)});
  }
  if (t.kind == TopologyKind::fat_tree) {
    constexpr Rank kServer = 8;
    if (t.ranks.value % kServer != 0) {
      fail("topology '{}': {} ranks do not make servers of {}; allowed are multiples of {}", name,
           t.ranks.value, kServer, kServer);
    }
    t.group_size = counted(kServer);
    t.leaf_servers = counted(32);
    t.link_type("link").bandwidth_gb_per_s = assumed(450);
    t.link_type("uplink").bandwidth_gb_per_s = assumed(50 * 32);
  }
  if (t.kind == TopologyKind::dragonfly) shape_dragonfly(t);
  t.devices_forward = t.kind == TopologyKind::ring || t.kind == TopologyKind::torus;
  t.summary = fmt::format("generated {} of {} devices", name_of(t.kind), t.ranks.value);
  require_valid(t, name);
  return t;
}

}  // namespace

Topology find_topology(std::string_view name_or_path) {
  if (name_or_path.ends_with(".toml")) return read_topology(name_or_path);
  for (const MachineFile& machine : machine_files()) {
    if (machine.name == name_or_path) return parse_topology(machine.toml, machine.name);
  }
  const std::size_t colon = name_or_path.find(':');
  if (colon != std::string_view::npos) {
    const std::string_view shape = name_or_path.substr(0, colon);
    for (const GeneratedTopology& g : kGeneratedTopologies) {
      if (shape != g.name) continue;
      // Whatever follows the colon stands in messages.
      const std::string name = printable(std::string(name_or_path));
      return generated(name, shape, std::string_view(name).substr(colon + 1));
    }
  }
  fail("unknown topology '{}': {}", printable(std::string(name_or_path)),
       instead_of(name_or_path, {.names = known_topologies(),
                                 .all = "`arlab list topologies` has all; a path ends in .toml",
                                 .endings = {".toml"}}));
}

std::vector<std::string> listed_topologies() {
  std::vector<std::string> names;
  for (const MachineFile& machine : machine_files()) names.emplace_back(machine.name);
  return names;
}

}  // namespace arlab

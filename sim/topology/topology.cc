#include "sim/topology/topology.h"

#include <charconv>
#include <system_error>
#include <utility>

#include "sim/topology/machine_files.h"
#include "sim/topology/quantities.h"

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
  }
  return "?";
}

std::string_view name_of(LinkClass link_class) {
  switch (link_class) {
    case LinkClass::link:
      return "link";
    case LinkClass::port_out:
      return "port_out";
    case LinkClass::port_in:
      return "port_in";
    case LinkClass::bridge:
      return "bridge";
  }
  return "?";
}

// ---------------------------------------------------------------- quantities

void require_valid(const Topology& topology, std::string_view origin) {
  const Rank ranks = topology.ranks.value;
  if (ranks < 1 || ranks > kMaxTopologyRanks) {
    fail("{}: key 'ranks.value': {} is out of range; allowed is 1 to {}", origin, ranks,
         kMaxTopologyRanks);
  }
  const Rank group = topology.group_size.value;
  if (topology.kind == TopologyKind::numa && (group < 1 || ranks % group != 0)) {
    fail("{}: key 'group_size.value': {} does not divide the {} ranks", origin, group, ranks);
  }
  for_each_quantity(topology, [&](const char* section, const char* key, const Quantity& quantity) {
    if (quantity.value >= kSmallestQuantity && quantity.value <= kLargestQuantity) return;
    fail("{}: key '{}.{}.value': {} is out of range; allowed is {} to {}", origin, section, key,
         quantity.value, kSmallestQuantity, kLargestQuantity);
  });
}

std::vector<NamedQuantity> quantities_of(const Topology& topology) {
  std::vector<NamedQuantity> all;
  const auto add_count = [&all](std::string key, const Count& count) {
    all.push_back({std::move(key), {static_cast<double>(count.value), count.source, count.note}});
  };
  add_count("ranks", topology.ranks);
  if (topology.kind == TopologyKind::numa) add_count("group_size", topology.group_size);
  for_each_quantity(topology, [&](const char* section, const char* key, const Quantity& quantity) {
    all.push_back({fmt::format("{}.{}", section, key), quantity});
  });
  return all;
}

// ---------------------------------------------------------------- topologies by name

namespace {

/// full:N and ring:N ask "what if"; their numbers are round and belong to no machine.
Topology generated(std::string_view name, TopologyKind kind, std::string_view parameter) {
  Rank ranks = 0;
  const char* end = parameter.data() + parameter.size();
  const auto [parsed_to, error] = std::from_chars(parameter.data(), end, ranks);
  if (error != std::errc() || parsed_to != end || ranks < 1 || ranks > kMaxTopologyRanks) {
    fail("topology '{}': '{}' is not a number of ranks; allowed is 1 to {}", name, parameter,
         kMaxTopologyRanks);
  }
  const auto assumed = [](double value) {
    return Quantity{value, Source::assumed, "round number of a generated topology"};
  };
  return {.name = std::string(name),
          .summary = fmt::format("generated {} of {} devices", name_of(kind), ranks),
          .kind = kind,
          .ranks = {ranks, Source::assumed, "asked for by name"},
          .group_size = {},
          .link_bandwidth_gb_per_s = assumed(50),
          .link_latency_us = assumed(1),
          .bridge_bandwidth_gb_per_s = {},
          .bridge_latency_us = {},
          .launch_overhead_us = assumed(4),
          .step_overhead_us = assumed(0.5),
          .message_overhead_us = assumed(0.5),
          .device = "generic",
          .codec_gops_per_s = assumed(2000),
          .codec_startup_us = assumed(6)};
}

std::string known_topologies() {
  std::string known;
  for (const std::string& name : listed_topologies()) known += name + ", ";
  return known + "full:N, ring:N, or the path of a .toml file";
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
    const std::string_view parameter = name_or_path.substr(colon + 1);
    if (shape == "full") return generated(name_or_path, TopologyKind::full_mesh, parameter);
    if (shape == "ring") return generated(name_or_path, TopologyKind::ring, parameter);
    if (shape == "torus" || shape == "fat_tree" || shape == "dragonfly") {
      fail("topology '{}': the closed-form model does not know {} yet; known are {}", name_or_path,
           shape, known_topologies());
    }
  }
  fail("unknown topology '{}': known are {}", name_or_path, known_topologies());
}

std::vector<std::string> listed_topologies() {
  std::vector<std::string> names;
  for (const MachineFile& machine : machine_files()) names.emplace_back(machine.name);
  return names;
}

// ---------------------------------------------------------------- links and routes
//
// Order of the links, n ranks, g groups:
//   full_mesh       all links out of rank 0, all out of rank 1, ...: pair_index(n, from, to)
//   ring            2 * from upwards, 2 * from + 1 downwards
//   switched, numa  n ports out, n ports in, then bridges: pair_index(g, from_group, to_group)

namespace {

/// Number of an ordered pair of different ones out of n, counted row by row.
LinkId pair_index(Rank n, Rank from, Rank to) { return from * (n - 1) + (to < from ? to : to - 1); }

}  // namespace

std::string describe(const Link& link) {
  switch (link.link_class) {
    case LinkClass::link:
      return fmt::format("link {}->{}", link.from, link.to);
    case LinkClass::port_out:
      return fmt::format("port out of {}", link.from);
    case LinkClass::port_in:
      return fmt::format("port into {}", link.to);
    case LinkClass::bridge:
      return fmt::format("bridge {}->{}", link.from, link.to);
  }
  return "?";
}

std::vector<Link> links_of(const Topology& topology) {
  const Rank n = topology.ranks.value;
  const double gb_per_s = topology.link_bandwidth_gb_per_s.value;
  std::vector<Link> links;
  switch (topology.kind) {
    case TopologyKind::full_mesh:
      for (Rank from = 0; from < n; ++from) {
        for (Rank to = 0; to < n; ++to) {
          if (to != from) links.push_back({LinkClass::link, from, to, gb_per_s});
        }
      }
      break;
    case TopologyKind::ring:
      for (Rank from = 0; from < n; ++from) {
        links.push_back({LinkClass::link, from, (from + 1) % n, gb_per_s});
        links.push_back({LinkClass::link, from, (from + n - 1) % n, gb_per_s});
      }
      break;
    case TopologyKind::switched:
    case TopologyKind::numa:
      for (Rank r = 0; r < n; ++r) links.push_back({LinkClass::port_out, r, r, gb_per_s});
      for (Rank r = 0; r < n; ++r) links.push_back({LinkClass::port_in, r, r, gb_per_s});
      if (topology.kind == TopologyKind::numa) {
        const Rank groups = n / topology.group_size.value;
        for (Rank from = 0; from < groups; ++from) {
          for (Rank to = 0; to < groups; ++to) {
            if (to == from) continue;
            links.push_back(
                {LinkClass::bridge, from, to, topology.bridge_bandwidth_gb_per_s.value});
          }
        }
      }
      break;
  }
  return links;
}

Route route_between(const Topology& topology, Rank from, Rank to) {
  const Rank n = topology.ranks.value;
  const double latency_us = topology.link_latency_us.value;
  switch (topology.kind) {
    case TopologyKind::full_mesh:
      return {{pair_index(n, from, to)}, latency_us};
    case TopologyKind::ring: {
      const Rank up = (to + n - from) % n;
      const bool upwards = up <= n - up;
      const Rank hops = upwards ? up : n - up;
      Route route;
      for (Rank hop = 0; hop < hops; ++hop) {
        const Rank at = (upwards ? from + hop : from + n - hop) % n;
        route.links.push_back(2 * at + (upwards ? 0 : 1));
      }
      route.latency_us = hops * latency_us;
      return route;
    }
    case TopologyKind::switched:
      return {{from, n + to}, latency_us};
    case TopologyKind::numa: {
      const Rank group_size = topology.group_size.value;
      const Rank from_group = from / group_size;
      const Rank to_group = to / group_size;
      if (from_group == to_group) return {{from, n + to}, latency_us};
      const LinkId bridge = 2 * n + pair_index(n / group_size, from_group, to_group);
      return {{from, bridge, n + to}, latency_us + topology.bridge_latency_us.value};
    }
  }
  return {};
}

}  // namespace arlab

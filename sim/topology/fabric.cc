#include "sim/topology/fabric.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace arlab {

namespace {

/// With faults, the links of a mesh are stored one by one.
constexpr Rank kMostRanksOfFaultyMesh = 2048;

// Dimensions of a torus; without divisions on a ring, where they took a tenth of a run.

/// How many ranks lie between two steps in a dimension of this extent, inside one of that stride.
Rank stride_inside(Rank stride, Rank extent) { return stride == extent ? 1 : stride / extent; }
/// A rank's place in a dimension.
Rank digit_of(Rank rank, Rank stride, Rank extent) {
  const Rank rest = stride == 1 ? rank : rank / stride;
  return rest < extent ? rest : rest % extent;
}
/// How many steps upwards lead from a place in a dimension to another.
Rank steps_up(Rank from, Rank to, Rank extent) {
  return to < from ? to + extent - from : to - from;
}

}  // namespace

/// Adds links class by class, each with what is wrong with it.
class Fabric::Builder {
 public:
  Builder(Fabric& fabric, const Topology& topology, double efficiency)
      : f_(fabric), t_(topology), efficiency_(efficiency) {
    for (const LinkFault& fault : t_.faults) {
      faults_[{node(fault.from), node(fault.to)}] = {fault.bandwidth_factor, false};
    }
  }

  void build() {
    const Rank ranks = t_.ranks.value;
    f_.network_.add_devices(ranks, t_.devices_forward ? Forwarding::yes : Forwarding::no);
    switch (t_.kind) {
      case TopologyKind::full_mesh:
        build_mesh();
        break;
      case TopologyKind::ring:
        build_torus({ranks});
        break;
      case TopologyKind::torus:
        build_torus(t_.shape);
        break;
      case TopologyKind::switched:
        build_ports(ranks);
        break;
      case TopologyKind::numa:
        build_numa();
        break;
      case TopologyKind::fat_tree:
        build_fat_tree();
        break;
      case TopologyKind::dragonfly:
        build_dragonfly();
        break;
      case TopologyKind::graph:
        build_graph();
        break;
    }
    require_faults_found();
    const FabricShifts shifts = shifts_of(t_);
    f_.has_shifts_ = shifts.any || !shifts.extents.empty();
    const bool over_devices = t_.kind == TopologyKind::ring || t_.kind == TopologyKind::torus;
    f_.is_regular_ = t_.faults.empty() && t_.kind != TopologyKind::graph &&
                     (t_.kind == TopologyKind::full_mesh || t_.devices_forward == over_devices);
  }

 private:
  struct Fault {
    double bandwidth_factor = 1;
    bool found = false;
  };

  NodeId node(NodeName name) const {
    return name.is_switch ? t_.ranks.value + name.number : name.number;
  }

  /// All links that follow are of this class.
  void begin(const std::string& link_class) {
    const auto known = std::find(f_.classes_.begin(), f_.classes_.end(), link_class);
    const auto index = static_cast<std::size_t>(known - f_.classes_.begin());
    if (known == f_.classes_.end()) f_.classes_.push_back(link_class);
    f_.spans_.push_back({f_.network_.links(), index, link_class});
  }

  void add(NodeId from, NodeId to, LinkSpec spec) {
    const auto fault = faults_.find({from, to});
    if (fault != faults_.end()) {
      fault->second.found = true;
      if (fault->second.bandwidth_factor == 0) return;
      spec.bandwidth_gb_per_s *= fault->second.bandwidth_factor;
    }
    f_.network_.add_link(from, to, spec);
  }

  LinkSpec spec(const char* type) const {
    const LinkType& t = t_.link_type(type);
    return {t.bandwidth_gb_per_s.value * efficiency_, t.latency_us.value, kNoDomain};
  }

  /// A message crosses two ports and pays the latency once.
  static LinkSpec without_latency(LinkSpec spec) {
    spec.latency_us = 0;
    return spec;
  }

  void build_mesh() {
    const Rank ranks = t_.ranks.value;
    begin("link");
    if (ranks < 2) return;
    if (faults_.empty() && t_.link_events.empty()) {
      f_.network_.add_full_mesh(0, ranks, spec("link"));
      return;
    }
    if (ranks > kMostRanksOfFaultyMesh) {
      fail(
          "topology '{}': a full mesh with faults or link_events may have at most {} ranks, not {}",
          t_.name, kMostRanksOfFaultyMesh, ranks);
    }
    for (Rank from = 0; from < ranks; ++from) {
      for (Rank to = 0; to < ranks; ++to) {
        if (to != from) add(from, to, spec("link"));
      }
    }
  }

  /// Links of a node: upwards and downwards in the slowest dimension, then in the next; in a
  /// dimension of two ranks both are the same. Routes take the lowest numbers of the shortest ways,
  /// hence go dimension by dimension.
  void build_torus(const std::vector<Rank>& shape) {
    begin("link");
    f_.shape_ = shape;
    for (const Rank extent : shape) f_.links_per_rank_ += std::min<Rank>(extent - 1, 2);
    for (Rank rank = 0; rank < t_.ranks.value; ++rank) {
      Rank stride = t_.ranks.value;
      for (const Rank extent : shape) {
        stride = stride_inside(stride, extent);
        if (extent == 1) continue;
        const Rank digit = rank / stride % extent;
        const Rank origin = rank - digit * stride;
        add(rank, origin + (digit + 1) % extent * stride, spec("link"));
        if (extent > 2) add(rank, origin + (digit + extent - 1) % extent * stride, spec("link"));
      }
    }
  }

  /// Ports of all ranks to a switch per `group_size` ranks; returns the first switch.
  NodeId build_ports(Rank group_size) {
    const Rank ranks = t_.ranks.value;
    const NodeId first = f_.network_.add_switches((ranks + group_size - 1) / group_size);
    begin("port_out");
    for (Rank r = 0; r < ranks; ++r) add(r, first + r / group_size, spec("link"));
    begin("port_in");
    for (Rank r = 0; r < ranks; ++r) {
      add(first + r / group_size, r, without_latency(spec("link")));
    }
    return first;
  }

  void build_numa() {
    const Rank group_size = t_.group_size.value;
    const Rank groups = t_.ranks.value / group_size;
    const NodeId first = build_ports(group_size);
    begin("bridge");
    for (Rank from = 0; from < groups; ++from) {
      for (Rank to = 0; to < groups; ++to) {
        if (to != from) add(first + from, first + to, spec("bridge"));
      }
    }
    f_.group_size_ = group_size;
  }

  void build_fat_tree() {
    const Rank ranks = t_.ranks.value;
    const Rank size = t_.group_size.value;
    const Server& server = f_.server_ = server_of(t_);
    f_.group_size_ = size;
    const Rank servers = ranks / size;
    if (t_.inside == ServerInside::switched) build_ports(size);
    if (t_.inside == ServerInside::mesh) build_meshes(size);
    NodeId hubs = 0;
    if (server.hubs > 0) {
      hubs = f_.network_.add_switches(servers * server.hubs);
      const auto hub_of = [&](Rank rank) {
        return hubs + rank / size * server.hubs + rank % size / (size / server.hubs);
      };
      begin("pcie_out");
      for (Rank r = 0; r < ranks; ++r) add(r, hub_of(r), spec("pcie"));
      begin("pcie_in");
      for (Rank r = 0; r < ranks; ++r) add(hub_of(r), r, without_latency(spec("pcie")));
    }
    if (server.has_root) {
      const NodeId roots = f_.network_.add_switches(servers);
      begin("root_out");
      for (Rank h = 0; h < servers * server.hubs; ++h) {
        add(hubs + h, roots + h / server.hubs, spec("root"));
      }
      begin("root_in");
      for (Rank h = 0; h < servers * server.hubs; ++h) {
        add(roots + h / server.hubs, hubs + h, without_latency(spec("root")));
      }
    }
    if (servers == 1) return;
    const Rank rails = server.rails;
    const Rank per_pod = t_.leaf_servers.value;
    f_.leaf_servers_ = per_pod;
    const Rank pods = (servers + per_pod - 1) / per_pod;
    const NodeId leaves = f_.network_.add_switches(pods * rails);
    const NodeId core = f_.network_.add_switches(1);
    // The card of a rail hangs on its rank, or on its PCIe switch.
    const auto behind = [&](Rank card) {
      const Rank of = card / rails;
      return server.hubs == 0 ? of * size + card % rails
                              : hubs + of * server.hubs + server.hub_of_rail(card % rails);
    };
    const auto leaf_of = [&](Rank card) {
      return leaves + card / rails / per_pod * rails + card % rails;
    };
    LinkSpec nic = spec("nic");
    nic.bandwidth_gb_per_s *= server.cards_per_rail;
    begin("nic_out");
    for (Rank c = 0; c < servers * rails; ++c) add(behind(c), leaf_of(c), nic);
    begin("nic_in");
    for (Rank c = 0; c < servers * rails; ++c) add(leaf_of(c), behind(c), without_latency(nic));
    begin("uplink");
    for (Rank l = 0; l < pods * rails; ++l) add(leaves + l, core, spec("uplink"));
    begin("downlink");
    for (Rank l = 0; l < pods * rails; ++l) add(core, leaves + l, without_latency(spec("uplink")));
  }

  /// Links between all ranks of each server.
  void build_meshes(Rank size) {
    begin("link");
    for (Rank from = 0; from < t_.ranks.value; ++from) {
      for (Rank to = from / size * size; to < from / size * size + size; ++to) {
        if (to != from) add(from, to, spec("link"));
      }
    }
  }

  void build_dragonfly() {
    const Rank routers = t_.group_size.value;
    const Rank per_router = t_.ranks_per_router.value;
    f_.group_size_ = per_router;
    const Rank ranks = t_.ranks.value;
    const Rank groups = (ranks + routers * per_router - 1) / (routers * per_router);
    const NodeId first = f_.network_.add_switches(groups * routers);
    begin("port_out");
    for (Rank r = 0; r < ranks; ++r) add(r, first + r / per_router, spec("link"));
    begin("port_in");
    for (Rank r = 0; r < ranks; ++r) {
      add(first + r / per_router, r, without_latency(spec("link")));
    }
    begin("local");
    for (Rank group = 0; group < groups; ++group) {
      const NodeId base = first + group * routers;
      for (Rank from = 0; from < routers; ++from) {
        for (Rank to = 0; to < routers; ++to) {
          if (to != from) add(base + from, base + to, spec("local"));
        }
      }
    }
    // One link between every two groups; those of a group go round its routers.
    begin("global");
    for (Rank from = 0; from < groups; ++from) {
      for (Rank to = 0; to < groups; ++to) {
        if (to == from) continue;
        const auto router = [&](Rank group, Rank other) {
          return first + group * routers + ((other + groups - group) % groups - 1) % routers;
        };
        add(router(from, to), router(to, from), spec("global"));
      }
    }
  }

  void build_graph() {
    f_.network_.add_switches(t_.switches);
    std::map<std::string, DomainId> domains;
    for (const SharingDomain& domain : t_.domains) {
      domains[domain.name] = f_.network_.add_domain(domain.bandwidth_gb_per_s.value * efficiency_);
      f_.domains_.push_back("sharing domain " + domain.name);
    }
    for (const Edge& edge : t_.edges) {
      if (f_.spans_.empty() || f_.spans_.back().link_class != edge.type) begin(edge.type);
      LinkSpec link = spec(edge.type.c_str());
      if (!edge.domain.empty()) link.domain = domains.at(edge.domain);
      if (const auto& both_ways = t_.link_type(edge.type).both_ways_gb_per_s) {
        link.domain = f_.network_.add_domain(both_ways->value * efficiency_);
        f_.domains_.push_back(fmt::format("both ways of {} {}-{}", edge.type,
                                          f_.short_name(node(edge.from)),
                                          f_.short_name(node(edge.to))));
      }
      add(node(edge.from), node(edge.to), link);
      if (edge.duplex) add(node(edge.to), node(edge.from), link);
    }
  }

  void require_faults_found() const {
    for (std::size_t i = 0; i < t_.faults.size(); ++i) {
      const LinkFault& fault = t_.faults[i];
      if (faults_.at({node(fault.from), node(fault.to)}).found) continue;
      fail("{}: key 'faults' {}: there is no link from {} to {}; from there, links lead to {}",
           t_.name, i, arlab::describe(fault.from), arlab::describe(fault.to),
           neighbours(node(fault.from)));
    }
  }

  std::string neighbours(NodeId from) const {
    constexpr std::size_t kMost = 8;
    std::vector<std::string> names;
    const auto add_end = [&](LinkId link) {
      const auto [begin, end] = f_.network_.ends(link);
      if (begin != from || names.size() > kMost) return;
      const bool is_switch = end >= t_.ranks.value;
      names.push_back(names.size() == kMost
                          ? "..."
                          : arlab::describe({is_switch, end - (is_switch ? t_.ranks.value : 0)}));
    };
    f_.network_.for_each_single_link(add_end);
    return names.empty() ? "nowhere" : fmt::format("{}", fmt::join(names, ", "));
  }

  Fabric& f_;
  const Topology& t_;
  double efficiency_;
  std::map<std::pair<NodeId, NodeId>, Fault> faults_;
};

namespace {

/// Extents of a digit of which any permutation will do, so that groups of several are shifts, too;
/// the fastest is the smallest.
std::vector<Rank> factors(Rank extent) {
  std::vector<Rank> primes;
  for (Rank p = 2; p * p <= extent; ++p) {
    for (; extent % p == 0; extent /= p) primes.insert(primes.begin(), p);
  }
  if (extent > 1 || primes.empty()) primes.insert(primes.begin(), extent);
  return primes;
}

}  // namespace

FabricShifts shifts_of(const Topology& topology) {
  if (!topology.faults.empty() || !topology.stragglers.empty() || varies(topology)) return {};
  const Rank ranks = topology.ranks.value;
  const Rank group_size = topology.group_size.value;
  switch (topology.kind) {
    case TopologyKind::full_mesh:
    case TopologyKind::switched:
      return {{ranks}, true};
    case TopologyKind::ring:
      return {{ranks}, false};
    case TopologyKind::torus:
      return {topology.shape, false};
    case TopologyKind::numa: {
      std::vector<Rank> extents = factors(ranks / group_size);
      extents.push_back(group_size);
      return {extents, false};
    }
    case TopologyKind::fat_tree: {
      const Rank servers = ranks / group_size;
      const Rank per_pod = topology.leaf_servers.value;
      const Server server = server_of(topology);
      if ((servers > per_pod && servers % per_pod != 0) || !server.is_alike()) return {};
      std::vector<Rank> extents = factors(servers > per_pod ? servers / per_pod : 1);
      if (servers <= per_pod) extents.clear();
      for (const Rank extent : factors(std::min(servers, per_pod))) extents.push_back(extent);
      if (server.hubs > 0) extents.push_back(server.hubs);
      extents.push_back(server.hubs > 0 ? group_size / server.hubs : group_size);
      return {extents, false};
    }
    case TopologyKind::dragonfly:
    case TopologyKind::graph:
      break;
  }
  return {};
}

Fabric::Fabric(const Topology& topology, double efficiency)
    : kind_(topology.kind), inside_(topology.inside), ranks_(topology.ranks.value) {
  require_valid(topology, topology.name);
  Builder(*this, topology, efficiency).build();
}

std::size_t Fabric::span_of(LinkId link) const {
  const auto after = std::upper_bound(spans_.begin(), spans_.end(), link,
                                      [](LinkId id, const Span& span) { return id < span.first; });
  // A span without links begins where the next one does; upper_bound() leaves the last one.
  return static_cast<std::size_t>(after - spans_.begin()) - 1;
}

std::string Fabric::describe_node(NodeId node) const {
  return node < ranks_ ? fmt::format("rank {}", node) : fmt::format("switch {}", node - ranks_);
}

std::string Fabric::short_name(NodeId node) const {
  return node < ranks_ ? fmt::format("{}", node) : fmt::format("switch{}", node - ranks_);
}

std::string Fabric::describe(LinkId link) const {
  const auto [from, to] = network_.ends(link);
  const std::string_view name = class_of(link);
  if (kind_ == TopologyKind::graph) {  // whatever its types are called
    return fmt::format("{} {}->{}", name, short_name(from), short_name(to));
  }
  if (name == "port_out") return fmt::format("port out of {}", from);
  if (name == "port_in") return fmt::format("port into {}", to);
  if (name == "nic_out") return fmt::format("network card out of {}", short_name(from));
  if (name == "nic_in") return fmt::format("network card into {}", short_name(to));
  // The switch of a numa group is the group.
  if (name == "bridge") return fmt::format("bridge {}->{}", from - ranks_, to - ranks_);
  return fmt::format("{} {}->{}", name, short_name(from), short_name(to));
}

Fabric::Orbit Fabric::orbit_of(LinkId link) const {
  if (!has_shifts_) throw std::logic_error("orbit_of: the fabric has no shifts");
  if (kind_ == TopologyKind::full_mesh)
    return {link, ranks_};  // those out of rank 0 are all there is
  if (kind_ == TopologyKind::ring || kind_ == TopologyKind::torus) {
    return {link % links_per_rank_, ranks_};
  }
  const std::size_t span = span_of(link);
  const LinkId first = spans_[span].first;
  if (kind_ == TopologyKind::fat_tree && spans_[span].link_class == "link") {
    return {link, ranks_};  // a mesh in a server: all links out of rank 0 differ
  }
  const LinkId end = span + 1 < spans_.size() ? spans_[span + 1].first : network_.links();
  if (spans_[span].link_class == "bridge") {
    // From group 0 they all lead to different ones.
    return {link, ranks_ / group_size_};
  }
  return {first, end - first};
}

// ---------------------------------------------------------------- routes that need no search

LinkId Fabric::first_of(std::string_view link_class) const {
  for (const Span& span : spans_) {
    if (span.link_class == link_class) return span.first;
  }
  throw std::logic_error("first_of: the fabric has no such links");
}

bool Fabric::find_route(Rank from, Rank to, std::vector<LinkId>& path) const {
  if (!is_regular_ || from == to || from >= ranks_ || to >= ranks_) return false;
  const LinkId out = from;        // in "port_out", the first class
  const LinkId in = ranks_ + to;  // in "port_in", the second
  switch (kind_) {
    case TopologyKind::full_mesh:
      path.push_back(from * (ranks_ - 1) + (to < from ? to : to - 1));
      return true;
    case TopologyKind::switched:
      path.insert(path.end(), {out, in});
      return true;
    case TopologyKind::numa: {
      const Rank groups = ranks_ / group_size_;
      const Rank there = to / group_size_;
      const Rank here = from / group_size_;
      path.push_back(out);
      if (here != there) {
        path.push_back(first_of("bridge") + here * (groups - 1) +
                       (there < here ? there : there - 1));
      }
      path.push_back(in);
      return true;
    }
    case TopologyKind::ring:
    case TopologyKind::torus:
      find_torus_route(from, to, path, true);
      return true;
    case TopologyKind::fat_tree:
      find_fat_tree_route(from, to, path);
      return true;
    case TopologyKind::dragonfly:
      if (from / group_size_ != to / group_size_) return false;
      path.insert(path.end(), {out, in});
      return true;
    case TopologyKind::graph:
      break;
  }
  return false;
}

bool Fabric::find_other_route(Rank from, Rank to, std::vector<LinkId>& path) const {
  const bool goes_round = kind_ == TopologyKind::ring || kind_ == TopologyKind::torus;
  if (!goes_round || !is_regular_ || from == to || from >= ranks_ || to >= ranks_) return false;
  bool any_tie = false;
  Rank stride = ranks_;
  for (const Rank extent : shape_) {
    stride = stride_inside(stride, extent);
    const Rank up = steps_up(digit_of(from, stride, extent), digit_of(to, stride, extent), extent);
    any_tie = any_tie || (extent > 2 && 2 * up == extent);
  }
  if (any_tie) find_torus_route(from, to, path, false);
  return any_tie;
}

std::uint64_t Fabric::hops_between(Rank from, Rank to) const {
  constexpr std::uint64_t kPorts = 2;
  const auto same_group = [&] { return from / group_size_ == to / group_size_; };
  if (!is_regular_) return 1;
  switch (kind_) {
    case TopologyKind::full_mesh:
    case TopologyKind::graph:
      return 1;
    case TopologyKind::switched:
      return kPorts;
    case TopologyKind::numa:
    case TopologyKind::dragonfly:
      return kPorts + (same_group() ? 0 : 1);
    case TopologyKind::fat_tree: {
      if (server_.hubs > 0 || inside_ != ServerInside::switched) {
        std::vector<LinkId> path;
        find_fat_tree_route(from, to, path);
        return path.size();
      }
      const Rank pod = group_size_ * std::max<Rank>(leaf_servers_, 1);
      const bool over_core = from / pod != to / pod || from % group_size_ != to % group_size_;
      return kPorts + (!same_group() && over_core ? 2 : 0);
    }
    case TopologyKind::ring:
    case TopologyKind::torus:
      break;
  }
  std::uint64_t hops = 0;
  Rank stride = ranks_;
  for (const Rank extent : shape_) {
    stride = stride_inside(stride, extent);
    const Rank up = steps_up(digit_of(from, stride, extent), digit_of(to, stride, extent), extent);
    hops += std::min(up, extent - up);
  }
  return hops;
}

/// Links of a rank are numbered dimension by dimension, upwards before downwards.
void Fabric::find_torus_route(Rank from, Rank to, std::vector<LinkId>& path,
                              bool ties_upwards) const {
  Rank stride = ranks_;
  LinkId first = 0;  // link of the dimension, among those of a rank
  for (const Rank extent : shape_) {
    stride = stride_inside(stride, extent);
    if (extent == 1) continue;
    Rank digit = digit_of(from, stride, extent);
    const Rank target = digit_of(to, stride, extent);
    const Rank up = steps_up(digit, target, extent);
    const bool upwards = up <= extent - up;
    const bool is_tie = up == extent - up;
    const bool goes_up = is_tie ? ties_upwards : upwards;
    for (Rank hops = upwards ? up : extent - up; hops > 0; --hops) {
      path.push_back(from * links_per_rank_ + first + (goes_up || extent == 2 ? 0 : 1));
      from -= digit * stride;
      digit = goes_up ? (digit + 1 == extent ? 0 : digit + 1) : (digit == 0 ? extent : digit) - 1;
      from += digit * stride;
    }
    first += extent == 2 ? 1 : 2;
  }
}

void Fabric::find_fat_tree_route(Rank from, Rank to, std::vector<LinkId>& path) const {
  const Rank size = group_size_;
  const Rank per_hub = server_.hubs == 0 ? 1 : size / server_.hubs;
  const auto hub_of = [&](Rank rank) { return rank % size / per_hub; };
  const auto over_root = [&](Rank server, Rank hub_from, Rank hub_to) {
    if (hub_from == hub_to) return;
    path.insert(path.end(), {first_of("root_out") + server * server_.hubs + hub_from,
                             first_of("root_in") + server * server_.hubs + hub_to});
  };
  if (from / size == to / size) {
    if (inside_ == ServerInside::switched) {
      path.insert(path.end(), {from, ranks_ + to});
    } else if (inside_ == ServerInside::mesh) {
      path.push_back(from * (size - 1) + to % size - (to > from ? 1 : 0));
    } else {
      path.push_back(first_of("pcie_out") + from);
      over_root(from / size, hub_of(from), hub_of(to));
      path.push_back(first_of("pcie_in") + to);
    }
    return;
  }
  const auto rail_of = [&](Rank rank) { return server_.rail_of(rank % size, size); };
  const auto card_of = [&](Rank rank) { return rank / size * server_.rails + rail_of(rank); };
  const auto leaf_of = [&](Rank rank) {
    return rank / size / leaf_servers_ * server_.rails + rail_of(rank);
  };
  if (server_.hubs > 0) {
    path.push_back(first_of("pcie_out") + from);
    over_root(from / size, hub_of(from), server_.hub_of_rail(rail_of(from)));
  }
  path.push_back(first_of("nic_out") + card_of(from));
  if (leaf_of(from) != leaf_of(to)) {
    path.insert(path.end(),
                {first_of("uplink") + leaf_of(from), first_of("downlink") + leaf_of(to)});
  }
  path.push_back(first_of("nic_in") + card_of(to));
  if (server_.hubs > 0) {
    over_root(to / size, server_.hub_of_rail(rail_of(to)), hub_of(to));
    path.push_back(first_of("pcie_in") + to);
  }
}

std::optional<Fabric::RouterPair> Fabric::routers_between(Rank from, Rank to) const {
  if (!is_regular_ || kind_ != TopologyKind::dragonfly || from >= ranks_ || to >= ranks_ ||
      from / group_size_ == to / group_size_) {
    return std::nullopt;
  }
  return RouterPair{from, ranks_ + to, ranks_ + from / group_size_, ranks_ + to / group_size_};
}

}  // namespace arlab

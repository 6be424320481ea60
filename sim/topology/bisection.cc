#include "sim/topology/bisection.h"

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

namespace arlab {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// Maximum flow by Dinic's algorithm. Every push empties an edge to exactly 0, so that rounding
/// cannot keep it from ending.
class FlowGraph {
 public:
  explicit FlowGraph(std::uint32_t nodes) : first_(nodes, kNone), level_(nodes), next_(nodes) {}

  /// Returns the edge, for used().
  std::size_t add_edge(std::uint32_t from, std::uint32_t to, double capacity) {
    edges_.push_back({to, first_[from], capacity});
    first_[from] = static_cast<std::uint32_t>(edges_.size() - 1);
    edges_.push_back({from, first_[to], 0});
    first_[to] = static_cast<std::uint32_t>(edges_.size() - 1);
    return edges_.size() - 2;
  }

  double max_flow(std::uint32_t source, std::uint32_t sink) {
    double flow = 0;
    while (find_levels(source, sink)) {
      next_ = first_;
      for (double pushed = 1; pushed != 0; flow += pushed) pushed = push_path(source, sink);
    }
    return flow;
  }

  double used(std::size_t edge) const { return edges_[edge ^ 1].room; }
  /// After max_flow(): on the source's side of a least cut.
  bool reached(std::uint32_t node) const { return level_[node] != kNone; }

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  struct Edge {
    std::uint32_t to;
    std::uint32_t next;  ///< edge of the same node
    double room;
  };

  bool find_levels(std::uint32_t source, std::uint32_t sink) {
    std::fill(level_.begin(), level_.end(), kNone);
    level_[source] = 0;
    std::vector<std::uint32_t> reached = {source};
    for (std::size_t i = 0; i < reached.size(); ++i) {
      for (std::uint32_t e = first_[reached[i]]; e != kNone; e = edges_[e].next) {
        if (edges_[e].room <= 0 || level_[edges_[e].to] != kNone) continue;
        level_[edges_[e].to] = level_[reached[i]] + 1;
        reached.push_back(edges_[e].to);
      }
    }
    return level_[sink] != kNone;
  }

  /// Along edges that lead a level up; 0 when there is no such path any more.
  double push_path(std::uint32_t source, std::uint32_t sink) {
    path_.clear();
    std::uint32_t node = source;
    while (node != sink) {
      std::uint32_t& e = next_[node];
      while (e != kNone && (edges_[e].room <= 0 || level_[edges_[e].to] != level_[node] + 1)) {
        e = edges_[e].next;
      }
      if (e != kNone) {
        path_.push_back(e);
        node = edges_[e].to;
        continue;
      }
      if (path_.empty()) return 0;
      node = edges_[path_.back() ^ 1].to;  // a dead end: not this way again
      next_[node] = edges_[path_.back()].next;
      path_.pop_back();
    }
    double room = kUnlimited;
    for (const std::uint32_t e : path_) room = std::min(room, edges_[e].room);
    for (const std::uint32_t e : path_) {
      edges_[e].room -= room;
      edges_[e ^ 1].room += room;
    }
    return room;
  }

  std::vector<Edge> edges_;  ///< each followed by the one back
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> level_;
  std::vector<std::uint32_t> next_;  ///< by node: the edge to try next
  std::vector<std::uint32_t> path_;
};

class Halves {
 public:
  Halves(const Network& network, Rank ranks) : network_(network), ranks_(ranks) {}

  double crossing_links(bool upwards) const {
    double sum = 0;
    network_.for_each_single_link([&](LinkId link) {
      const LinkEnds ends = network_.ends(link);
      if (in_source(ends.from, upwards) && !in_source(ends.to, upwards)) {
        sum += network_.properties(link).bandwidth_gb_per_s;
      }
    });
    for (const Network::FullMesh& mesh : network_.full_meshes()) {
      const std::uint64_t end = mesh.first_node + mesh.count;
      const std::uint64_t below =
          std::clamp<std::uint64_t>(half(), mesh.first_node, end) - mesh.first_node;
      sum += static_cast<double>(below * (mesh.count - below)) *
             network_.properties(mesh.first_link).bandwidth_gb_per_s;
    }
    return sum;
  }

  double max_flow(bool upwards, bool& exact) const {
    const std::uint32_t source = network_.nodes();
    const std::uint32_t sink = source + 1;
    FlowGraph graph(sink + 1);
    for (Rank rank = 0; rank < ranks_; ++rank) {
      if (in_source(rank, upwards)) {
        graph.add_edge(source, rank, kUnlimited);
      } else {
        graph.add_edge(rank, sink, kUnlimited);
      }
    }
    std::vector<std::pair<LinkId, std::size_t>> edges;
    const auto add = [&](LinkId link) {
      const LinkEnds ends = network_.ends(link);
      edges.emplace_back(
          link, graph.add_edge(ends.from, ends.to, network_.properties(link).bandwidth_gb_per_s));
    };
    network_.for_each_single_link(add);
    for (const Network::FullMesh& mesh : network_.full_meshes()) {
      for (LinkId i = 0; i < mesh.count * (mesh.count - 1); ++i) add(mesh.first_link + i);
    }
    const double flow = graph.max_flow(source, sink);
    if (network_.domains() == 0) return flow;
    return std::min(flow, within_domains(graph, edges, exact));
  }

 private:
  Rank half() const { return ranks_ / 2; }
  /// Whether a device is in the half from which the flow comes.
  bool in_source(NodeId node, bool upwards) const { return (node < half()) == upwards; }

  /// A flow that no domain forbids is possible as it is. Otherwise no more passes than the links of
  /// the least cut let through, those of a domain together no more than it.
  double within_domains(const FlowGraph& graph,
                        const std::vector<std::pair<LinkId, std::size_t>>& edges,
                        bool& exact) const {
    std::vector<double> used(network_.domains(), 0);
    std::vector<double> cut(network_.domains(), 0);
    double bound = 0;
    for (const auto& [link, edge] : edges) {
      const LinkProperties& properties = network_.properties(link);
      const LinkEnds ends = network_.ends(link);
      const bool crosses = graph.reached(ends.from) && !graph.reached(ends.to);
      if (properties.domain == kNoDomain) {
        bound += crosses ? properties.bandwidth_gb_per_s : 0;
        continue;
      }
      used[properties.domain] += graph.used(edge);
      cut[properties.domain] += crosses ? properties.bandwidth_gb_per_s : 0;
    }
    constexpr double kRounding = 1 + 1e-9;
    for (DomainId domain = 0; domain < network_.domains(); ++domain) {
      const double capacity = network_.capacity_gb_per_s(network_.resource_of(domain));
      if (used[domain] > capacity * kRounding) exact = false;
      bound += std::min(cut[domain], capacity);
    }
    return exact ? kUnlimited : bound;
  }

  const Network& network_;
  Rank ranks_;
};

}  // namespace

std::string_view words_for(Bisection::Method method) {
  return method == Bisection::Method::crossing_links
             ? "the links between the halves: there are no switches"
             : "least cut, by maximum flow: switches belong to no half";
}

Bisection bisection_of(const Fabric& fabric, Rank ranks) {
  const Network& network = fabric.network();
  Bisection bisection{.first_half = ranks / 2};
  if (ranks < 2) return bisection;
  const Halves halves(network, ranks);
  if (network.nodes() == ranks && network.domains() == 0) {
    bisection.upwards_gb_per_s = halves.crossing_links(true);
    bisection.downwards_gb_per_s = halves.crossing_links(false);
    return bisection;
  }
  bisection.method = Bisection::Method::max_flow;
  bisection.upwards_gb_per_s = halves.max_flow(true, bisection.exact);
  bisection.downwards_gb_per_s = halves.max_flow(false, bisection.exact);
  return bisection;
}

std::vector<std::string> oversubscribed_leaves(const Topology& topology, const Fabric& fabric) {
  if (topology.kind != TopologyKind::fat_tree) return {};
  struct Leaf {
    Rank cards = 0;
    double cards_gb_per_s = 0;
    double uplink_gb_per_s = 0;
    bool operator==(const Leaf&) const = default;
  };
  const Network& network = fabric.network();
  const Server server = server_of(topology);
  std::map<NodeId, Leaf> leaves;  // in the order of their numbers
  network.for_each_single_link([&](LinkId link) {
    const double gb_per_s = network.properties(link).bandwidth_gb_per_s;
    if (fabric.class_of(link) == "nic_out") {
      Leaf& leaf = leaves[network.ends(link).to];
      leaf.cards += server.cards_per_rail;
      leaf.cards_gb_per_s += gb_per_s;
    } else if (fabric.class_of(link) == "uplink") {
      leaves[network.ends(link).from].uplink_gb_per_s = gb_per_s;
    }
  });
  std::vector<std::string> words;
  if (leaves.size() < 2) return words;
  std::size_t number = 0;
  std::size_t alike = 0;
  const auto finish = [&] {
    if (alike > 0) {
      words.back() += fmt::format("; {} more after it are alike", alike);
    }
    alike = 0;
  };
  const Leaf* last = nullptr;
  for (const auto& [node, leaf] : leaves) {
    // Sums of rates that are no binary fractions are a little off.
    if (leaf.cards_gb_per_s <= leaf.uplink_gb_per_s * (1 + 1e-9)) {
      finish();
      last = nullptr;
    } else if (last != nullptr && leaf == *last) {
      ++alike;
    } else {
      finish();
      words.push_back(fmt::format("leaf {}: {} cards of {:.4g} GB/s on an uplink of {:.4g} GB/s",
                                  number, leaf.cards, leaf.cards_gb_per_s / leaf.cards,
                                  leaf.uplink_gb_per_s));
      last = &leaf;
    }
    ++number;
  }
  finish();
  return words;
}

}  // namespace arlab

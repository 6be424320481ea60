// Shortest routes through a network.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "sim/network/network.h"

namespace arlab {

/// Finds shortest paths when they are first asked for, and remembers them. A search starts at both
/// ends and stops where they meet, so that near nodes of a huge fabric stay cheap. For one thread.
class Router {
 public:
  /// The network must outlive the router and keep its shape.
  explicit Router(const Network& network);

  /// The links from one node to another. Among all paths through forwarding nodes: fewest hops, then least latency, then, link
  /// by link from the start, the lowest numbers. Throws InvalidInput that names the pair when there is none. The span is valid
  /// until the next call of a member.
  std::span<const LinkId> route(NodeId from, NodeId to);

 private:
  struct Edge {
    LinkId link;
    NodeId end;  ///< the other one
  };
  struct Stored {
    std::uint32_t first;  ///< index into stored_links_
    std::uint32_t hops;
  };
  /// One of the two searches that meet.
  struct Search {
    std::vector<std::uint32_t> level;  ///< by node: hops from where the search began
    std::vector<NodeId> reached;       ///< in the order of levels
    std::size_t frontier = 0;          ///< reached[frontier..] are those of the last level
    std::uint32_t last_level = 0;
  };
  static constexpr std::uint32_t kUnreached = 0xFFFFFFFF;

  void require_node(NodeId node) const;
  void store(NodeId from, NodeId to, std::span<const LinkId> links);
  /// Lowest latency, then lowest number; nothing when the nodes are not neighbours.
  const LinkId* direct_link(NodeId from, NodeId to);
  std::vector<LinkId> shortest_path(NodeId from, NodeId to);
  /// Calls visit(link, node) for every link out of a node, or into it, and its other end.
  template <class Visit>
  void for_each_out(NodeId node, Visit visit) const;
  template <class Visit>
  void for_each_in(NodeId node, Visit visit) const;
  bool expand_forwards();
  bool expand_backwards(NodeId from);

  const Network& network_;
  // Single links by the node that they leave or enter; a node's are at [first[n], first[n + 1]).
  std::vector<std::uint32_t> first_out_;
  std::vector<std::uint32_t> first_in_;
  std::vector<Edge> out_;  ///< out of each node, in the order of targets, then of link numbers
  std::vector<Edge> in_;
  // Full meshes by node.
  std::vector<std::uint32_t> first_mesh_;
  std::vector<std::uint32_t> meshes_;

  std::unordered_map<std::uint64_t, Stored> routes_;  ///< only looked up, never walked
  std::vector<LinkId> stored_links_;
  LinkId direct_ = 0;

  Search forwards_;  ///< kept for the next way from the same node
  Search backwards_;
  std::vector<NodeId> on_way_;      ///< scratch
  std::vector<Picoseconds> to_go_;  ///< by node: least latency to the target on a shortest path
};

}  // namespace arlab

#include "sim/network/router.h"

#include <algorithm>

#include "reference/error.h"

namespace arlab {
namespace {

std::uint64_t pair_key(NodeId from, NodeId to) { return std::uint64_t{from} << 32 | to; }

/// Turns counts per node, at [n + 1], into first indices per node.
void accumulate(std::vector<std::uint32_t>& first) {
  for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
}

}  // namespace

Router::Router(const Network& network) : network_(network) {
  const std::size_t nodes = network.nodes();
  first_out_.assign(nodes + 1, 0);
  first_in_.assign(nodes + 1, 0);
  first_mesh_.assign(nodes + 1, 0);
  network.for_each_single_link([&](LinkId id) {
    const LinkEnds link = network.ends(id);
    ++first_out_[link.from + 1];
    ++first_in_[link.to + 1];
  });
  accumulate(first_out_);
  accumulate(first_in_);
  out_.resize(first_out_.back());
  in_.resize(first_in_.back());
  std::vector<std::uint32_t> next_out = first_out_;
  std::vector<std::uint32_t> next_in = first_in_;
  network.for_each_single_link([&](LinkId id) {
    const LinkEnds link = network.ends(id);
    out_[next_out[link.from]++] = {id, link.to};
    in_[next_in[link.to]++] = {id, link.from};
  });
  for (std::size_t node = 0; node < nodes; ++node) {
    // Links of a node are in the order of their numbers so far, and stay so towards each target.
    std::stable_sort(out_.begin() + first_out_[node], out_.begin() + first_out_[node + 1],
                     [](const Edge& a, const Edge& b) { return a.end < b.end; });
  }

  const auto& meshes = network.full_meshes();
  for (const Network::FullMesh& mesh : meshes) {
    for (std::uint32_t i = 0; i < mesh.count; ++i) ++first_mesh_[mesh.first_node + i + 1];
  }
  accumulate(first_mesh_);
  meshes_.resize(first_mesh_.back());
  std::vector<std::uint32_t> next_mesh = first_mesh_;
  for (std::uint32_t m = 0; m < meshes.size(); ++m) {
    for (std::uint32_t i = 0; i < meshes[m].count; ++i) {
      meshes_[next_mesh[meshes[m].first_node + i]++] = m;
    }
  }
}

void Router::require_node(NodeId node) const {
  if (node >= network_.nodes()) {
    fail("route: there is no node {}; the network has {} nodes", node, network_.nodes());
  }
}

std::span<const LinkId> Router::route(NodeId from, NodeId to) {
  require_node(from);
  require_node(to);
  if (from == to) fail("route: {} needs no route to itself", network_.describe_node(from));
  // Neighbours are looked up, not stored: there may be a million pairs of them in a mesh.
  if (const LinkId* link = direct_link(from, to)) return {link, 1};
  auto found = routes_.find(pair_key(from, to));
  if (found == routes_.end()) {
    store(from, to, shortest_path(from, to));
    found = routes_.find(pair_key(from, to));
  }
  return {stored_links_.data() + found->second.first, found->second.hops};
}

void Router::store(NodeId from, NodeId to, std::span<const LinkId> links) {
  routes_[pair_key(from, to)] = {static_cast<std::uint32_t>(stored_links_.size()),
                                 static_cast<std::uint32_t>(links.size())};
  stored_links_.insert(stored_links_.end(), links.begin(), links.end());
}

const LinkId* Router::direct_link(NodeId from, NodeId to) {
  Picoseconds least = kNever;
  const auto offer = [&](LinkId link) {
    const Picoseconds latency = network_.properties(link).latency;
    if (latency < least || (latency == least && link < direct_)) {
      least = latency;
      direct_ = link;
    }
  };
  const auto end = out_.begin() + first_out_[from + 1];
  auto edge = std::lower_bound(out_.begin() + first_out_[from], end, to,
                               [](const Edge& e, NodeId node) { return e.end < node; });
  for (; edge != end && edge->end == to; ++edge) offer(edge->link);
  for (std::uint32_t i = first_mesh_[from]; i < first_mesh_[from + 1]; ++i) {
    const Network::FullMesh& mesh = network_.full_meshes()[meshes_[i]];
    if (mesh.contains(to)) offer(mesh.link(from, to));
  }
  return least == kNever ? nullptr : &direct_;
}

// ---------------------------------------------------------------- search from both ends

template <class Visit>
void Router::for_each_out(NodeId node, Visit visit) const {
  for (std::uint32_t i = first_out_[node]; i < first_out_[node + 1]; ++i) {
    visit(out_[i].link, out_[i].end);
  }
  for (std::uint32_t i = first_mesh_[node]; i < first_mesh_[node + 1]; ++i) {
    const Network::FullMesh& mesh = network_.full_meshes()[meshes_[i]];
    for (NodeId other = mesh.first_node; mesh.contains(other); ++other) {
      if (other != node) visit(mesh.link(node, other), other);
    }
  }
}

template <class Visit>
void Router::for_each_in(NodeId node, Visit visit) const {
  for (std::uint32_t i = first_in_[node]; i < first_in_[node + 1]; ++i) {
    visit(in_[i].link, in_[i].end);
  }
  for (std::uint32_t i = first_mesh_[node]; i < first_mesh_[node + 1]; ++i) {
    const Network::FullMesh& mesh = network_.full_meshes()[meshes_[i]];
    for (NodeId other = mesh.first_node; mesh.contains(other); ++other) {
      if (other != node) visit(mesh.link(other, node), other);
    }
  }
}

/// One level more. Says whether the searches have met.
bool Router::expand_forwards() {
  bool met = false;
  const std::size_t end = forwards_.reached.size();
  const std::uint32_t level = ++forwards_.last_level;
  for (std::size_t i = forwards_.frontier; i < end; ++i) {
    // Any node may be an end of a way, those between must forward; the first is where it begins.
    if (i > 0 && !network_.forwards(forwards_.reached[i])) continue;
    for_each_out(forwards_.reached[i], [&](LinkId, NodeId node) {
      if (forwards_.level[node] != kUnreached) return;
      forwards_.level[node] = level;
      forwards_.reached.push_back(node);
      met = met || backwards_.level[node] != kUnreached;
    });
  }
  forwards_.frontier = end;
  return met;
}

/// The same from the target, against the links. When a level is complete, to_go_ of its nodes is.
bool Router::expand_backwards(NodeId from) {
  bool met = false;
  const std::size_t end = backwards_.reached.size();
  const std::uint32_t level = ++backwards_.last_level;
  for (std::size_t i = backwards_.frontier; i < end; ++i) {
    const Picoseconds onwards = to_go_[backwards_.reached[i]];
    for_each_in(backwards_.reached[i], [&](LinkId link, NodeId node) {
      if (node != from && !network_.forwards(node)) return;
      if (backwards_.level[node] == kUnreached) {
        backwards_.level[node] = level;
        backwards_.reached.push_back(node);
        met = met || forwards_.level[node] != kUnreached;
      }
      if (backwards_.level[node] == level) {
        to_go_[node] = std::min(to_go_[node], network_.properties(link).latency + onwards);
      }
    });
  }
  backwards_.frontier = end;
  return met;
}

std::vector<LinkId> Router::shortest_path(NodeId from, NodeId to) {
  if (to_go_.empty()) {
    forwards_.level.assign(network_.nodes(), kUnreached);
    backwards_.level.assign(network_.nodes(), kUnreached);
    to_go_.assign(network_.nodes(), kNever);
  }
  const auto begin = [](Search& search, NodeId node) {
    for (const NodeId before : search.reached) search.level[before] = kUnreached;
    search.level[node] = 0;
    search.reached.assign(1, node);
    search.frontier = 0;
    search.last_level = 0;
  };
  // A sender asks for the ways to all of its receivers, one after the other.
  if (forwards_.reached.empty() || forwards_.reached[0] != from) begin(forwards_, from);
  begin(backwards_, to);
  to_go_[to] = 0;

  const auto front = [](const Search& search) { return search.reached.size() - search.frontier; };
  bool met = forwards_.level[to] != kUnreached;
  while (!met && front(forwards_) > 0 && front(backwards_) > 0) {
    // Searching forwards is favoured: its results are used again.
    constexpr std::size_t kFavoured = 4;
    const bool is_forwards = front(forwards_) <= kFavoured * front(backwards_);
    met = is_forwards ? expand_forwards() : expand_backwards(from);
  }

  std::vector<LinkId> path;
  if (met) {
    // Where they met, to_go_ is known; carry it back to the start along the levels.
    for (const NodeId node : backwards_.reached) {
      if (forwards_.level[node] != kUnreached) on_way_.push_back(node);
    }
    const std::uint32_t meeting = forwards_.level[on_way_[0]];
    for (std::size_t i = 0; i < on_way_.size(); ++i) {
      const NodeId node = on_way_[i];
      for_each_in(node, [&](LinkId link, NodeId before) {
        if (forwards_.level[before] >= forwards_.level[node]) return;
        if (before != from && !network_.forwards(before)) return;
        if (to_go_[before] == kNever) on_way_.push_back(before);
        to_go_[before] = std::min(to_go_[before], network_.properties(link).latency + to_go_[node]);
      });
    }
    // Then walk: of the links that keep to the least latency the one with the lowest number.
    for (NodeId node = from; node != to;) {
      const bool before_meeting = forwards_.level[node] < meeting;
      LinkId best = 0xFFFFFFFF;
      NodeId best_end = to;
      for_each_out(node, [&](LinkId link, NodeId next) {
        const bool onwards = before_meeting ? forwards_.level[next] == forwards_.level[node] + 1
                                            : backwards_.level[next] == backwards_.level[node] - 1;
        if (!onwards || network_.properties(link).latency + to_go_[next] != to_go_[node]) return;
        if (link < best) {
          best = link;
          best_end = next;
        }
      });
      path.push_back(best);
      node = best_end;
    }
  }

  for (std::vector<NodeId>* nodes : {&backwards_.reached, &on_way_}) {
    for (const NodeId node : *nodes) to_go_[node] = kNever;
  }
  on_way_.clear();
  if (!met) {
    fail("route: there is no way from {} to {}", network_.describe_node(from),
         network_.describe_node(to));
  }
  return path;
}

}  // namespace arlab

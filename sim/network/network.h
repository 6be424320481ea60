// A network: devices and switches, directed links between them, and capacities that links share.
//
// It knows nothing of what is sent. A driver builds it once; a Router finds routes through it, an
// engine (flow_engine.h) says how long messages take on them. It must not change while one of these
// uses it; any number of them, in any threads, may use the same one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/network/time.h"

namespace arlab {

using NodeId = std::uint32_t;
using LinkId = std::uint32_t;
using DomainId = std::uint32_t;

/// Anything with a capacity that messages share: links by their number, then sharing domains.
using ResourceId = std::uint32_t;

inline constexpr DomainId kNoDomain = 0xFFFFFFFF;

/// Whether messages may pass through a node on their way to another. Switches forward, devices of
/// a ring or torus do; a GPU between a PCIe switch and a peer link does not.
enum class Forwarding : std::uint8_t { no, yes };

struct LinkSpec {
  double bandwidth_gb_per_s = 0;  ///< 10^9 bytes/s, one direction; kMinBandwidth to kMaxBandwidth
  double latency_us = 0;          ///< 0 to kMaxLatency; kept to the picosecond
  DomainId domain = kNoDomain;    ///< shares this domain's capacity with its other links
};

struct LinkProperties {
  double bandwidth_gb_per_s = 0;
  Picoseconds latency = 0;
  DomainId domain = kNoDomain;
};

struct LinkEnds {
  NodeId from = 0;
  NodeId to = 0;
};

class Network {
 public:
  static constexpr double kMinBandwidth = 1e-6;  ///< GB/s
  static constexpr double kMaxBandwidth = 1e9;   ///< GB/s
  static constexpr double kMaxLatency = 1e9;     ///< us
  /// Most nodes, most links and most domains.
  static constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 30;

  /// Nodes are numbered in the order in which they are added. Returns the first of `count`.
  NodeId add_devices(std::uint32_t count, Forwarding forwarding = Forwarding::no);
  NodeId add_switches(std::uint32_t count, Forwarding forwarding = Forwarding::yes);

  /// Links that name the domain share this capacity beside their own: ports of a PCIe switch with
  /// one upstream, say. A message that crosses two links of a domain uses its capacity twice.
  DomainId add_domain(double bandwidth_gb_per_s);

  /// Several links from one node to the same other one are allowed.
  LinkId add_link(NodeId from, NodeId to, const LinkSpec& spec);
  /// A link from a node back to itself: in a folded network one node stands for many.
  LinkId add_loop(NodeId node, const LinkSpec& spec);
  /// A link in each direction; returns the one from a to b, the other has the next number.
  LinkId add_duplex(NodeId a, NodeId b, const LinkSpec& spec);
  /// A link from every one of `count` consecutive nodes to every other: all links out of node
  /// `first` in the order of their targets, then all out of the next node. Returns the first link.
  /// The links of a large mesh are not stored: they take a few bytes together.
  LinkId add_full_mesh(NodeId first, std::uint32_t count, const LinkSpec& spec);

  /// Changes a link that is stored by itself, not one of a large mesh. An engine that is at work on
  /// the network must know before (FlowEngine::before_change()).
  void set_bandwidth(LinkId link, double gb_per_s);

  std::uint32_t nodes() const { return static_cast<std::uint32_t>(nodes_.size()); }
  std::uint32_t links() const { return links_; }
  std::uint32_t domains() const { return static_cast<std::uint32_t>(domains_.size()); }
  std::uint32_t resources() const { return links_ + domains(); }

  bool forwards(NodeId node) const { return nodes_[node].forwards; }
  LinkEnds ends(LinkId link) const;
  const LinkProperties& properties(LinkId link) const {
    const Segment& segment = segment_of(link);
    if (segment.mesh != kSingleLinks) return segment.properties;
    return single_links_[segment.first_single + (link - segment.first_link)].properties;
  }
  ResourceId resource_of(DomainId domain) const { return links_ + domain; }
  double capacity_gb_per_s(ResourceId resource) const {
    return resource < links_ ? properties(resource).bandwidth_gb_per_s
                             : domains_[resource - links_];
  }

  /// Throws InvalidInput unless all links exist and each begins where the one before it ends.
  void require_path(std::span<const LinkId> links) const;

  /// A node in words: "device 3", "switch 9".
  std::string describe_node(NodeId node) const;
  /// A resource in words: "link 0->1", "domain 2".
  std::string describe_resource(ResourceId resource) const;

  /// A mesh whose links are not stored but follow from the numbers of their nodes.
  struct FullMesh {
    NodeId first_node = 0;
    std::uint32_t count = 0;
    LinkId first_link = 0;

    bool contains(NodeId node) const { return node - first_node < count; }
    LinkId link(NodeId from, NodeId to) const {
      const std::uint32_t row = from - first_node;
      const std::uint32_t column = to - first_node;
      return first_link + row * (count - 1) + (column < row ? column : column - 1);
    }
  };
  const std::vector<FullMesh>& full_meshes() const { return meshes_; }
  /// Calls visit(id) for every link that is not in full_meshes().
  template <class Visit>
  void for_each_single_link(Visit visit) const {
    for (const Segment& segment : segments_) {
      if (segment.mesh != kSingleLinks) continue;
      for (std::uint32_t i = 0; i < segment.count; ++i) visit(segment.first_link + i);
    }
  }

 private:
  struct Node {
    bool is_device = false;
    bool forwards = false;
  };
  struct SingleLink {
    LinkProperties properties;
    LinkEnds ends;
  };
  /// Consecutive links of one kind: single ones, or those of one mesh.
  struct Segment {
    LinkId first_link = 0;
    std::uint32_t count = 0;
    std::uint32_t mesh = 0;          ///< index into meshes_, or kSingleLinks
    std::uint32_t first_single = 0;  ///< index into single_links_
    LinkProperties properties;       ///< the same for every link of the mesh
  };
  static constexpr std::uint32_t kSingleLinks = 0xFFFFFFFF;
  /// Smaller meshes are stored link by link. Thousands of servers with a mesh of 8 each would
  /// otherwise make thousands of segments, and every look-up of a link a search.
  static constexpr std::uint32_t kSmallestFullMesh = 64;

  NodeId add_nodes(std::uint32_t count, bool are_devices, Forwarding forwarding);
  LinkProperties checked(const LinkSpec& spec, NodeId from, NodeId to) const;
  LinkId append_single(NodeId from, NodeId to, const LinkProperties& properties);
  void require_room(std::uint64_t more, std::uint64_t have, const char* what) const;

  const Segment& segment_of(LinkId link) const {
    std::size_t low = 0;
    if (segments_.size() == 1) return segments_[0];  // most networks
    for (std::size_t high = segments_.size(); high - low > 1;) {
      const std::size_t middle = (low + high) / 2;
      (segments_[middle].first_link <= link ? low : high) = middle;
    }
    return segments_[low];
  }

  std::vector<Node> nodes_;
  std::vector<double> domains_;  ///< capacities, GB/s
  std::vector<SingleLink> single_links_;
  std::vector<FullMesh> meshes_;
  std::vector<Segment> segments_;
  std::uint32_t links_ = 0;
};

}  // namespace arlab

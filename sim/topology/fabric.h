// The graph of a topology: its nodes, its links, and the shifts of ranks under which it looks the same.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/network/network.h"
#include "sim/topology/topology.h"

namespace arlab {

/// Shifts of the ranks that change neither the fabric nor a route.
struct FabricShifts {
  /// Mixed-radix extents of the ranks, slowest first; each digit may be shifted modulo its extent:
  /// {ranks} of a ring, {groups, group size} of numa. Empty when no such shifts are known: with
  /// faults or stragglers, graphs, dragonflies.
  std::vector<Rank> extents;
  /// Any extents whose product is the number of ranks will do: meshes and switches.
  bool any = false;
};
FabricShifts shifts_of(const Topology& topology);

/// Devices are nodes 0 to ranks - 1, switches follow.
class Fabric {
 public:
  /// Links get this share of their bandwidth. Throws InvalidInput when the topology is not valid,
  /// or a fault names a link that is not there.
  explicit Fabric(const Topology& topology, double efficiency = 1);

  const Network& network() const { return network_; }

  /// Returns the class of a link: link, port_out, port_in, bridge, nic_out, ..., or its type in a graph.
  std::string_view class_of(LinkId link) const { return spans_[span_of(link)].link_class; }
  /// The same, by number: 0 to classes().size() - 1.
  std::size_t class_index(LinkId link) const { return spans_[span_of(link)].class_index; }
  const std::vector<std::string>& classes() const { return classes_; }

  /// A link in words: "link 0->1", "port out of 3", "uplink switch4->switch9".
  std::string describe(LinkId link) const;
  /// "sharing domain root", "both ways of uplink switch0-switch2".
  const std::string& describe_domain(DomainId domain) const { return domains_[domain]; }
  /// A node in words: "rank 3", "switch 0".
  std::string describe_node(NodeId node) const;

  /// The link that stands for all that a shift makes of this one, when it lies on a route from rank
  /// 0, and how many links those are. Only when the topology has shifts.
  struct Orbit {
    LinkId representative = 0;
    std::uint64_t size = 0;
  };
  Orbit orbit_of(LinkId link) const;

  /// Appends the links from one rank to another, different one; says whether it could without a
  /// search (routes.h).
  bool is_whole_mesh() const { return is_regular_ && kind_ == TopologyKind::full_mesh; }
  bool find_route(Rank from, Rank to, std::vector<LinkId>& path) const;
  /// The same where another route is as good: on even rings and tori, once round the other way in
  /// every dimension in which both ways are as long.
  bool find_other_route(Rank from, Rank to, std::vector<LinkId>& path) const;
  /// How many links those are, in no time; no more than that where it takes a search.
  std::uint64_t hops_between(Rank from, Rank to) const;
  /// Two routers of a dragonfly on which ranks hang, and the only links from and to them.
  struct RouterPair {
    LinkId port_out = 0;
    LinkId port_in = 0;
    NodeId from = 0;
    NodeId to = 0;
  };
  std::optional<RouterPair> routers_between(Rank from, Rank to) const;

 private:
  struct Span {
    LinkId first = 0;
    std::size_t class_index = 0;
    std::string link_class;
  };
  class Builder;

  std::size_t span_of(LinkId link) const;
  std::string short_name(NodeId node) const;
  /// The first link of a class.
  LinkId first_of(std::string_view link_class) const;
  void find_torus_route(Rank from, Rank to, std::vector<LinkId>& path, bool ties_upwards) const;
  void find_fat_tree_route(Rank from, Rank to, std::vector<LinkId>& path) const;

  TopologyKind kind_;
  ServerInside inside_;  ///< fat tree
  Server server_;        ///< fat tree
  Rank ranks_ = 0;
  Rank group_size_ = 0;        ///< ranks with one switch: numa, fat tree, dragonfly
  Rank leaf_servers_ = 0;      ///< fat tree
  std::vector<Rank> shape_;    ///< ring, torus
  LinkId links_per_rank_ = 0;  ///< ring, torus
  bool is_regular_ = false;    ///< all links are there, and devices forward as their kind wants it
  Network network_;
  std::vector<Span> spans_;
  std::vector<std::string> classes_;
  std::vector<std::string> domains_;
  bool has_shifts_ = false;
};

}  // namespace arlab

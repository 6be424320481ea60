// The routes of a run's messages through the fabric, and the network that they share.
//
// Knows topology, fabric and routes; nothing of stages and times. Owns the network where that is not
// the fabric's own:
//
//   folded    one device, and a link back to it for every orbit of links, with the share of the
//             orbit's capacity that belongs to one rank. A message of rank 0 then gets in the folded
//             network the rate that it gets among all its like in the whole one.
//   a part    all nodes of the fabric but only the links in use: of a mesh of 32,768 ranks, a tree
//             uses one link in thousands. The order of links stays, and with it that of all that
//             happens at the same instant.
//   fans      a link for each rank of a mesh, in place of those to all others, where every stage sends
//             alike to all of these: what happens on one of them happens on all
//   changing  a copy, whose bandwidths may change and whose links may fail
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "sim/network/engine.h"
#include "sim/run/copies.h"
#include "sim/topology/fabric.h"
#include "sim/topology/routes.h"
#include "sim/topology/topology.h"

namespace arlab {

/// For one run. Spans that it returns are valid until the next call that returns one of that kind.
class MessageRoutes {
 public:
  /// For the messages of `copies`, which cross so many links. `changes`: links will change; `traced`:
  /// each message is to be seen by itself.
  MessageRoutes(const Fabric& fabric, const Topology& topology, const Copies& copies,
                std::uint64_t crossings, bool changes, bool traced);

  const Network& network() const { return kind_ == Kind::whole ? fabric_.network() : network_; }
  /// Whether the first message of a stage stands for all of them in network().
  bool in_fans() const { return kind_ == Kind::fans; }
  /// The resource that describe() is to name where this one of network() limits the message.
  ResourceId named_limit(const PlannedMessage& message, ResourceId limit) {
    return in_fans() && limit != kNoLimit ? real_route(message).front() : limit;
  }
  /// A link of the whole fabric that this one is, or stands for.
  LinkId real_link(LinkId link) const;
  /// A link or sharing domain of network(), or what named_limit() returns, in words.
  std::string describe(ResourceId resource) const;

  // In the whole fabric. Throw InvalidInput when there is no way, the first naming the ranks. A
  // message to or from all ranks takes no path but the ports of all that take part, on a switch:
  // first that by which it leaves or, added up, arrives.

  std::span<const LinkId> real_route(const PlannedMessage& message);
  std::span<const LinkId> real_other_route(const PlannedMessage& message);
  std::span<const LinkId> real_route_of_nodes(NodeId from, NodeId to);
  /// The bandwidth of the first link, as the fabric has it.
  double first_link_gb_per_s(const PlannedMessage& message);

  /// The links of network() over which the message goes.
  std::span<const LinkId> route(const PlannedMessage& message) {
    return ours(real_route(message), path_);
  }
  /// The same for the other half of the message; empty where all of it goes one way.
  std::span<const LinkId> other_route(const PlannedMessage& message) {
    return ours(real_other_route(message), other_path_);
  }
  /// The time from when a message's last byte leaves until that arrives; with a tree, as on the way
  /// to any.
  Picoseconds latency_of(const PlannedMessage& message, std::span<const LinkId> route);
  Picoseconds latency_of_tree(const PlannedMessage& message);

  // With links that change:
  void set_bandwidth(LinkId link, double gb_per_s) { network_.set_bandwidth(link, gb_per_s); }
  /// Makes routes avoid `dead` links, which are those of `faults`.
  void avoid(const std::set<LinkId>& dead, const std::vector<LinkFault>& faults);

  /// Calls visit(real link, how many links are like it, wire bytes on one of them, what they took
  /// there) for links in use. `more`: what they took beyond their number, by link.
  template <class Visit>
  void for_each_used(const NetworkEngine& engine, const std::map<LinkId, std::uint64_t>& more,
                     Visit visit) const {
    for (LinkId link = 0; link < network().links(); ++link) {
      const std::uint64_t taken = engine.bytes_on(link);
      if (taken == 0) continue;
      const auto beyond = more.find(link);
      const WideCount bytes = beyond == more.end() ? taken : taken - beyond->second;
      if (kind_ != Kind::folded) {
        const std::uint64_t alike = in_fans() ? world_size_ - 1 : 1;
        visit(real_link(link), alike, bytes, WideCount{taken});
        continue;
      }
      const Fabric::Orbit& orbit = orbits_[link];
      visit(orbit.representative, orbit.size, bytes * ranks_ / orbit.size,
            WideCount{taken} * ranks_ / orbit.size);
    }
  }

 private:
  enum class Kind : std::uint8_t { whole, folded, part, fans, changing };

  static Kind kind_of(const Plan& plan, const Fabric& fabric, std::uint64_t crossings, bool changes,
                      bool traced);
  void fold(const Plan& plan);
  void bind_fans();
  void keep_links_of(const Copies& copies);
  void announce(std::span<const LinkId> route);
  std::span<const LinkId> real_route(Rank from, Rank to);
  std::span<const LinkId> ports_of_all(const PlannedMessage& message);
  /// The links of this network that stand for those of the fabric; put into `path` if they differ.
  std::span<const LinkId> ours(std::span<const LinkId> real, std::vector<LinkId>& path) const;
  /// The link's orbit among the links that the ranks of the plan use. The plan may be run by a part
  /// of a mesh or of a switch, whose other ranks then do nothing.
  Fabric::Orbit orbit_of(LinkId link) const;

  const Fabric& fabric_;
  const Topology& topology_;
  Routes routes_;
  Rank ranks_;  ///< represented by one
  Rank world_size_;
  Kind kind_;
  bool any_other_route_;        ///< a rank's, as every other's
  Network network_;             ///< unless it is the fabric's
  std::optional<Fabric> left_;  ///< without links that have failed
  std::optional<Routes> left_routes_;
  std::vector<LinkId> real_of_left_;
  std::vector<LinkId> left_path_;
  std::vector<LinkId> kept_;               ///< by link of network_, in ascending order
  std::map<LinkId, LinkId> folded_links_;  ///< by representative
  std::vector<Fabric::Orbit> orbits_;      ///< by folded link
  std::vector<LinkId> path_;
  std::vector<LinkId> other_path_;
  std::vector<LinkId> tree_;
};

}  // namespace arlab

// Links that change in mid-run, and traffic of others (Topology::link_events, background).
//
// Changes bandwidths and routes, starts and stops flows of others. It knows nothing of the run's own
// messages: those that have lost their route it hands back.
#pragma once

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "sim/network/flow_engine.h"
#include "sim/run/message_routes.h"

namespace arlab {

class Changes {
 public:
  static bool any(const Topology& topology) {
    return !topology.link_events.empty() || !topology.background.empty();
  }

  /// Throws InvalidInput when a link or node of them is not there.
  Changes(const Topology& topology, const Fabric& fabric, MessageRoutes& routes,
          FlowEngine& engine);

  std::size_t size() const { return changes_.size(); }
  Picoseconds time_of(std::size_t change) const { return changes_[change].time; }
  /// It happens now. Returns messages that have to go another way. Throws InvalidInput when there is
  /// none for a flow of others.
  std::vector<FlowEngine::Withdrawn> happen(std::size_t change);

 private:
  /// A change of links, or of a flow of others, at an instant.
  struct Change {
    enum Kind : std::uint8_t { links, begin, end } kind;
    std::size_t index;  ///< index in the topology's link_events or background
    Picoseconds time;
  };

  NodeId node_of(NodeName name) const;
  void find_links(std::size_t event);
  std::vector<FlowEngine::Withdrawn> change_links(std::size_t event);
  void begin_flow(std::size_t flow);

  const Topology& topology_;
  const Fabric& fabric_;
  MessageRoutes& routes_;
  FlowEngine& engine_;
  std::vector<Change> changes_;
  std::vector<std::vector<std::pair<LinkId, double>>> event_links_;  ///< by event, with GB/s
  std::set<LinkId> dead_;
  std::vector<LinkFault> failed_;     ///< failed links
  std::vector<FlowSlot> background_;  ///< by flow of the topology
};

}  // namespace arlab

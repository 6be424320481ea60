// Ways from rank to rank through a fabric.
//
// On regular fabrics without faults they follow from the numbers of the ranks and need no search:
//
//   mesh                  the link between the two
//   switch, numa          port out, the bridge between the groups if they differ, port in
//   ring, torus           dimension by dimension, the slowest first, the shorter way round; upwards
//                         when both are as long, and then other_route() goes downwards
//   fat tree              inside a server as a switch; on one rail of a pod over its leaf; else
//                         over the core
//   dragonfly             port out, the way between the two routers (searched for once), port in
//
// They are those that a search finds (network/router.h: fewest hops, least latency, lowest
// numbers).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sim/network/router.h"
#include "sim/topology/fabric.h"

namespace arlab {

/// For one thread.
class Routes {
 public:
  /// The fabric must outlive this.
  explicit Routes(const Fabric& fabric) : fabric_(fabric) {}

  /// The links from one rank to another. Throws InvalidInput that names the nodes when there is no
  /// way, or it is the same rank. The span is valid until the next call.
  std::span<const LinkId> route(Rank from, Rank to);
  /// One that is as good and balances the links when it takes half of what goes there; empty where
  /// there is none. The span is valid until the next call.
  std::span<const LinkId> other_route(Rank from, Rank to);

 private:
  Router& router();

  const Fabric& fabric_;
  std::optional<Router> router_;  ///< made when there is something to search for
  std::vector<LinkId> path_;
  std::vector<LinkId> other_path_;
};

}  // namespace arlab

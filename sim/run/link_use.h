// Use of links in a run, in wire bytes and by class.
//
// Reads what the engine counted, and knows what of it was no wire byte.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "sim/network/engine.h"
#include "sim/run/message_routes.h"
#include "sim/simulation.h"

namespace arlab {

class LinkUse {
 public:
  /// A message takes more than its wire bytes there, or fewer: codecs pack theirs differently.
  void take(std::span<const LinkId> route, std::uint64_t bytes, std::uint64_t wire_bytes);
  /// How the links were used that carried anything until now, `duration` after the beginning.
  std::vector<LinkClassUse> by_class(const NetworkEngine& engine, const MessageRoutes& routes,
                                     const Fabric& fabric, Picoseconds duration) const;

 private:
  std::map<LinkId, std::uint64_t> more_bytes_;  ///< modulo 2^64
};

}  // namespace arlab

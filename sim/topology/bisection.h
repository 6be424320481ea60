// Where a machine is narrow: the bandwidth between its two halves, and uplinks with more cards than
// they carry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/topology/fabric.h"

namespace arlab {

struct Bisection {
  enum class Method : std::uint8_t {
    crossing_links,  ///< there are only devices, so the links between the halves are the cut
    max_flow,        ///< switches belong to no half: the least cut, by maximum flow
  };
  Method method = Method::crossing_links;
  Rank first_half = 0;  ///< ranks of it: the lower numbers; the other half may have one more
  double upwards_gb_per_s = 0;    ///< from the first half to the second one
  double downwards_gb_per_s = 0;  ///< from the second half to the first one
  /// False where sharing domains bind: then no more than this is possible, but maybe less.
  bool exact = true;

  double gb_per_s() const {
    return upwards_gb_per_s < downwards_gb_per_s ? upwards_gb_per_s : downwards_gb_per_s;
  }
};
/// The method in words.
std::string_view words_for(Bisection::Method method);

/// Over the halving of the ranks by number, whatever ways messages take. `ranks` are those of the
/// topology; 0 for less than two.
Bisection bisection_of(const Fabric& fabric, Rank ranks);

/// Describes a fat tree's leaves with cards that bring more than the uplink carries: "leaf 4: 4 cards of 46 GB/s on an uplink
/// of 46 GB/s", and how many follow that are alike. A single leaf has no use for its uplink.
std::vector<std::string> oversubscribed_leaves(const Topology& topology, const Fabric& fabric);

}  // namespace arlab

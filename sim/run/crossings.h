// How many links the messages of a run cross, and whether that is too much: refused before routes are
// written down that no memory could hold.
#pragma once

#include <cstdint>

#include "sim/run/copies.h"
#include "sim/simulation.h"

namespace arlab {

/// Returns the crossings of all messages together. Throws InvalidInput when they are more than the options allow.
std::uint64_t crossings_of(const Copies& copies, const Topology& topology, const Fabric& fabric,
                           const SimulateOptions& options);

}  // namespace arlab

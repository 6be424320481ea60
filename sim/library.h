// What the vendor's library (NCCL, RCCL) does when it may choose.
#pragma once

#include "sim/simulator.h"

namespace arlab {

/// Throws InvalidInput when the machine has none.
const Library& library_of(const Topology& topology);

/// Of the all-reduces that the library has on this machine (Library::algorithms) the one that is
/// simulated to be the fastest. Throws InvalidInput when the machine has no library.
const Algorithm& library_algorithm(const ScheduleRequest& request, const Codecs& codecs,
                                   DType dtype, const Topology& topology,
                                   const SimulateOptions& options = {});

/// Whether the numbers of the machine's library are of this algorithm: of others they say little
/// (ring on mi300x-8: 49 % from the tables, two_shot 1.5 %).
bool library_has(const Topology& topology, std::string_view algorithm);

}  // namespace arlab

// Choices that the vendor's library (NCCL, RCCL) makes by itself.
#pragma once

#include <string>
#include <vector>

#include "sim/simulator.h"

namespace arlab {

/// Names of the all-reduces that the library has for so many ranks of this machine: Library::algorithms, or across
/// servers ring and tree; and nvls where its switch adds. Throws InvalidInput where there is none.
std::vector<std::string> library_algorithms(const Topology& topology, Rank world_size);

/// The one of them that the library takes: as NCCL chooses (sim/device/library_choice.h), or, where its
/// choice is not known, that which is simulated to be the fastest.
const Algorithm& library_algorithm(const ScheduleRequest& request, const Codecs& codecs,
                                   DType dtype, const Topology& topology,
                                   const SimulateOptions& options = {});

/// Whether the numbers of the machine's library are of this algorithm: of others they say little
/// (ring on mi300x-8: 49 % from the tables, two_shot 1.5 %).
bool library_has(const Topology& topology, Rank world_size, std::string_view algorithm);

}  // namespace arlab

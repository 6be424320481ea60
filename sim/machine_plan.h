// The plan of an algorithm on a machine: how much of it has to be listed, and what the vendor's
// library or a switch makes of it.
//
// Asks algorithm and topology what looks the same from each rank; knows nothing of times.
#pragma once

#include <span>

#include "sim/plan.h"
#include "sim/simulation.h"
#include "sim/topology/topology.h"

namespace arlab {

/// Worlds of more ranks are folded also where chunks differ by a tile.
inline constexpr Rank kMostRanksWithUnequalChunks = 128;

/// Where all ranks do the same on a fabric that looks the same from each of them, it is folded: one rank stands for all,
/// exactly, and 65,536 ranks cost no more than one. Where only the fabric differs (a straggler, a slow link), it lists one
/// rank, and all are simulated. Chunks may differ by a tile, so that ranks are not quite alike. All then count as the largest
/// (Plan::equal_chunks_factor) with more than kMostRanksWithUnequalChunks, or where the schedule is too large. Throws
/// InvalidInput when the topology is too small or not valid, or the algorithm does not take the request or the options.
Plan plan_of(const Algorithm& algorithm, const ScheduleRequest& request, const Codecs& codecs,
             DType dtype, const Topology& topology, const SimulateOptions& options = {});

/// The most that a latency is off since all chunks counted as the largest; 0 where they are equal.
double equal_chunks_error_us(const SimulationResult& result);

/// The plan of all ranks of an algorithm, which simulate_together() can place on `ranks` of the topology;
/// where these are counts for the library only.
Plan placeable_plan_of(const Algorithm& algorithm, const ScheduleRequest& request,
                       const Codecs& codecs, DType dtype, const Topology& topology,
                       std::span<const Rank> ranks, bool library);

// Checks of a topology that both plans and runs need. Throw InvalidInput.

/// So many ranks.
void require_room(Rank world_size, std::string_view algorithm, const Topology& topology);
/// A switch that spreads messages, if the options or NVLS ask for one.
void require_multicast(const Topology& topology, const SimulateOptions& options, bool is_nvls);

}  // namespace arlab

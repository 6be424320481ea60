// What hierarchical and hierarchical_pipelined share: the life of one chunk.
#pragma once

#include "reference/collectives/schedule_builder.h"

namespace arlab {

/// Writes one chunk's path through the three stages, at steps first_step, +1 and +2. `owner` is the
/// member of every group (0 .. group_size - 1) that reduces the chunk; own and inner_codec are of
/// the options.
void write_hierarchical_chunk(ScheduleBuilder& s, Chunk range, Rank owner, Rank group_size,
                              const AlgorithmOptions& options, std::uint32_t first_step);

/// The options of hierarchical and of hierarchical_pipelined; `own` is the first.
const std::vector<Field>& hierarchical_options();

/// Shifts of groups and of members, when every member owns as much as the others.
RankSymmetry hierarchical_symmetry(const ScheduleRequest& request);

/// The requested or default group size. Throws InvalidInput unless it divides the world size.
Rank checked_group_size(const ScheduleRequest& request);

}  // namespace arlab

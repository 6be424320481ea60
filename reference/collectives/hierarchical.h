// The common part of hierarchical, hierarchical_pipelined and hierarchical_reduce_scatter: the life of one chunk.
#pragma once

#include "reference/collectives/schedule_builder.h"

namespace arlab {

/// Sums of a chunk inside each group, one per group, on member `owner` of it. Messages leave at `first_step`, sums are made in the
/// step behind it.
std::vector<Value> sums_of_groups(ScheduleBuilder& s, ChunkId chunk, Rank owner, Rank group_size,
                                  const AlgorithmOptions& options, std::uint32_t first_step);

/// The sum on a rank; elsewhere, where none of its addends is to be written.
Value sum_of(ScheduleBuilder& s, Rank rank, ChunkId chunk, const std::vector<Value>& addends);

/// Writes one chunk's path through the three stages, at steps first_step, +1 and +2. `owner` is the
/// member of every group (0 .. group_size - 1) that reduces the chunk; own and inner_codec are of
/// the options.
void write_hierarchical_chunk(ScheduleBuilder& s, Chunk range, Rank owner, Rank group_size,
                              const AlgorithmOptions& options, std::uint32_t first_step);

/// Their options but for micro-chunks; `own` is the first.
const std::vector<Field>& hierarchical_options();

/// Shifts of groups and of members, when every member owns as much as the others.
RankSymmetry hierarchical_symmetry(const ScheduleRequest& request);

/// The requested or default group size. Throws InvalidInput unless it divides the world size.
Rank checked_group_size(const ScheduleRequest& request);

}  // namespace arlab

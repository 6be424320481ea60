// Row-parallel int8 layers and the collective of their partial sums, without the partial sums.
#pragma once

#include <span>

#include "reference/collectives/executor.h"
#include "reference/layers/linear.h"

namespace arlab {

/// A rank's share of a layer: a part of the inputs.
struct RowParallelPart {
  Int8Matrix x;
  Int8Matrix w;
};

/// Runs the schedule on y = W x of every rank, [tokens, outputs] of the dtype: the epilogue of each
/// tile's product hands it to the encoder, so that no rank's y is ever there as a whole. Same bits
/// as linear_int8 of every rank, rounded to the dtype, and then execute. Throws InvalidInput where
/// the parts, the schedule and `outputs` (as of execute) do not fit each other.
ExecuteCounts execute_row_parallel(const Schedule& schedule, const Codecs& codecs, DType dtype,
                                   std::span<const RowParallelPart> parts,
                                   std::span<std::byte> outputs,
                                   const ExecuteOptions& options = {});

}  // namespace arlab

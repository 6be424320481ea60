// A tail in the schedule of an all-reduce, whatever its algorithm: reference/tails/SPEC.md, "In a schedule".
#pragma once

#include "reference/collectives/schedule.h"
#include "reference/tails/tail.h"

namespace arlab {

struct TailPlacement {
  /// Where a rank encodes the complete sum of a chunk for others, it makes its rows and sends what comes out, which all ranks
  /// decode; else every rank makes all rows, of the sum that it ends with.
  bool at_owner = false;
  /// At the owner: the residual goes to all ranks, by the inner codec; else it stays with its owner.
  bool sends_residual = false;
  /// Quantized rows also end as they were before, on the ranks that make them.
  bool keeps_normalized = false;
  bool operator==(const TailPlacement&) const = default;
};

/// The schedule with the tail, proved by check(). Chunks are whole rows of tail.hidden elements where the schedule was made for
/// Codecs::alignment(hidden). Throws InvalidInput for another collective, one that has a tail, chunks that cut a row, an algorithm
/// without such an owner, and a placement that changes nothing.
Schedule with_tail(const Schedule& schedule, const Tail& tail, const TailPlacement& placement);

/// A schedule whose tail is at owners, cut there: sums that end with their owners, and rows, inputs of their owners, that all get.
struct CutAtOwners {
  Schedule sums;
  Schedule rows;
};
CutAtOwners cut_at_owners(const Schedule& tailed);

}  // namespace arlab

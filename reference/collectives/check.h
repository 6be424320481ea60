// Proofs about a Schedule, without values.
#pragma once

#include <string>

#include "reference/collectives/schedule.h"

namespace arlab {

struct CheckReport {
  /// Every rank ends with every rank's contribution exactly once, for every element.
  bool correct = false;
  /// The first violation in words; empty when correct.
  std::string violation;

  /// All ranks end with identical bits whatever the values, because they compute the same
  /// expression of the inputs. When false, ranks may or may not differ on given data.
  bool ranks_identical = false;
  /// The first element range where expressions differ, in words; empty when ranks_identical.
  std::string divergence;
};

/// Checks any schedule, also a malformed one (operands that do not exist yet or are on another
/// rank, raw values sent, chunks that overlap the end of the tensor, outputs with holes).
CheckReport check(const Schedule& schedule);

/// Throws InvalidInput with the violation unless check() finds the schedule correct.
void require_correct(const Schedule& schedule);

}  // namespace arlab

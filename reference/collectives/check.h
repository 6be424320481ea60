// Proofs about a Schedule, without values.
#pragma once

#include <string>

#include "reference/collectives/schedule.h"

namespace arlab {

struct CheckReport {
  /// Every rank ends with what the collective says, for every element:
  ///   all_reduce        every rank's contribution exactly once
  ///   all_to_all        the one element that is for this place, and nothing added to it
  ///   dispatch_combine  the rank's own element, encoded again by the rank that its slot is for
  ///   reduce_scatter    in the rank's slot every rank's contribution exactly once, else its own
  ///                     input, exactly
  ///   all_gather        the element of the rank whose slot it is in, and nothing added to it
  ///   broadcast         the element of rank 0, and nothing added to it
  /// Behind an all-reduce with a tail: every row, whole, of every rank's contribution exactly once; what is made beside it, the
  /// residual, on the ranks that make it, or on all. Of residuals it is taken that all ranks have the same.
  bool correct = false;
  /// The first violation in words; empty when correct.
  std::string violation;

  /// All ranks end with identical bits whatever the values, because they compute the same
  /// expression of the inputs. When false, ranks may or may not differ on given data. Always false
  /// where ranks are to end with different data: see ends_alike().
  bool ranks_identical = false;
  /// The first element range where expressions differ that should not, in words; else empty.
  std::string divergence;
};

/// Checks any schedule, also a malformed one: operands may not exist yet or be on another rank, raw
/// values be sent, chunks overlap the end of the tensor or of a slot, and outputs have holes.
CheckReport check(const Schedule& schedule);

/// Whether the sum of an element is made alike wherever in the tensor it stands: the same contributions in the same order, and
/// encoded as often. Then its bits depend neither on the tensor's size nor on its place, with codecs whose blocks stay whole. True
/// where nothing is summed. The schedule is well-formed.
bool sums_are_alike(const Schedule& schedule);

/// Returns for every op whether its value has every rank's contribution exactly once. The schedule is well-formed and adds.
std::vector<bool> complete_sums(const Schedule& schedule);

/// Throws InvalidInput with the violation unless check() finds the schedule correct.
void require_correct(const Schedule& schedule);

}  // namespace arlab

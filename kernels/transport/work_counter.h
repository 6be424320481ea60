// Work that blocks take in turn: pieces of a call have numbers, and every block begins with two of
// its own.
#pragma once

#include "kernels/transport/team.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The next of the numbers that no block began with.
ARLAB_DEVICE std::uint32_t take_work(const Team& team) {
  return 2 * gridDim.x + atomic_add(global_pointer(team.work_counter), 1);
}

/// To be called once by every block when it ends: true for the last one, which has made ready for
/// the next call.
ARLAB_DEVICE bool is_last_to_end(const Team& team) {
  std::uint32_t* work_counter = global_pointer(team.work_counter);
  if (atomic_add(work_counter + 1, 1) + 1 < gridDim.x) return false;
  store_relaxed(work_counter, 0);
  store_relaxed(work_counter + 1, 0);
  return true;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

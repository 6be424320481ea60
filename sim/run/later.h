// Instants of a run, in range.
#pragma once

#include "reference/error.h"
#include "sim/network/time.h"

namespace arlab {

/// Throws InvalidInput when the instant is beyond kNever: quantities are in range each, but their
/// products need not be.
inline Picoseconds later_by(Picoseconds start, double us) {
  // Written so that a NaN fails too.
  if (!(us * 1e6 < static_cast<double>(kNever - start))) {
    fail("the collective would take longer than {:.0f} s, more than can be simulated",
         us_from_picoseconds(kNever) * 1e-6);
  }
  return start + picoseconds_from_us(us);
}

}  // namespace arlab

// Instants of a run, in range.
#pragma once

#include "reference/error.h"
#include "sim/network/time.h"

namespace arlab {

/// A span of time, or kNever where it is as long: quantities are in range each, but their products
/// need not be. Written so that a NaN is kNever too.
inline Picoseconds span_of(double us) {
  return us * 1e6 < static_cast<double>(kNever) ? picoseconds_from_us(us) : kNever;
}

/// Throws InvalidInput when the instant is beyond kNever.
inline Picoseconds later_by(Picoseconds start, Picoseconds span) {
  if (span >= kNever - start) {
    fail("the collective would take longer than {:.0f} s, more than can be simulated",
         us_from_picoseconds(kNever) * 1e-6);
  }
  return start + span;
}
inline Picoseconds later_by(Picoseconds start, double us) { return later_by(start, span_of(us)); }

}  // namespace arlab

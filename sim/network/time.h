// Simulated time: whole picoseconds.
//
// Integers, because simultaneous has to mean equal: what ends together in theory ends together
// here, is solved for once, and a golden test may compare with ==. Rounding is to the nearest, once
// per instant, from exact quantities: an instant is off by at most half a picosecond from what its
// causes say, and in a chain of n dependent ones by at most n / 2.
#pragma once

#include <cstdint>

namespace arlab {

using Picoseconds = std::int64_t;

/// An instant that never comes. Simulations end before it: 2^62 ps are 53 days.
inline constexpr Picoseconds kNever = Picoseconds{1} << 62;

/// Rounds to the nearest, ties up, what is not negative and below 2^63. std::llround would be a
/// call of the library.
inline Picoseconds round_to_picoseconds(double ps) {
  const auto whole = static_cast<Picoseconds>(ps);
  return whole + (ps - static_cast<double>(whole) >= 0.5 ? 1 : 0);
}

/// `us` is not negative.
inline Picoseconds picoseconds_from_us(double us) { return round_to_picoseconds(us * 1e6); }
inline double us_from_picoseconds(Picoseconds ps) { return static_cast<double>(ps) * 1e-6; }

/// How long `bytes` take at a rate > 0. 1 GB/s is a byte per nanosecond. kNever when it is longer
/// than that.
inline Picoseconds transfer_time(double bytes, double gb_per_s) {
  const double ps = bytes / gb_per_s * 1e3;
  return ps < static_cast<double>(kNever) ? round_to_picoseconds(ps) : kNever;
}

/// Returns the bytes that flow at a rate for that long.
inline double bytes_in(Picoseconds duration, double gb_per_s) {
  return gb_per_s * static_cast<double>(duration) * 1e-3;
}

}  // namespace arlab

#include "sim/run/quantum.h"

#include <algorithm>

namespace arlab {
namespace {

/// The first one of a run is this part of what has been simulated until then. Most rates change
/// towards the ends of steps, so that is not far from the latency.
constexpr Picoseconds kParts = 512;
/// So often each message is looked at on each of its links even where few rates change.
constexpr std::uint64_t kSolvedAnyway = 4;

}  // namespace

Quantum::Quantum(const SimulateOptions& options, std::uint64_t crossings, Picoseconds begin)
    : step_(options.exact_solved),
      next_growth_(options.quantum_us ? UINT64_MAX : step_ + kSolvedAnyway * crossings),
      begin_(begin),
      lengths_{{0, picoseconds_from_us(options.quantum_us.value_or(0))}} {}

bool Quantum::grow(std::uint64_t solved, Picoseconds now) {
  next_growth_ = solved + step_;
  lengths_.emplace_back(now, std::max({2 * length(), (now - begin_) / kParts, Picoseconds{1}}));
  return true;
}

Picoseconds Quantum::length_at(Picoseconds time) const {
  auto length = lengths_.rbegin();
  while (length->first > time) ++length;
  return length->second;
}

}  // namespace arlab

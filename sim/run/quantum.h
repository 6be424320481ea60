// How often the rates of messages that share links are solved for, so that a run takes seconds.
//
// Where nothing is symmetric, messages start and end one by one, and rates would be solved for at
// 10^5 instants. So with a quantum they are solved for once in it at most (FlowEngine). Unless one
// is asked for, a run is exact as long as that is cheap; from there on the quantum is a small part
// of the time that has been simulated, and doubles whenever as much again has been spent.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/network/time.h"
#include "sim/simulation.h"

namespace arlab {

class Quantum {
 public:
  /// For messages that cross so many links. `begin`: when the first may start.
  Quantum(const SimulateOptions& options, std::uint64_t crossings, Picoseconds begin);

  /// To be called as the run goes on, with NetworkEngine::solved(). Says whether it has grown.
  bool grows(std::uint64_t solved, Picoseconds now) {
    return solved > next_growth_ && grow(solved, now);
  }
  /// Returns the current length: never less than before.
  Picoseconds length() const { return lengths_.back().second; }
  /// Returns the length at this time.
  Picoseconds length_at(Picoseconds time) const;

 private:
  bool grow(std::uint64_t solved, Picoseconds now);

  std::uint64_t step_;
  std::uint64_t next_growth_;
  Picoseconds begin_;
  std::vector<std::pair<Picoseconds, Picoseconds>> lengths_;  ///< each with the time from which on
};

}  // namespace arlab

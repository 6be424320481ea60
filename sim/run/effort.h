// How much a run costs, and whether that is too much: refused before routes are written down that no
// memory could hold, or when it is far from its end.
//
// Knows counts only.
#pragma once

#include <cstdint>

#include "sim/run/copies.h"
#include "sim/simulation.h"

namespace arlab {

class Effort {
 public:
  /// Throws InvalidInput when messages cross more links than the options allow.
  Effort(const Copies& copies, const Topology& topology, const Fabric& fabric,
         const SimulateOptions& options);

  /// Links that the messages cross, all together.
  std::uint64_t crossings() const { return crossings_; }

  /// To be called after every delivery, with NetworkEngine::solved() and the number of deliveries.
  /// Throws InvalidInput when that is too much, or is going to be.
  void look(std::uint64_t solved, std::uint64_t delivered) {
    if (solved > next_look_) look_at_progress(solved, delivered);
  }

 private:
  void look_at_progress(std::uint64_t solved, std::uint64_t delivered);

  const Copies& copies_;
  const Topology& topology_;
  std::uint64_t most_solved_;
  std::uint64_t next_look_;
  std::uint64_t crossings_ = 0;
};

}  // namespace arlab

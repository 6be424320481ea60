// By how much launches and messages of a run are late: numbers that follow from the run's seed and
// what they are for.
#pragma once

#include <cstdint>

#include "sim/plan.h"
#include "sim/topology/topology.h"

namespace arlab {

class RunJitter {
 public:
  RunJitter(const Jitter& mean, std::uint64_t seed) : mean_(mean), seed_(seed) {}

  bool delays_messages() const { return mean_.message_us > 0; }
  double launch_us(std::uint32_t job, Rank rank) const;
  double message_us(MessageId message) const;

 private:
  const Jitter& mean_;
  std::uint64_t seed_;
};

}  // namespace arlab

#include "sim/run/arrivals.h"

#include <utility>

namespace arlab {

Arrivals::Arrivals(const Copies& copies) : copies_(copies), coming_(copies.stages()) {}

bool Arrivals::is_complete(StageId id) {
  StageArrivals& coming = coming_[id];
  return coming.come == copies_.stage(id).awaited && coming.latest == kNone;
}

bool Arrivals::arrive(StageId id, const Arrival& arrival, NetworkEngine& engine,
                      std::uint64_t timer_tag) {
  ++coming_[id].come;
  if (arrival.there == engine.now()) return is_complete(id);
  std::uint32_t& latest = coming_[id].latest;
  if (latest == kNone) {
    latest = acquire();
  } else {
    if (arrivals_[latest].there > arrival.there) return false;
    engine.cancel(arrivals_[latest].timer);
  }
  arrivals_[latest] = arrival;
  arrivals_[latest].timer = engine.call_at(arrival.there, timer_tag);
  return false;
}

Arrival Arrivals::take_latest(StageId id) {
  const std::uint32_t latest = std::exchange(coming_[id].latest, kNone);
  free_.push_back(latest);
  return arrivals_[latest];
}

std::uint32_t Arrivals::acquire() {
  if (free_.empty()) {
    arrivals_.emplace_back();
    return static_cast<std::uint32_t>(arrivals_.size() - 1);
  }
  const std::uint32_t arrival = free_.back();
  free_.pop_back();
  return arrival;
}

}  // namespace arlab

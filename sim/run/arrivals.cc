#include "sim/run/arrivals.h"

#include <utility>

namespace arlab {

Arrivals::Arrivals(const Copies& copies)
    : awaited_(copies.stages()), latest_(copies.stages(), kNone) {
  for (StageId id = 0; id < stages(); ++id) awaited_[id] = copies.stage(id).awaited;
}

bool Arrivals::is_complete(StageId id) const { return awaited_[id] == 0 && latest_[id] == kNone; }

bool Arrivals::arrive(StageId id, const Arrival& arrival, NetworkEngine& engine,
                      std::uint64_t timer_tag) {
  --awaited_[id];
  if (arrival.there == engine.now()) return is_complete(id);
  std::uint32_t& latest = latest_[id];
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
  const std::uint32_t latest = std::exchange(latest_[id], kNone);
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

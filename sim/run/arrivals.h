// Arrivals that the stages of a run wait for: how many have come, and which came last.
//
// A stage begins with the last of what it waits for. Most of a million messages are not the last,
// so only the one that will be complete last is kept for a stage; of those that are complete at the
// same instant the one that was delivered last. Sets timers of the engine, and does nothing else to
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/network/engine.h"
#include "sim/network/paged_array.h"
#include "sim/run/causes.h"
#include "sim/run/copies.h"

namespace arlab {

/// A message that has been delivered, and when it is complete.
struct Arrival {
  MessageId message = 0;
  ResourceId limit = kNoLimit;
  Picoseconds network = 0;  ///< network's part
  Picoseconds gone = 0;     ///< the sender is done with it
  Picoseconds there = 0;
  TimerId timer = 0;   ///< rings then
  CauseId before = 0;  ///< why its stage began
};

class Arrivals {
 public:
  explicit Arrivals(const Copies& copies);

  /// Whether all that the stage waits for has come, and is there.
  bool is_complete(StageId id);
  /// It begins: nothing more will come for it.
  void forget(StageId id) { coming_.release(id); }

  /// A message for the stage has been delivered. Says whether the stage is complete with it; unless
  /// the message is there now, a timer with this tag will ring for take_latest() some time.
  bool arrive(StageId id, const Arrival& arrival, NetworkEngine& engine, std::uint64_t timer_tag);
  /// The latest message for the stage is there now.
  Arrival take_latest(StageId id);
  /// An earlier stage that the stage waits for is done.
  void count_stage(StageId id) { ++coming_[id].come; }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct StageArrivals {
    std::uint32_t come = 0;        ///< arrivals that have come
    std::uint32_t latest = kNone;  ///< index into arrivals_
  };
  std::uint32_t acquire();

  const Copies& copies_;
  PagedArray<StageArrivals> coming_;  ///< by stage
  std::vector<Arrival> arrivals_;
  std::vector<std::uint32_t> free_;
};

}  // namespace arlab

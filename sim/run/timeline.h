// Tells a SimulationTrace what happens in a run, in its terms: messages and real links in place of
// tags and links of the run's own network.
//
// Reads plan, routes and costs; a run without a trace has no timeline, and does not pay for it.
#pragma once

#include <array>
#include <map>
#include <set>
#include <utility>

#include "sim/network/engine.h"
#include "sim/run/arrivals.h"
#include "sim/run/copies.h"
#include "sim/run/message_routes.h"
#include "sim/simulation.h"

namespace arlab {

class Timeline final : public NetworkTrace {
 public:
  Timeline(SimulationTrace& trace, const Copies& copies, MessageRoutes& routes,
           const Fabric& fabric)
      : trace_(trace), copies_(copies), routes_(routes), fabric_(fabric) {
    trace.on_fabric(fabric);
  }

  /// The first of its kernels.
  void launched(Rank rank, Picoseconds ready) {
    if (launched_.insert(rank).second) trace_.on_launched(rank, ready);
  }
  void decoding(Rank rank, std::uint32_t step, Picoseconds begin, Picoseconds end) {
    trace_.on_work(rank, SimulationTrace::Work::decode, step, begin, end);
  }
  /// The first part of it are flags.
  void stage(StageId id, double flags_us, Picoseconds start, Picoseconds done);
  /// It has arrived, and is written into the output at `gathered`.
  void message(const PlannedMessage& message, Picoseconds started, const Arrival& arrival,
               Picoseconds gathered);

 private:
  void on_rate(std::uint64_t tag, double gb_per_s, Picoseconds now) override;
  void on_sent(std::uint64_t tag, Picoseconds now) override { on_rate(tag, 0, now); }

  SimulationTrace& trace_;
  const Copies& copies_;
  MessageRoutes& routes_;
  const Fabric& fabric_;
  std::set<Rank> launched_;
  std::map<MessageId, Picoseconds> flowing_since_;
  /// The shares of both halves of messages that take two routes.
  std::map<std::pair<MessageId, LinkId>, std::array<double, 2>> shares_;
};

}  // namespace arlab

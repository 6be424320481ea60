// A run as a timeline: JSON in Chrome's trace format, which ui.perfetto.dev and chrome://tracing
// open.
//
// Process "ranks" has a track per rank: launch, flags, encode, decode, reduce, forward; where a
// rank does none of these, `send` while messages of its own are on their way, else `wait`. Process
// "links" has a track per link that carried anything, with a span per message, and a counter "load
// of ..." that says how many percent of its bandwidth are in use. Where
// spans overlap, the track goes on in another one below: spans of one track must nest.
//
// Times are microseconds from the call of the collective. `otherData` says what was simulated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "reference/collectives/algorithm.h"
#include "sim/simulator.h"
#include "sim/topology/fabric.h"

namespace arlab {

inline constexpr Rank kMostTracedRanks = 4096;
/// Viewers do not open more, and neither does a person read more.
inline constexpr std::size_t kMostTraceEvents = 2'000'000;

/// Throws InvalidInput when the trace of such a schedule would be too large, before the schedule
/// itself takes time and memory.
void require_traceable(const Algorithm& algorithm, const ScheduleRequest& request);

class PerfettoTrace final : public SimulationTrace {
 public:
  void on_fabric(const Fabric& fabric) override;
  void on_launched(Rank rank, Picoseconds ready) override;
  void on_work(Rank rank, Work work, std::uint32_t step, Picoseconds begin,
               Picoseconds end) override;
  void on_message(const PlannedMessage& message, std::uint32_t step, std::span<const LinkId> route,
                  Picoseconds begin, Picoseconds delivered) override;
  void on_link(const PlannedMessage& message, std::uint32_t step, LinkId link, Picoseconds begin,
               Picoseconds end) override;
  void on_share(MessageId message, LinkId link, double share, Picoseconds now) override;

  /// The JSON text, an event per line. Throws InvalidInput when there are too many events.
  std::string json(const SimulationResult& result) const;
  /// The same into a file: all of it or nothing.
  void write(const std::filesystem::path& path, const SimulationResult& result) const;

 private:
  enum class Kind : std::uint8_t { launch, flags, encode, decode, reduce, forward, send, wait };
  struct Interval {
    Picoseconds begin = 0;
    Picoseconds end = 0;
  };
  struct WorkSpan {
    Interval time;
    std::uint32_t step = 0;
    Kind kind = Kind::launch;
  };
  struct LinkSpan {
    Interval time;
    Rank from = 0;
    Rank to = 0;
    std::uint32_t step = 0;
    std::uint64_t bytes = 0;
  };
  struct LinkSpans {
    std::string name;
    std::string link_class;
    std::vector<LinkSpan> spans;
  };
  struct RankSpans {
    std::vector<WorkSpan> work;
    std::vector<Interval> sending;
    Picoseconds last = 0;  ///< when nothing happens any more
  };
  /// How much of a link is in use, from an instant on.
  struct Load {
    Picoseconds from = 0;
    double share = 0;
  };
  struct LinkLoad {
    std::map<MessageId, double> shares;  ///< current share of each message that is on it
    double share = 0;
    std::vector<Load> history;
  };
  class Writer;

  static const char* name_of(Kind kind);
  static void merge(std::vector<Interval>& intervals);
  static void add_idle(std::vector<WorkSpan>& spans, const RankSpans& rank);
  RankSpans& of(Rank rank);
  void count();

  const Fabric* fabric_ = nullptr;  ///< during the simulation
  std::vector<RankSpans> ranks_;
  std::map<LinkId, LinkSpans> links_;
  std::map<LinkId, LinkLoad> loads_;
  std::size_t events_ = 0;
};

}  // namespace arlab

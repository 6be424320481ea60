// Where the latency of a collective goes: the chain of causes that ends last, walked back.
//
// Reads what a run has recorded (causes.h) and what its stages and messages cost; changes nothing.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "sim/run/causes.h"
#include "sim/run/costs.h"
#include "sim/run/quantum.h"
#include "sim/simulation.h"

namespace arlab {

/// Limits of a codec: Cause::limit of Span::work.
enum class CodecLimit : std::uint8_t { throughput, memory, first_tile };

class CriticalPath {
 public:
  CriticalPath(const Causes& causes, const Copies& copies, const Jobs& jobs, Costs& costs,
               const MessageRoutes& routes, const Quantum& quantum, const Topology& topology)
      : causes_(causes),
        copies_(copies),
        jobs_(jobs),
        costs_(costs),
        routes_(routes),
        quantum_(quantum),
        topology_(topology) {}

  /// Sets breakdown and bottleneck: the largest part of it, with what makes most of that part; and
  /// what the quantum may have added.
  void explain(SimulationResult& result, std::uint32_t job);

 private:
  /// The parts of LatencyBreakdown.
  enum class Part : std::uint8_t { launch, synchronisation, wire, contention, codec, release };
  /// Time in us by part and by what limits it. That is a resource of the network (wire), or, of a
  /// rank, 3 * rank + CodecLimit.
  using Shares = std::map<std::pair<Part, std::uint32_t>, double>;

  Shares walk_back(CauseId last, Picoseconds& quanta);
  /// Parts in proportion, so that they add up to the time between the two causes.
  void add(Shares& shares, const TimeParts& parts, double us, StageId id, ResourceId limit) const;
  std::uint32_t codec_limit(StageId id) const;
  std::string bottleneck(const Shares& shares, Part worst, double worst_us) const;
  static std::string_view name_of(CodecLimit codec);
  /// A limit in words. `limits`: how many there are of that part, this one included.
  std::string name_of(Part part, std::uint32_t limit, std::size_t limits) const;
  std::string name_of_launch(Rank rank) const;

  const Causes& causes_;
  const Copies& copies_;
  const Jobs& jobs_;
  Costs& costs_;
  const MessageRoutes& routes_;
  const Quantum& quantum_;
  const Topology& topology_;
};

}  // namespace arlab

// The simulator: how long a plan takes on a fabric, event by event.
//
// A stage of a rank begins when all that it waits for is there and the rank is free. Its messages
// leave behind those of earlier steps of the rank, and share links max-min fairly with those of
// others; when the network has moved one, the kernel model says how much later it is complete: the first tile took its time,
// the codec was slower than the wire, or stores got in each other's way. Messages for the output are decoded while they arrive.
//
// All constants come from the topology (Device, LinkType); the network is sim/network; the events,
// a class for each concern, are sim/run.
#pragma once

#include <span>
#include <variant>
#include <vector>

#include "sim/machine_plan.h"
#include "sim/plan.h"
#include "sim/simulation.h"

namespace arlab {

/// The collective to simulate, on which machine, how. Its ranks are the first world_size devices of the topology. Algorithm,
/// schedule or plan, codecs and topology must outlive it:
///
///     simulate({find_algorithm("ring"), request, *codec, DType::fp16, topology})
struct SimulationRequest {
  /// An algorithm at a size; plan_of() says how much of it is listed.
  struct OfAlgorithm {
    const Algorithm& algorithm;
    ScheduleRequest request;
    Codecs codecs;
    DType dtype;
  };
  /// A schedule, correct or not: that is the question of check(). The order of ops within a step
  /// makes no difference.
  struct OfSchedule {
    const Schedule& schedule;
    Codecs codecs;
    DType dtype;
  };

  SimulationRequest(const Algorithm& algorithm, const ScheduleRequest& request,
                    const Codecs& codecs, DType dtype, const Topology& on,
                    const SimulateOptions& how = {})
      : what(OfAlgorithm{algorithm, request, codecs, dtype}), topology(on), options(how) {}
  SimulationRequest(const Schedule& schedule, const Codecs& codecs, DType dtype, const Topology& on,
                    const SimulateOptions& how = {})
      : what(OfSchedule{schedule, codecs, dtype}), topology(on), options(how) {}
  /// A plan, on the topology that it was made for or one that differs in quantities only.
  SimulationRequest(const Plan& plan, const Topology& on, const SimulateOptions& how = {})
      : what(&plan), topology(on), options(how) {}

  std::variant<OfAlgorithm, OfSchedule, const Plan*> what;
  const Topology& topology;
  SimulateOptions options;
};

/// Latencies in us and to the picosecond, bandwidths in GB/s, volumes in bytes over all ranks. Deterministic: the same request,
/// the same bits. Throws InvalidInput, with what is allowed: when the topology is not valid or too small; the schedule refers
/// to missing things or cuts a codec's block; a codec does not take the dtype; options and plan do not fit together; a sender
/// has no way to its receiver; or the cost exceeds the options.
SimulationResult simulate(const SimulationRequest& request);

/// A collective of some ranks of a topology.
struct PlacedPlan {
  Plan plan;                ///< lists all of its ranks
  std::vector<Rank> ranks;  ///< ranks of the topology, in the order of the plan's; no two alike
  double start_us = 0;      ///< when it is called; its stragglers are late from then on
};

/// Collectives at once, a result for each in their order. They share links, max-min fairly, but not
/// what ranks calculate with: each has blocks of its own. A collective's latency counts from its own
/// start; links and their utilisation are those of all together, from time 0 to the last end. Throws
/// InvalidInput as simulate() does, and when a start is out of range or ranks are not different ones.
std::vector<SimulationResult> simulate_together(std::span<const PlacedPlan> plans,
                                                const Topology& topology,
                                                const SimulateOptions& options = {});

}  // namespace arlab

#include "sim/simulator.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "sim/device/kernel_model.h"
#include "sim/flows.h"
#include "sim/library/channels.h"
#include "sim/library/library_plan.h"
#include "sim/run/run.h"

namespace arlab {

double bus_bandwidth_factor(Collective collective, Rank world_size) {
  const double n = world_size;
  const unsigned passes = facts_of(collective).bus_passes;
  return passes == 0 ? 1 : passes * (n - 1) / n;
}

namespace {

/// Whether options and topology are such that a folded plan stands for the whole one.
void require_foldable(const Plan& plan, const Topology& topology, const SimulateOptions& options) {
  const bool whole = options.trace == nullptr;
  const FabricShifts shifts = shifts_of(topology);
  const bool same_ranks = shifts.any || plan.world_size == topology.ranks.value;
  if (whole && !shifts.extents.empty() && same_ranks) return;
  fail("a plan of '{}' in which one rank stands for all cannot run {}; make the plan with them",
       plan.algorithm,
       whole ? fmt::format("on topology '{}'", topology.name) : "with these options");
}

/// Makes events of links at time 0 part of the topology.
Topology without_events_at_the_start(Topology topology) {
  std::erase_if(topology.link_events, [&](const LinkEvent& event) {
    if (event.at_us > 0) return false;
    std::erase_if(topology.faults, [&](const LinkFault& fault) {
      return fault.from == event.from && fault.to == event.to;
    });
    topology.faults.push_back({event.from, event.to, event.bandwidth_factor, event.note});
    return true;
  });
  return topology;
}

bool has_event_at_the_start(const Topology& topology) {
  return std::any_of(topology.link_events.begin(), topology.link_events.end(),
                     [](const LinkEvent& event) { return event.at_us <= 0; });
}

/// Links of a mesh to ranks that take no part may be a billion.
Topology part_of_mesh(Topology topology, Rank world_size) {
  topology.ranks.value = world_size;
  std::erase_if(topology.stragglers, [&](const Straggler& s) { return s.rank >= world_size; });
  return topology;
}

std::vector<SimulationResult> run(const Plan& plan, const Jobs& jobs, const Topology& topology,
                                  const SimulateOptions& options) {
  const Fabric fabric(topology, jobs.link_efficiency());
  return Run(plan, jobs, topology, fabric, options).results();
}

/// The collective begins when all ranks have agreed on their scales. Links' utilisation stays that of the collective.
void put_behind(const SimulationResult& agreement, SimulationResult& result) {
  const double share = result.latency_us / (result.latency_us + agreement.latency_us);
  result.breakdown.agreement_us = agreement.latency_us;
  result.wire_bytes += agreement.wire_bytes;
  result.quantum_us = std::max(result.quantum_us, agreement.quantum_us);
  result.quantum_error_us += agreement.quantum_error_us;
  result.latency += agreement.latency;
  result.latency_us += agreement.latency_us;
  result.algbw_gb_per_s *= share;
  result.busbw_gb_per_s *= share;
}

/// Ranks make rows of their sums, all at once.
void put_rows_behind(const Plan& plan, const Topology& topology, SimulationResult& result) {
  const double us = fused_tail_us(topology.device, plan.dtype, plan.tail);
  const double share = result.latency_us / (result.latency_us + us);
  result.breakdown.codec_us += us;
  result.latency += picoseconds_from_us(us);
  result.latency_us += us;
  result.algbw_gb_per_s *= share;
  result.busbw_gb_per_s *= share;
}

/// The same in less time, in all of its parts.
void hasten(SimulationResult& result, Picoseconds latency) {
  const double factor = static_cast<double>(latency) / static_cast<double>(result.latency);
  LatencyBreakdown& parts = result.breakdown;
  for (double* part : {&parts.launch_us, &parts.synchronisation_us, &parts.wire_us,
                       &parts.contention_us, &parts.codec_us, &parts.release_us}) {
    *part *= factor;
  }
  for (LinkClassUse& use : result.links) use.utilisation /= factor;
  result.latency = latency;
  result.latency_us = us_from_picoseconds(latency);
  result.algbw_gb_per_s /= factor;
  result.busbw_gb_per_s /= factor;
}

SimulationResult simulate_plan(const Plan& plan, const Topology& topology,
                               const SimulateOptions& options) {
  require_valid(topology, topology.name);
  require_room(plan.world_size, plan.algorithm, topology);
  if (plan.folded() && options.trace != nullptr) {
    fail("plan of '{}': it is folded, which leaves nothing to trace", plan.algorithm);
  }
  if (plan.folded()) require_foldable(plan, topology, options);
  if (plan.repeats_rank_0 && !topology.device_overrides.empty()) {
    fail(
        "a plan of '{}' that lists one rank cannot run on different devices; make the plan with "
        "them",
        plan.algorithm);
  }
  if (has_event_at_the_start(topology)) {
    return simulate_plan(plan, without_events_at_the_start(topology), options);
  }
  if (topology.kind == TopologyKind::full_mesh && topology.faults.empty() && !varies(topology) &&
      plan.world_size < topology.ranks.value) {
    return simulate_plan(plan, part_of_mesh(topology, plan.world_size), options);
  }
  Jobs jobs(topology);
  if (options.library && !plan.library) {
    fail("a plan of '{}' is of kernels; make it for the library", plan.algorithm);
  }
  if (plan.library) require_plain(plan);
  const Job& job = jobs.add(plan);
  SimulationResult result = run(*job.plan, jobs, topology, options).front();
  result.collapses = collapses(topology, plan);
  SimulateOptions alone = options;
  alone.trace = nullptr;
  for (const Plan& more : plan.of_more) {
    const Picoseconds latency = simulate_plan(more, topology, alone).latency;
    if (latency < result.latency) hasten(result, latency);
  }
  if (plan.tail.elements > 0) put_rows_behind(plan, topology, result);
  if (plan.agreement != nullptr) {
    put_behind(simulate_plan(*plan.agreement, topology, alone), result);
  }
  return result;
}

void require_placeable(const PlacedPlan& placed, const Topology& topology) {
  const Plan& plan = placed.plan;
  require_room(plan.world_size, plan.algorithm, topology);
  if (plan.agreement != nullptr) {
    fail(
        "codec {}: ranks that share scales agree on them first, which is simulated for a "
        "collective by itself only",
        plan.codec);
  }
  if (plan.lists_one_rank() || placed.ranks.size() != plan.world_size) {
    throw std::logic_error("simulate_together: the plan lists one rank, or has other ranks");
  }
  std::set<Rank> different(placed.ranks.begin(), placed.ranks.end());
  if (different.size() != placed.ranks.size() || *different.rbegin() >= topology.ranks.value) {
    fail(
        "'{}' has a rank twice, or one that topology '{}' has not; allowed are different ranks "
        "from 0 to {}",
        plan.algorithm, topology.name, topology.ranks.value - 1);
  }
  if (!(placed.start_us >= 0 && placed.start_us <= kLargestQuantity)) {
    fail("'{}' starts at {} us; allowed is 0 to {}", plan.algorithm, placed.start_us,
         kLargestQuantity);
  }
}

}  // namespace

SimulationResult simulate(const SimulationRequest& request) {
  const Topology& topology = request.topology;
  const SimulateOptions& options = request.options;
  if (const auto* plan = std::get_if<const Plan*>(&request.what)) {
    return simulate_plan(**plan, topology, options);
  }
  if (const auto* of = std::get_if<SimulationRequest::OfAlgorithm>(&request.what)) {
    return simulate_plan(
        plan_of(of->algorithm, of->request, of->codecs, of->dtype, topology, options), topology,
        options);
  }
  const auto& [schedule, codecs, dtype] = std::get<SimulationRequest::OfSchedule>(request.what);
  require_valid(topology, topology.name);
  require_room(schedule.world_size, schedule.algorithm, topology);
  require_multicast(topology, options, false);
  Plan plan = plan_of(schedule, codecs, dtype);
  if (options.multicast) plan = with_multicast(std::move(plan));
  if (options.library) run_as_program(plan, topology);
  return simulate_plan(plan, topology, options);
}

std::vector<SimulationResult> simulate_together(std::span<const PlacedPlan> plans,
                                                const Topology& topology,
                                                const SimulateOptions& options) {
  require_valid(topology, topology.name);
  if (has_event_at_the_start(topology)) {
    return simulate_together(plans, without_events_at_the_start(topology), options);
  }
  Plan all;
  all.algorithm = "workload";
  all.world_size = topology.ranks.value;
  all.channels = 0;
  Jobs jobs(topology);
  for (const PlacedPlan& placed : plans) {
    require_placeable(placed, topology);
    if (placed.plan.library) require_plain(placed.plan);
    const Job& job = jobs.add(placed.plan, placed.ranks, placed.start_us);
    append_channels(all, *job.plan, placed.ranks);
  }
  return run(all, jobs, topology, options);
}

}  // namespace arlab

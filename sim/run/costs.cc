#include "sim/run/costs.h"

#include <cmath>

#include "sim/run/later.h"

namespace arlab {

Costs::Costs(const Copies& copies, const Jobs& jobs, MessageRoutes& routes, double efficiency)
    : copies_(copies), jobs_(jobs), routes_(routes), efficiency_(efficiency) {
  const std::vector<Stage>& listed = copies.plan().stages;
  costs_.reserve(listed.size());
  for (std::uint32_t j = 0; j < jobs.size(); ++j) {
    for (const Stage& stage : jobs[j].plan->stages) {
      const KernelModel& kernel = jobs.kernel_of(jobs[j], listed[costs_.size()].rank);
      const StageCost cost = kernel.cost_of(stage);
      costs_.push_back({cost, span_of(kernel.stage_time(cost).total_us()),
                        span_of(cost.measure_us + cost.work_us),
                        efficiency / kernel.link_efficiency(), kernel.gather_us(stage),
                        kernel.is_memory_bound(stage)});
    }
  }
}

const Costs::Known& Costs::message_time(const PlannedMessage& message, Picoseconds network) {
  const Stage& stage = copies_.stage(message.stage);
  const KernelModel& kernel = jobs_.kernel_of(stage, message.from);
  // As the topology says it, not the share of it that is wire bytes.
  const double link_gb_per_s =
      kernel.knows_contention() ? routes_.first_link_gb_per_s(message) / efficiency_ : 0;
  // Messages of a stage are mostly alike, and delivered soon after each other.
  const PartsOfMessage like{copies_.listed(message.stage), message.bytes, message.inner_bytes,
                            network, link_gb_per_s};
  Known& known = known_[like.stage % known_.size()];
  if (known.of != like) {
    known = {like,
             kernel.message_time(stage, of(message.stage), message, us_from_picoseconds(network),
                                 link_gb_per_s),
             0};
    known.span = span_of(known.parts.total_us());
  }
  return known;
}

std::uint64_t Costs::link_bytes(const PlannedMessage& message, double reduction_efficiency) const {
  const KernelModel& kernel = jobs_.kernel_of(copies_.stage(message.stage), message.from);
  std::uint64_t bytes = kernel.link_bytes(message);
  if (message.reach == Reach::reduction) {
    bytes = static_cast<std::uint64_t>(static_cast<double>(bytes) / reduction_efficiency);
  }
  if (const double factor = costs_[copies_.listed(message.stage)].bytes_factor; factor != 1) {
    bytes = static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) * factor));
  }
  return bytes;
}

double Costs::gather_us(const PlannedMessage& message) const {
  if (jobs_.one_device()) return costs_[copies_.listed(message.stage)].gather_us;
  const Job& job = jobs_.of(copies_.stage(message.stage));
  return jobs_.kernel_of(job, message.to)
      .gather_us(job.plan->stages[message.stage - job.first_stage]);
}

}  // namespace arlab

#include "sim/run/jobs.h"

#include <algorithm>
#include <utility>

namespace arlab {

Jobs::Jobs(const Topology& topology) : devices_{&topology.device} {
  if (topology.device_overrides.empty()) return;
  class_of_.assign(topology.ranks.value, 0);
  for (const DeviceOverride& each : topology.device_overrides) {
    for (const Rank rank : each.ranks)
      class_of_[rank] = static_cast<std::uint32_t>(devices_.size());
    devices_.push_back(&each.device);
  }
}

const Job& Jobs::add(const Plan& plan, Implementation implementation, std::vector<Rank> ranks,
                     double start_us) {
  Job job{.plan = &plan, .kernels = {}, .ranks = std::move(ranks), .start_us = start_us};
  for (const Device* device : devices_) {
    job.kernels.push_back(make_kernel_model(*device, plan, implementation));
    if (job.kernels.back()->steps_side_by_side() == job.kernel().steps_side_by_side()) continue;
    fail(
        "device_overrides: kernels of '{}' would be of two kinds; allowed are [blocks] and "
        "[sentinels] "
        "alike on all ranks",
        plan.algorithm);
  }
  job.steps = std::max(1U, job.kernel().steps_side_by_side());
  job.first_channel = static_cast<Rank>(job_of_channel_.size());
  for (const Job& before : jobs_) {
    job.first_stage += static_cast<StageId>(before.plan->stages.size());
  }
  job_of_channel_.insert(job_of_channel_.end(), plan.channels, size());
  return jobs_.emplace_back(std::move(job));
}

double Jobs::link_efficiency() const {
  double most = 0;
  for (const Job& job : jobs_) {
    for (const auto& kernel : job.kernels) most = std::max(most, kernel->link_efficiency());
  }
  return most;
}

}  // namespace arlab

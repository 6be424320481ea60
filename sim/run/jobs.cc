#include "sim/run/jobs.h"

#include <algorithm>
#include <utility>

#include "sim/library/servers.h"

namespace arlab {
namespace {

/// The plan without what waits for what: messages' times have it in them (steps_side_by_side()).
Plan side_by_side(Plan plan) {
  for (Stage& stage : plan.stages) stage.awaited = stage.dependents = 0;
  for (PlannedMessage& message : plan.messages) {
    message.consumers = 0;
    message.output_elements = message.inner_output_elements = 0;
  }
  return plan;
}

/// The plan with what waits for what as the kernel has it; nothing where that is so already.
std::unique_ptr<const Plan> as_run(const Plan& plan, const KernelModel& kernel) {
  if (kernel.steps_side_by_side() > 0) return std::make_unique<const Plan>(side_by_side(plan));
  if (kernel.waits_in_each_step()) return std::make_unique<const Plan>(in_lock_step(plan));
  return nullptr;
}

}  // namespace

Jobs::Jobs(const Topology& topology) : topology_(topology), devices_{&topology.device} {
  if (topology.device_overrides.empty()) return;
  class_of_.assign(topology.ranks.value, 0);
  for (const DeviceOverride& each : topology.device_overrides) {
    for (const Rank rank : each.ranks)
      class_of_[rank] = static_cast<std::uint32_t>(devices_.size());
    devices_.push_back(&each.device);
  }
}

const Job& Jobs::add(const Plan& plan, std::vector<Rank> ranks, double start_us) {
  Job job{.plan = &plan,
          .own_plan = nullptr,
          .kernels = {},
          .ranks = std::move(ranks),
          .start_us = start_us};
  if (plan.longest_way) {  // it may have been made for other links
    Plan own = plan;
    own.longest_way->latency_us = latency_us_on(topology_, *plan.longest_way);
    job.own_plan = std::make_unique<const Plan>(std::move(own));
  }
  for (const Device* device : devices_) {
    job.kernels.push_back(make_kernel_model(*device, job.own_plan ? *job.own_plan : plan));
    const KernelModel& kernel = *job.kernels.back();
    if (kernel.steps_side_by_side() == job.kernel().steps_side_by_side() &&
        kernel.waits_in_each_step() == job.kernel().waits_in_each_step()) {
      continue;
    }
    fail(
        "device_overrides: kernels of '{}' would be of two kinds; allowed are [blocks] and "
        "[sentinels] "
        "alike on all ranks",
        plan.algorithm);
  }
  if (!job.own_plan) job.own_plan = as_run(plan, job.kernel());
  if (job.own_plan) job.plan = job.own_plan.get();
  job.steps = std::max(1U, job.kernel().steps_side_by_side());
  job.first_channel = static_cast<Rank>(job_of_channel_.size());
  for (const Job& before : jobs_) {
    job.first_stage += static_cast<StageId>(before.plan->stages.size());
  }
  job_of_channel_.insert(job_of_channel_.end(), plan.channels, size());
  return jobs_.emplace_back(std::move(job));
}

double Jobs::first_start_us() const {
  return std::ranges::min_element(jobs_, {}, &Job::start_us)->start_us;
}

double Jobs::link_efficiency() const {
  double most = 0;
  for (const Job& job : jobs_) {
    for (const auto& kernel : job.kernels) most = std::max(most, kernel->link_efficiency());
  }
  return most;
}

}  // namespace arlab

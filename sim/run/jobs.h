// The collectives of a run, and the kernel models of the devices that they run on.
//
// Knows plans and devices; which rank has which device, and which collective a stage is of.
#pragma once

#include <memory>
#include <vector>

#include "sim/device/kernel_model.h"
#include "sim/plan.h"
#include "sim/topology/topology.h"

namespace arlab {

/// A collective of a run.
struct Job {
  const Plan* plan = nullptr;            ///< as its kernels run it, with its own ranks
  std::unique_ptr<const Plan> own_plan;  ///< where they run it in another way than it was planned
  std::vector<std::unique_ptr<const KernelModel>> kernels;  ///< by class of device
  std::vector<Rank> ranks;  ///< for each rank of the plan the one of the topology; empty: the same
  double start_us = 0;
  Rank first_channel = 0;
  StageId first_stage = 0;
  std::uint32_t steps = 1;  ///< steps of which messages travel side by side

  const KernelModel& kernel() const { return *kernels.front(); }
};

class Jobs {
 public:
  /// The topology must outlive it.
  explicit Jobs(const Topology& topology);

  /// Adds a plan, whose stages and channels follow those of the jobs before it. `plan` must outlive
  /// this. Throws InvalidInput when its devices would run kernels of two kinds.
  const Job& add(const Plan& plan, std::vector<Rank> ranks = {}, double start_us = 0);

  std::uint32_t size() const { return static_cast<std::uint32_t>(jobs_.size()); }
  double first_start_us() const;
  const Job& operator[](std::uint32_t job) const { return jobs_[job]; }
  std::uint32_t index_of(const Stage& stage) const {
    return jobs_.size() == 1 ? 0 : job_of_channel_[stage.channel];
  }
  const Job& of(const Stage& stage) const { return jobs_[index_of(stage)]; }
  const KernelModel& kernel_of(const Job& job, Rank rank) const {
    return class_of_.empty() ? job.kernel() : *job.kernels[class_of_[rank]];
  }
  const KernelModel& kernel_of(const Stage& stage, Rank rank) const {
    return kernel_of(of(stage), rank);
  }
  bool one_device() const { return class_of_.empty(); }
  /// The largest share of a link's bandwidth that any of their kernels makes wire bytes of.
  double link_efficiency() const;

 private:
  const Topology& topology_;
  std::vector<const Device*> devices_;   ///< each once
  std::vector<std::uint32_t> class_of_;  ///< by rank; empty while all have the first
  std::vector<Job> jobs_;
  std::vector<std::uint32_t> job_of_channel_;
};

}  // namespace arlab

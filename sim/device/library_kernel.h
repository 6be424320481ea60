// The vendor's library inside one server, as [library] of the machine's file says (Library). With
// share s of the tensor and what links and channels make of it:
//
//   LL      low_latency_us + steps (latency + s / min(low_latency_efficiency port, channels c))
//   LL128   fixed_us + steps (latency + s / (efficiency port))
//   Simple  simple_us + steps (simple_hop_us + latency + s / (simple_efficiency port)) + drift
//   NVLS    fixed_us + what the switch needs + drift
//   sends   exchange_low_latency_us, each peer at its own rate; exchange_us, + drift
//
//   drift   drift_us, of exchanges exchange_drift_us, times the root of the 10^9 bytes that a rank
//           sends: channels take no notice of each other, and the last one counts
//
// and, at the end of each, what local memory has to do (sim/library/library_plan.h). A program does
// that in its own steps, beside what it sends, as much as codec_overlap says.
#pragma once

#include "sim/device/kernel_model.h"
#include "sim/device/library_choice.h"

namespace arlab {

class LibraryKernel final : public KernelModel {
 public:
  /// `plan` is one that library_plan() has made.
  LibraryKernel(const Device& device, const Plan& plan);

  double launch_us() const override;
  double link_efficiency() const override;
  double rate_cap_gb_per_s(const Stage& stage) const override;
  TimeParts stage_time(const StageCost& cost) const override;

 private:
  StageCost cost_without_measuring(const Stage& stage) const override;
  TimeParts time_without_measuring(const Stage& stage, const StageCost& cost,
                                   const PlannedMessage& message, double network_us,
                                   double link_gb_per_s) const override;
  bool measures() const override { return false; }

  double fixed_us() const;
  double efficiency_of_protocol() const;
  /// True for a ring and a program, which advance step by step.
  bool in_steps() const {
    return choice_.algorithm == LibraryAlgorithm::ring ||
           choice_.algorithm == LibraryAlgorithm::program;
  }

  const Library& library_;
  LibraryChoice choice_;
  double drift_us_ = 0;
};

}  // namespace arlab

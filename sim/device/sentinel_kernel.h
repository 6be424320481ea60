// arlab's kernels with sentinel slots ([sentinels]; kernels/PROTOCOL.md): wires need no flags, so
// blocks never wait for what they have sent. Messages of all stages travel side by side, and blocks
// take items, of k tiles of every chunk, in turn. A plan with S stages that send takes:
//
//   latency    S (step_us + access_us * (accesses - 1)) + tile_us_per_op * k * operations of a tile's latency / m
//   accesses   of 16 bytes, of each of 256 threads in a turn: peers * k * bytes of a tile's wire
//   wire       as the network says, of what all stages send together
//   work       all operations of the rank / codec_gops_per_s
//   fill       (S * fill_us + turn_cost * work / turns) (1 - exp(-(turns - 1) / fill_turns)), with
//              more than one turn: items / resident blocks. What it takes to fill and to empty the pipeline.
//   message    latency + max(wire, work) + fill, and the latency of links S times
//
// With a scale of the message, steps follow each other: each has its own wire, work and fill, and measuring before them.
//
// The form was found with 2 and 4 H200 in view (sim/KERNELS.md has its errors).
#pragma once

#include <vector>

#include "reference/device_facts/two_passes.h"
#include "sim/device/own_kernels.h"

namespace arlab {

class SentinelKernel final : public OwnKernelModel {
 public:
  SentinelKernel(const Device& device, const Plan& plan);

  double launch_us() const override { return device_.sentinels->launch_us.value; }
  std::uint32_t steps_side_by_side() const override {
    return measures_first(plan_.cost) ? 0 : steps_;
  }
  TimeParts stage_time(const StageCost& cost) const override;

 private:
  StageCost cost_without_measuring(const Stage& stage) const override;
  TimeParts time_without_measuring(const Stage& stage, const StageCost& cost,
                                   const PlannedMessage& message, double network_us,
                                   double link_gb_per_s) const override;

  /// Returns the cost of stages that together send in so many steps.
  StageCost cost_of_steps(const Stage& sum, double steps) const;
  /// Sums are measured where they are added up: written, and read again.
  double passes_to_measure(bool of_sums) const override { return of_sums ? 2 : 1; }

  std::uint32_t steps_;
  std::uint32_t tiles_of_item_ = 1;
  double accesses_ = 1;
  double turns_ = 1;
  std::vector<StageCost> of_rank_;
};

}  // namespace arlab

// arlab's own kernels, whose blocks are known ([blocks]): flags in rounds, and those of small
// tensors. m is the largest message of the plan, in elements.
//
//   blocks     m / tile_elements, at most `resident`
//   operations [times unpacked_cost, if the codec is not packed; spikes_cost; fp8_cost]
//              those of decoding what is received decode_cost times
//
// In rounds:
//
//   rounds R   what a rank sends a peer / (resident * slot_bytes), at least 1
//   flags      step_us + release_us * blocks + message_us * (peers + extra flags)
//   load       load_us * what is loaded / m
//   first tile codec_tile_us_per_op * operations of the stage / m
//   stage      flags + ((load + first tile) (+) (work / R (+) wire / R))
//              + (1 - 1/R) (wire (+) share), share: of all work of the rank, by bytes sent
//   gather     after what comes in exchange: (load + first tile) (+) work / R
//
// One round is worked through step by step; of several the wire of one hides the work of others,
// whichever stage it belongs to.
//
// Small ([small]), one tile per block:
//
//   flags      step_us + message_us * (further peers)
//              + crowding_us * peers * (blocks / spread_blocks - 1)^0.3
//   stage      flags + tile_us_per_op * operations of the stage / m + wire_cost * wire
//   gather     tile_us_per_op * operations / m
#pragma once

#include <vector>

#include "sim/device/kernel_model.h"

namespace arlab {

/// What all kernels have in common that are arlab's own.
class OwnKernelModel : public KernelModel {
 protected:
  OwnKernelModel(const Device& device, const Plan& plan);

  double operations(const CodecCost& cost, const CodecWork& work) const override;
  using KernelModel::operations;

  double largest_message_ = 1;  ///< elements
  double tiles_ = 1;            ///< tiles of that message

 private:
  double cost_of_an_operation(const std::string& codec, const CodecCost& cost) const;

  double outer_cost_;
  double inner_cost_;
};

class RoundsKernel final : public OwnKernelModel {
 public:
  RoundsKernel(const Device& device, const Plan& plan);

  double gather_us(const Stage& stage) const override;
  TimeParts stage_time(const StageCost& cost) const override;

 private:
  StageCost cost_without_measuring(const Stage& stage) const override;
  TimeParts time_without_measuring(const Stage& stage, const StageCost& cost,
                                   const PlannedMessage& message, double network_us,
                                   double link_gb_per_s) const override;
  double first_tile_us(const Stage& stage) const;

  double blocks_;                        ///< blocks of the kernel
  std::vector<double> rounds_;           ///< by rank
  std::vector<double> work_us_by_byte_;  ///< by rank: all of its work / bytes that it sends
};

class SmallKernel final : public OwnKernelModel {
 public:
  SmallKernel(const Device& device, const Plan& plan);

  double launch_us() const override { return device_.small->launch_us.value; }
  double gather_us(const Stage& stage) const override;
  TimeParts stage_time(const StageCost& cost) const override;

 private:
  StageCost cost_without_measuring(const Stage& stage) const override;
  TimeParts time_without_measuring(const Stage& stage, const StageCost& cost,
                                   const PlannedMessage& message, double network_us,
                                   double link_gb_per_s) const override;
  double tile_us(const Stage& stage) const;

  double crowding_us_;  ///< per peer
};

}  // namespace arlab

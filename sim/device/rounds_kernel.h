// arlab's own kernels, whose blocks are known ([blocks]): flags in rounds, and those of small
// tensors. m is the largest message of the plan, in elements.
//
//   blocks     m / tile_elements, at most `resident`
//   operations instructions per element (Device::codecs; without, CodecCost), those of decoding what is received decode_cost
//              times: times `slots` where blocks are many, times `cycles` in a tile's latency
//
// In rounds:
//
//   rounds R   what a rank sends a peer / (resident * slot_bytes), at least 1
//   flags      step_us + release_us * blocks + message_us * (peers + extra flags); of a program, phase_us
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
//   stage      flags + tile_us_per_op * operations of the stage / m + work_cost * work + wire_cost * wire / steps
//   gather     tile_us_per_op * operations / m + work_cost * work
//
// since what one block sends hides behind what others wait for.
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
  /// Of the latency of a tile.
  double tile_operations(const Stage& stage) const;

  double largest_message_ = 1;  ///< elements
  double tiles_ = 1;            ///< tiles of that message

 private:
  /// Per element.
  struct Operations {
    double encode = 0;
    double decode = 0;
    double slots = 1;
    double cycles = 1;
  };
  Operations operations_of(const std::string& codec, const CodecCost& cost) const;
  double counted(const Operations& per_element, const CodecWork& work) const;
  double fixed_measure_us(bool of_sums) const override;

  Operations outer_;
  Operations inner_;
};

class RoundsKernel final : public OwnKernelModel {
 public:
  RoundsKernel(const Device& device, const Plan& plan, double phase_us);

  double gather_us(const Stage& stage) const override;
  TimeParts stage_time(const StageCost& cost) const override;

 private:
  StageCost cost_without_measuring(const Stage& stage) const override;
  TimeParts time_without_measuring(const Stage& stage, const StageCost& cost,
                                   const PlannedMessage& message, double network_us,
                                   double link_gb_per_s) const override;
  double first_tile_us(const Stage& stage) const;

  double phase_us_;                      ///< per stage that sends
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
  /// A block measures what it has in registers.
  double passes_to_measure(bool) const override { return 0; }

  std::uint32_t steps_ = 1;
};

}  // namespace arlab

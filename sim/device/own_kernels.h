// arlab's own kernels, whose blocks are known ([blocks]): flags, for algorithms that have kernels of their own
// and for programs; and those of small tensors. m is the largest chunk of the plan, in elements.
//
//   blocks     m / tile_elements, at most `resident`; turns: tiles of a chunk for each of them
//   operations instructions per element (Device::codecs; without, CodecCost), those of decoding what is received decode_cost
//              times: times `slots` where blocks are many, times `cycles` in a tile's latency; there at least
//              what plain values of as many bytes of wire take, whose loads it waits for, too
//
// With flags, where a block does one piece of work after the other:
//
//   flags      step_us + release_us * blocks + message_us * (peers + extra flags); of a program, phase_us more
//   tile       (load_us * what is loaded + codec_tile_us_per_op * operations of the stage) / m
//   others     the longer of (turns - 1) * tile, with a codec, and all operations / codec_gops_per_s
//   stage      flags + (tile (+) the longer of (wire (+) others) and what memory takes)
//   gather     after what comes in exchange: tile (+) others, or memory
//
// A program goes phase by phase (in_lock_step()), so nothing of a phase hides in another.
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

/// Common base of arlab's own kernels.
class OwnKernelModel : public KernelModel {
 protected:
  OwnKernelModel(const Device& device, const Plan& plan, bool is_program = false);

  double operations(const CodecCost& cost, const CodecWork& work) const override;
  using KernelModel::operations;
  /// Returns the operations in the latency of a tile.
  double tile_operations(const Stage& stage) const;

  double chunk_of(const Stage& stage) const;  ///< elements of its largest
  double tiles_of(double elements) const;

  double chunk_;  ///< elements of the largest
  double tiles_;  ///< in the stage

 private:
  /// Per element.
  struct Operations {
    double encode = 0;
    double decode = 0;
    double slots = 1;
    double cycles = 1;
  };
  Operations operations_of(const std::string& codec, const CodecCost& cost, bool is_program) const;
  /// In the latency of a tile: it waits for what it loads, so at least as long as plain values of as many bytes.
  Operations in_a_tile(const Operations& codec) const;
  double counted(const Operations& per_element, const CodecWork& work) const;
  double fixed_measure_us(bool of_sums) const override;

  Operations outer_;
  Operations inner_;
  Operations outer_tile_;
  Operations inner_tile_;
};

class FlagsKernel final : public OwnKernelModel {
 public:
  FlagsKernel(const Device& device, const Plan& plan, bool is_program);

  bool waits_in_each_step() const override { return is_program_; }
  double gather_us(const Stage& stage) const override;
  TimeParts stage_time(const StageCost& cost) const override;

 private:
  StageCost cost_without_measuring(const Stage& stage) const override;
  TimeParts time_without_measuring(const Stage& stage, const StageCost& cost,
                                   const PlannedMessage& message, double network_us,
                                   double link_gb_per_s) const override;
  /// A block's, one piece of work after the other.
  double first_tile_us(const Stage& stage) const;
  /// The others, beside the wire.
  double other_tiles_us(const Stage& stage) const;

  bool is_program_;
  double blocks_;  ///< in the kernel
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

// Kernels of which the machine's file says no more than costs: fused ones.
//
//   latency   step_us + message_us * (peers + extra flags)                        flags
//           + codec_tile_us_per_op * (ops per element + codec_tile_fixed_ops)     first tile
//   wire      as the network says, + contention of stores at the sender
//   release   release_us * g(tiles, release_coalescing_tiles)
//   stage     latency (+) max(wire (+) work, release)
//
// where a (+) b = (a^p + b^p)^(1/p) with the overlap p of the two, and
// g(x, n) = n (sqrt(1 + 2 x/n) - 1) is x for x << n and grows as its root beyond.
//
//   contention   c (H(peers) - 1) g(sqrt(v^2 + w^2) - w, decorrelation_packets) packets, where v
//                are the packets of a message that resident tiles make, w those that travel freely,
//                and H(n) - 1 = 1/2 + ... + 1/n is how much longer than the mean the slowest of n
//                exponential times takes: 0 for one peer
//
// The first tile of a stage takes the operations of the codec that it encodes with and of the one
// that it decodes with; of the more expensive one, where it does so with both. Where bf16_tile_cost is
// given, an operation on bf16 takes that many times as long there, and a sum is an operation.
//
// The terms and their constants were found on MK1 QuickReduce's tables; sim/README.md says how far
// the model is from them and from others.
#pragma once

#include "sim/device/kernel_model.h"

namespace arlab {

class FusedKernel : public KernelModel {
 public:
  FusedKernel(const Device& device, const Plan& plan) : KernelModel(device, plan) {}

  double link_efficiency() const override;
  std::uint64_t link_bytes(const PlannedMessage& message) const override;
  bool knows_contention() const override { return device_.stores.has_value(); }
  TimeParts stage_time(const StageCost& cost) const override;

 protected:
  StageCost cost_without_measuring(const Stage& stage) const override;
  TimeParts time_without_measuring(const Stage& stage, const StageCost& cost,
                                   const PlannedMessage& message, double network_us,
                                   double link_gb_per_s) const override;
  virtual double latency_overlap() const { return device_.latency_overlap.value; }

 private:
  double first_tile_operations(const Stage& stage) const;
  bool uses_codec(const PlannedMessage& message) const;
  double tiles_of(const Stage& stage) const;
  double contention_us(const Stage& stage, const PlannedMessage& message,
                       double link_gb_per_s) const;
};

}  // namespace arlab

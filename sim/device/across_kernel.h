// NCCL or RCCL across servers (sim/library/servers.h), whose plans say the longest way of a chunk.
#pragma once

#include "sim/device/kernel_model.h"
#include "sim/device/library_choice.h"

namespace arlab {

/// Whether the library of the device has this protocol across servers.
bool runs_across(const Device& device, LibraryProtocol protocol);

/// The share of the links' bandwidth that is payload.
double efficiency_across(const Device& device, const LibraryChoice& choice);

/// A message over the network, of a collective of `bytes`, beyond the latency of its links.
double hop_us_across(const LibraryNetwork& network, LibraryProtocol protocol, Rank per_server,
                     double bytes);

/// All that a collective of `bytes` takes beside its bytes on the wire.
double fixed_us_across(const Device& device, const LibraryChoice& choice, const LongestWay& way,
                       double bytes);

class AcrossKernel final : public KernelModel {
 public:
  /// `plan` is one that plan_across() has made.
  AcrossKernel(const Device& device, const Plan& plan) : KernelModel(device, plan) {}

  double launch_us() const override;
  double link_efficiency() const override { return efficiency_across(device_, *plan_.library); }
  TimeParts stage_time(const StageCost& cost) const override { return {.codec_us = cost.work_us}; }

 private:
  StageCost cost_without_measuring(const Stage& stage) const override {
    return {.work_us = work_us(stage)};
  }
  TimeParts time_without_measuring(const Stage&, const StageCost&, const PlannedMessage&,
                                   double network_us, double) const override {
    return {.wire_us = network_us};
  }
  bool measures() const override { return false; }
};

}  // namespace arlab

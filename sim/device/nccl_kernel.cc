#include "sim/device/nccl_kernel.h"

#include <algorithm>
#include <cmath>

namespace arlab {

NcclKernel::NcclKernel(const Device& device, const Plan& plan)
    : KernelModel(device, plan), nccl_(*device.nccl), choice_(*plan.nccl) {
  if (choice_.protocol != NcclProtocol::simple) return;
  double sent = 0;  // by rank 0, as all do the same
  for (const PlannedMessage& message : plan.messages) {
    if (message.from == 0) sent += static_cast<double>(message.bytes);
  }
  const bool exchanges = choice_.algorithm == NcclAlgorithm::exchange;
  drift_us_ = (exchanges ? nccl_.exchange_drift_us : nccl_.drift_us).value * std::sqrt(sent / 1e9);
}

double NcclKernel::launch_us() const {
  if (choice_.algorithm == NcclAlgorithm::nvls) return nccl_.nvls->fixed_us.value;
  const bool low_latency = choice_.protocol == NcclProtocol::low_latency;
  if (choice_.algorithm == NcclAlgorithm::exchange) {
    return low_latency ? nccl_.exchange_low_latency_us.value : nccl_.exchange_us.value;
  }
  if (choice_.protocol == NcclProtocol::ll128) return nccl_.ll128->fixed_us.value;
  return low_latency ? nccl_.low_latency_us.value : nccl_.simple_us.value;
}

double NcclKernel::link_efficiency() const {
  if (choice_.protocol == NcclProtocol::simple) return 1;
  return choice_.protocol == NcclProtocol::ll128 ? nccl_.ll128->efficiency.value
                                                 : nccl_.low_latency_efficiency.value;
}

double NcclKernel::rate_cap_gb_per_s(const Stage&) const {
  if (choice_.protocol != NcclProtocol::low_latency) {
    const double most = nccl_.exchange_gb_per_s.value;
    return choice_.algorithm == NcclAlgorithm::exchange && most > 0 ? most : kNoRateCap;
  }
  if (choice_.algorithm == NcclAlgorithm::exchange)
    return nccl_.exchange_low_latency_gb_per_s.value;
  return nccl_.low_latency_channel_gb_per_s.value *
         nccl_low_latency_channels(nccl_, plan_.world_size, plan_.elements * size_of(plan_.dtype));
}

StageCost NcclKernel::cost_without_measuring(const Stage& stage) const {
  StageCost cost;
  cost.work_us = work_us(stage);
  if (stage.messages == 0) {
    cost.flags_us = drift_us_;
  } else if (choice_ == NcclChoice{NcclAlgorithm::ring, NcclProtocol::simple}) {
    cost.flags_us = nccl_.simple_hop_us.value;
  }
  return cost;
}

TimeParts NcclKernel::stage_time(const StageCost& cost) const {
  return {.synchronisation_us = cost.flags_us, .codec_us = cost.work_us};
}

TimeParts NcclKernel::time_without_measuring(const Stage&, const StageCost& cost,
                                             const PlannedMessage&, double network_us,
                                             double) const {
  return {.synchronisation_us = cost.flags_us, .wire_us = network_us};
}

}  // namespace arlab

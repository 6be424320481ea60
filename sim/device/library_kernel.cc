#include "sim/device/library_kernel.h"

#include <algorithm>
#include <cmath>

#include "sim/device/times.h"

namespace arlab {
namespace {

/// Share of the links' bandwidth that is left where bytes go through memory of the host: 27.3 GB/s of 46.4
/// (rtx5090_4_allreduce_us.csv).
constexpr double kThroughHost = 0.59;

}  // namespace

LibraryKernel::LibraryKernel(const Device& device, const Plan& plan)
    : KernelModel(device, plan), library_(*device.library), choice_(*plan.library) {
  if (choice_.protocol != LibraryProtocol::simple) return;
  double sent = 0;  // by rank 0, as all do the same
  for (const PlannedMessage& message : plan.messages) {
    if (message.from == 0) sent += static_cast<double>(message.bytes);
  }
  const bool exchanges = choice_.algorithm == LibraryAlgorithm::exchange;
  drift_us_ =
      (exchanges ? library_.exchange_drift_us : library_.drift_us).value * std::sqrt(sent / 1e9);
}

double LibraryKernel::launch_us() const {
  return std::max(fixed_us(), library_.host_floor_us.value);
}

double LibraryKernel::fixed_us() const {
  if (choice_.algorithm == LibraryAlgorithm::nvls) return library_.nvls->fixed_us.value;
  const bool low_latency = choice_.protocol == LibraryProtocol::low_latency;
  if (choice_.algorithm == LibraryAlgorithm::exchange) {
    return low_latency ? library_.exchange_low_latency_us.value : library_.exchange_us.value;
  }
  if (choice_.protocol == LibraryProtocol::ll128) return library_.ll128->fixed_us.value;
  if (low_latency && choice_.algorithm == LibraryAlgorithm::program) {
    const double share =
        static_cast<double>(plan_.elements * size_of(plan_.dtype)) / plan_.world_size;
    if (share <= library_.small_max_bytes.value) return library_.small_us.value;
  }
  return low_latency ? library_.low_latency_us.value : library_.simple_us.value;
}

double LibraryKernel::link_efficiency() const {
  return (library_.peer_to_peer ? 1 : kThroughHost) * efficiency_of_protocol();
}

double LibraryKernel::efficiency_of_protocol() const {
  if (choice_.protocol == LibraryProtocol::simple) {
    return in_steps() ? library_.simple_efficiency.value : 1;
  }
  return choice_.protocol == LibraryProtocol::ll128 ? library_.ll128->efficiency.value
                                                    : library_.low_latency_efficiency.value;
}

double LibraryKernel::rate_cap_gb_per_s(const Stage&) const {
  const bool exchanges = choice_.algorithm == LibraryAlgorithm::exchange;
  double most = 0;
  if (choice_.protocol == LibraryProtocol::low_latency) {
    const std::uint64_t bytes = plan_.elements * size_of(plan_.dtype);
    most = exchanges ? library_.exchange_low_latency_gb_per_s.value
                     : library_.low_latency_channel_gb_per_s.value *
                           low_latency_channels(library_, plan_.world_size, bytes) / plan_.channels;
  } else if (exchanges) {
    most = library_.exchange_gb_per_s.value;
  }
  return most > 0 ? most : kNoRateCap;
}

StageCost LibraryKernel::cost_without_measuring(const Stage& stage) const {
  StageCost cost;
  cost.work_us = work_us(stage);
  if (stage.messages == 0) {
    cost.flags_us = drift_us_;
  } else if (in_steps() && choice_.protocol == LibraryProtocol::simple) {
    const double flags = 1.0 + stage.messages + stage.extra_flags;
    cost.flags_us = library_.simple_hop_us.value * flags / 2;
  }
  return cost;
}

TimeParts LibraryKernel::stage_time(const StageCost& cost) const {
  return {.synchronisation_us = cost.flags_us, .codec_us = cost.work_us};
}

TimeParts LibraryKernel::time_without_measuring(const Stage&, const StageCost& cost,
                                                const PlannedMessage&, double network_us,
                                                double) const {
  const double moved_us = overlapped(network_us, cost.work_us, device_.codec_overlap.value);
  return {.synchronisation_us = cost.flags_us,
          .wire_us = network_us,
          .codec_us = moved_us - network_us};
}

}  // namespace arlab

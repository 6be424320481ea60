#include "sim/device/across_kernel.h"

#include <algorithm>

#include "sim/device/times.h"

namespace arlab {
namespace {

struct ProtocolTimes {
  double fixed_us = 0;
  double hop_us = 0;  ///< inside a server, beyond the latency of its links
};

ProtocolTimes times_of(const Device& device, const NcclChoice& choice) {
  const bool low_latency = choice.protocol == NcclProtocol::low_latency;
  if (!device.nccl) {
    const Library& library = *device.library;
    if (low_latency) return {library.low_latency_us.value};
    // A message is sent and another one awaited.
    return {library.simple_us.value, 2 * library.simple_message_us.value};
  }
  const Nccl& nccl = *device.nccl;
  switch (choice.algorithm) {
    case NcclAlgorithm::nvls:
      return {nccl.nvls->fixed_us.value};
    case NcclAlgorithm::exchange:
      return {low_latency ? nccl.exchange_low_latency_us.value : nccl.exchange_us.value};
    case NcclAlgorithm::ring:
    case NcclAlgorithm::tree:
      break;
  }
  if (choice.protocol == NcclProtocol::ll128) return {nccl.ll128->fixed_us.value};
  if (low_latency) return {nccl.low_latency_us.value};
  return {nccl.simple_us.value, nccl.simple_hop_us.value};
}

LibraryNetwork network_of(const Device& device) {
  return device.network.value_or(LibraryNetwork());
}

}  // namespace

bool runs_across(const Device& device, NcclProtocol protocol) {
  return protocol != NcclProtocol::ll128 ||
         (device.nccl && device.nccl->ll128 && network_of(device).ll128);
}

double efficiency_across(const Device& device, const NcclChoice& choice) {
  if (choice.protocol == NcclProtocol::simple) return 1;
  if (choice.protocol == NcclProtocol::ll128) return device.nccl->ll128->efficiency.value;
  return device.nccl ? device.nccl->low_latency_efficiency.value
                     : device.library->low_latency_efficiency.value;
}

double fixed_us_across(const Device& device, const NcclChoice& choice, const LongestWay& way,
                       double bytes) {
  const LibraryNetwork network = network_of(device);
  const bool simple = choice.protocol == NcclProtocol::simple;
  const ProtocolTimes times = times_of(device, choice);
  double hop_us = (simple ? network.simple_hop_us : network.low_latency_hop_us).value;
  if (bytes > network.eager_bytes.value) hop_us += network.rendezvous_us.value;
  const bool in_chunks = simple && (choice.algorithm == NcclAlgorithm::tree ||
                                    choice.algorithm == NcclAlgorithm::nvls);
  if (in_chunks) {
    const double channels = (device.nccl ? device.nccl->channels : device.library->channels).value;
    hop_us += time_us(std::min(bytes, channels * network.chunk_bytes.value), way.network_gb_per_s);
  }
  return times.fixed_us + way.latency_us + way.hops_inside * times.hop_us +
         way.hops_between * hop_us;
}

double AcrossKernel::launch_us() const {
  return fixed_us_across(device_, *plan_.nccl, *plan_.longest_way,
                         static_cast<double>(plan_.elements * size_of(plan_.dtype)));
}

}  // namespace arlab

#include "sim/device/across_kernel.h"

namespace arlab {
namespace {

/// Chunks of a channel that are under way at once (NCCL_STEPS).
constexpr double kStepsOfChannel = 8;

struct ProtocolTimes {
  double fixed_us = 0;
  double hop_us = 0;  ///< inside a server, beyond the latency of its links
};

ProtocolTimes times_of(const Device& device, const LibraryChoice& choice) {
  const bool low_latency = choice.protocol == LibraryProtocol::low_latency;
  const Library& library = *device.library;
  switch (choice.algorithm) {
    case LibraryAlgorithm::nvls:
      return {library.nvls->fixed_us.value};
    case LibraryAlgorithm::exchange:
      return {low_latency ? library.exchange_low_latency_us.value : library.exchange_us.value};
    case LibraryAlgorithm::ring:
    case LibraryAlgorithm::tree:
    case LibraryAlgorithm::program:
      break;
  }
  if (choice.protocol == LibraryProtocol::ll128) return {library.ll128->fixed_us.value};
  if (low_latency) return {library.low_latency_us.value};
  return {library.simple_us.value, library.simple_hop_us.value};
}

}  // namespace

bool runs_across(const Device& device, LibraryProtocol protocol) {
  const Library& library = *device.library;
  return protocol != LibraryProtocol::ll128 || (library.ll128 && library.network.ll128);
}

double efficiency_across(const Device& device, const LibraryChoice& choice) {
  if (choice.protocol == LibraryProtocol::simple) return 1;
  if (choice.protocol == LibraryProtocol::ll128) return device.library->ll128->efficiency.value;
  return device.library->low_latency_efficiency.value;
}

double hop_us_across(const LibraryNetwork& network, LibraryProtocol protocol, Rank per_server,
                     double bytes) {
  const Quantity& of_protocol =
      protocol == LibraryProtocol::simple ? network.simple_hop_us : network.low_latency_hop_us;
  const double floor_us = is_given(of_protocol) ? of_protocol.value : hop_floor_of(network).value;
  const double asking_us = is_given(network.rendezvous_us)
                               ? network.rendezvous_us.value
                               : network.rendezvous_hops.value * floor_us;
  const double filling_us = network.fill_hops.value * floor_us;
  const double pipeline = kStepsOfChannel * per_server * network.chunk_bytes.value;
  return floor_us + asking_us * bytes / (bytes + network.eager_bytes.value) +
         filling_us * bytes / (bytes + pipeline);
}

double fixed_us_across(const Device& device, const LibraryChoice& choice, const LongestWay& way,
                       double bytes) {
  const ProtocolTimes times = times_of(device, choice);
  const double hop_us =
      hop_us_across(device.library->network, choice.protocol, way.ranks_per_server, bytes);
  return times.fixed_us + way.latency_us + way.hops_inside * times.hop_us +
         way.hops_between * hop_us;
}

double AcrossKernel::launch_us() const {
  return fixed_us_across(device_, *plan_.library, *plan_.longest_way,
                         static_cast<double>(plan_.elements * size_of(plan_.dtype)));
}

}  // namespace arlab

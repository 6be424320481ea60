#include "sim/device/across_kernel.h"

#include <algorithm>

#include "sim/device/times.h"

namespace arlab {
namespace {

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

double fixed_us_across(const Device& device, const LibraryChoice& choice, const LongestWay& way,
                       double bytes) {
  const LibraryNetwork& network = device.library->network;
  const bool simple = choice.protocol == LibraryProtocol::simple;
  const ProtocolTimes times = times_of(device, choice);
  double hop_us = (simple ? network.simple_hop_us : network.low_latency_hop_us).value;
  if (bytes > network.eager_bytes.value) hop_us += network.rendezvous_us.value;
  const bool in_chunks = simple && (choice.algorithm == LibraryAlgorithm::tree ||
                                    choice.algorithm == LibraryAlgorithm::nvls);
  if (in_chunks) {
    const double channels = device.library->channels.value;
    hop_us += time_us(std::min(bytes, channels * network.chunk_bytes.value), way.network_gb_per_s);
  }
  return times.fixed_us + way.latency_us + way.hops_inside * times.hop_us +
         way.hops_between * hop_us;
}

double AcrossKernel::launch_us() const {
  return fixed_us_across(device_, *plan_.library, *plan_.longest_way,
                         static_cast<double>(plan_.elements * size_of(plan_.dtype)));
}

}  // namespace arlab

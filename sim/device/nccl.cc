#include "sim/device/nccl.h"

#include <algorithm>
#include <limits>

namespace arlab {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kMostExchangedByLl = 32768;  // to a peer
constexpr double kNvlsUs = 25;
constexpr double kLlBytesPerChannel = 4096;  // 512 threads, 8 bytes each

/// What NCCL itself takes a ring's times for, by protocol.
struct Guess {
  double fixed_us;
  double hop_us;
  double gb_per_s;
};

Guess guess_of(const Nccl& nccl, NcclProtocol protocol) {
  const bool nvlink = nccl.ll128.has_value();
  const double ring = nccl.ring_gb_per_s.value;
  switch (protocol) {
    case NcclProtocol::low_latency:
      return {6.6, nvlink ? 0.6 : 1.0, std::min(ring / 2, nccl.low_latency_ring_gb_per_s.value)};
    case NcclProtocol::ll128:
      return {14.0, nvlink ? 1.9 : kForever, 0.92 * ring};
    case NcclProtocol::simple:
      break;
  }
  return {8.4, nvlink ? 3.4 : 5.7, ring};
}

/// 10^9 bytes/s are 10^3 bytes per microsecond.
double time_us(double bytes, double gb_per_s) { return bytes / (gb_per_s * 1e3); }

double nvls_guess_us(const Nccl& nccl, Rank world_size, double bytes) {
  const double n = world_size;
  const double ports = std::min(nccl.ring_gb_per_s.value, n * nccl.nvls->port_gb_per_s.value);
  const double bus = 2 * nccl.nvls->expected_efficiency.value * ports * (n - 1) / n;
  return kNvlsUs + time_us(bytes * 2 * (n - 1) / n, bus);
}

std::string_view name_of(NcclProtocol protocol) {
  switch (protocol) {
    case NcclProtocol::low_latency:
      return "LL";
    case NcclProtocol::ll128:
      return "LL128";
    case NcclProtocol::simple:
      break;
  }
  return "Simple";
}

}  // namespace

std::string describe(const NcclChoice& choice) {
  switch (choice.algorithm) {
    case NcclAlgorithm::nvls:
      return "NVLS";
    case NcclAlgorithm::exchange:
      return fmt::format("sends and receives, {}", name_of(choice.protocol));
    case NcclAlgorithm::tree:
      return fmt::format("tree, {}", name_of(choice.protocol));
    case NcclAlgorithm::ring:
      break;
  }
  return fmt::format("ring, {}", name_of(choice.protocol));
}

NcclChoice nccl_choice(const Device& device, Collective collective, Rank world_size,
                       std::uint64_t bytes, std::optional<NcclAlgorithm> algorithm) {
  using enum NcclAlgorithm;
  const Nccl& nccl = *device.nccl;
  const bool all_reduce = collective == Collective::all_reduce;
  if (collective == Collective::all_to_all) {
    const bool small = bytes / world_size <= kMostExchangedByLl;
    return {exchange, small ? NcclProtocol::low_latency : NcclProtocol::simple};
  }
  if (!all_reduce && collective != Collective::all_gather &&
      collective != Collective::reduce_scatter) {
    fail(
        "NCCL is not modelled for this collective: allowed are all_reduce, all_gather, "
        "reduce_scatter, all_to_all");
  }
  if (algorithm == nvls && !nccl.nvls) {
    fail(
        "device '{}': NCCL has no NVLS there; that takes a section [nccl_nvls], and a switch with "
        "multicast and reduction",
        device.name);
  }
  const double n = world_size;
  const double steps = (all_reduce ? 2 : 1) * (n - 1);
  NcclChoice best;
  double least = kForever;
  for (const auto protocol :
       {NcclProtocol::low_latency, NcclProtocol::ll128, NcclProtocol::simple}) {
    const Guess guess = guess_of(nccl, protocol);
    const double us = guess.fixed_us + (steps > 0 ? steps * guess.hop_us : 0) +
                      time_us(static_cast<double>(bytes) * steps / n, guess.gb_per_s);
    if (us >= least) continue;
    least = us;
    best.protocol = protocol;
  }
  const bool may_nvls = all_reduce && nccl.nvls && world_size > 2 && algorithm != ring;
  if (algorithm == nvls ||
      (may_nvls && nvls_guess_us(nccl, world_size, static_cast<double>(bytes)) < least)) {
    return {nvls, NcclProtocol::simple};
  }
  return best;
}

double nccl_low_latency_channels(const Nccl& nccl, Rank world_size, std::uint64_t bytes) {
  const double worth_while = static_cast<double>(bytes) / (kLlBytesPerChannel * world_size);
  return std::clamp(worth_while, 1.0, nccl.channels.value);
}

}  // namespace arlab

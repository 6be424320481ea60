#include "sim/device/library_choice.h"

#include <algorithm>
#include <limits>

#include "sim/device/times.h"

namespace arlab {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr double kLlBytesPerChannel = 4096;  // 512 threads, 8 bytes each

/// NCCL's own assumption of a ring's times, by protocol.
struct Guess {
  double fixed_us;
  double hop_us;
  double gb_per_s;
};

Guess guess_of(const Library& library, LibraryProtocol protocol) {
  const double ring = library.ring_gb_per_s.value;
  switch (protocol) {
    case LibraryProtocol::low_latency:
      return {library.expected_low_latency_us.value, library.expected_low_latency_hop_us.value,
              std::min(ring / 2, library.low_latency_ring_gb_per_s.value)};
    case LibraryProtocol::ll128:
      return {library.ll128 ? library.expected_ll128_us.value : kForever,
              library.expected_ll128_hop_us.value, 0.92 * ring};
    case LibraryProtocol::simple:
      break;
  }
  return {library.expected_simple_us.value, library.expected_simple_hop_us.value, ring};
}

double nvls_guess_us(const Library& library, Rank world_size, double bytes) {
  const double n = world_size;
  const double ports = std::min(library.ring_gb_per_s.value, n * library.nvls->port_gb_per_s.value);
  const double bus = 2 * library.nvls->expected_efficiency.value * ports * (n - 1) / n;
  return library.nvls->expected_us.value + time_us(bytes * 2 * (n - 1) / n, bus);
}

LibraryProtocol by_limit(const Library& library, Rank world_size, std::uint64_t bytes) {
  const double share = static_cast<double>(bytes) / world_size;
  return share <= library.low_latency_max_bytes.value ? LibraryProtocol::low_latency
                                                      : LibraryProtocol::simple;
}

std::string_view name_of(LibraryProtocol protocol) {
  switch (protocol) {
    case LibraryProtocol::low_latency:
      return "LL";
    case LibraryProtocol::ll128:
      return "LL128";
    case LibraryProtocol::simple:
      break;
  }
  return "Simple";
}

}  // namespace

std::string describe(const LibraryChoice& choice) {
  switch (choice.algorithm) {
    case LibraryAlgorithm::nvls:
      return "NVLS";
    case LibraryAlgorithm::exchange:
      return fmt::format("sends and receives, {}", name_of(choice.protocol));
    case LibraryAlgorithm::tree:
      return fmt::format("tree, {}", name_of(choice.protocol));
    case LibraryAlgorithm::program:
      return std::string(name_of(choice.protocol));
    case LibraryAlgorithm::ring:
      break;
  }
  return fmt::format("ring, {}", name_of(choice.protocol));
}

LibraryChoice library_choice(const Device& device, Collective collective, Rank world_size,
                             std::uint64_t bytes, std::optional<LibraryAlgorithm> algorithm) {
  using enum LibraryAlgorithm;
  const Library& library = *device.library;
  const bool all_reduce = collective == Collective::all_reduce;
  if (algorithm == program) {
    if (!library.chooses_by_expectation()) return {program, by_limit(library, world_size, bytes)};
    fail(
        "device '{}': NCCL runs no schedules but its own; allowed with --library are ring, {}"
        "all_gather, reduce_scatter, all_to_all",
        device.name, library.nvls ? "nvls, " : "");
  }
  if (collective == Collective::all_to_all) {
    if (!library.chooses_by_expectation()) return {exchange, by_limit(library, world_size, bytes)};
    const bool small = bytes / world_size <= kMostExchangedByLl;
    return {exchange, small ? LibraryProtocol::low_latency : LibraryProtocol::simple};
  }
  if (!all_reduce && collective != Collective::all_gather &&
      collective != Collective::reduce_scatter) {
    fail(
        "the vendor's library is not modelled for this collective: allowed are all_reduce, "
        "all_gather, reduce_scatter, all_to_all");
  }
  if (algorithm == nvls && !library.nvls) {
    fail(
        "device '{}': no NVLS is known of it; that takes a section [library.nvls], and a switch "
        "with multicast and reduction",
        device.name);
  }
  if (!library.chooses_by_expectation() && algorithm != nvls) {
    return {ring, by_limit(library, world_size, bytes)};
  }
  const double n = world_size;
  const double steps = (all_reduce ? 2 : 1) * (n - 1);
  LibraryChoice best;
  double least = kForever;
  for (const auto protocol :
       {LibraryProtocol::low_latency, LibraryProtocol::ll128, LibraryProtocol::simple}) {
    const Guess guess = guess_of(library, protocol);
    const double us = guess.fixed_us + (steps > 0 ? steps * guess.hop_us : 0) +
                      time_us(static_cast<double>(bytes) * steps / n, guess.gb_per_s);
    if (us >= least) continue;
    least = us;
    best.protocol = protocol;
  }
  const bool may_nvls = all_reduce && library.nvls && world_size > 2 && algorithm != ring;
  if (algorithm == nvls ||
      (may_nvls && nvls_guess_us(library, world_size, static_cast<double>(bytes)) < least)) {
    return {nvls, LibraryProtocol::simple};
  }
  return best;
}

double low_latency_channels(const Library& library, Rank world_size, std::uint64_t bytes) {
  const double worth_while = static_cast<double>(bytes) / (kLlBytesPerChannel * world_size);
  return std::clamp(worth_while, 1.0, library.channels.value);
}

}  // namespace arlab

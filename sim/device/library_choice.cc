#include "sim/device/library_choice.h"

#include <algorithm>
#include <limits>

#include "sim/device/times.h"

namespace arlab {
namespace {

constexpr double kLlBytesPerChannel = 4096;  // 512 threads, 8 bytes each

/// What NCCL itself expects of one of its ways: a fixed time, and one that grows with the bytes of a rank.
struct Expected {
  LibraryChoice choice;
  double fixed_us = 0;
  double us_per_byte = 0;

  double us(double bytes) const { return fixed_us + bytes * us_per_byte; }
};

/// Rings of as many steps as the collective takes, by each protocol that there is.
std::vector<Expected> expected_of_rings(const Library& library, bool all_reduce, Rank world_size) {
  const double ring = library.ring_gb_per_s.value;
  const double steps = (all_reduce ? 2 : 1) * (static_cast<double>(world_size) - 1);
  const auto expected = [&](LibraryProtocol protocol, double fixed_us, double hop_us,
                            double gb_per_s) -> Expected {
    return {{LibraryAlgorithm::ring, protocol},
            fixed_us + (steps > 0 ? steps * hop_us : 0),
            time_us(steps / world_size, gb_per_s)};
  };
  std::vector<Expected> all = {
      expected(LibraryProtocol::low_latency, library.expected_low_latency_us.value,
               library.expected_low_latency_hop_us.value,
               std::min(ring / 2, library.low_latency_ring_gb_per_s.value))};
  if (library.ll128.has_value()) {
    all.push_back(expected(LibraryProtocol::ll128, library.expected_ll128_us.value,
                           library.expected_ll128_hop_us.value, 0.92 * ring));
  }
  all.push_back(expected(LibraryProtocol::simple, library.expected_simple_us.value,
                         library.expected_simple_hop_us.value, ring));
  return all;
}

Expected expected_of_nvls(const Library& library, Rank world_size) {
  const double n = world_size;
  const double ports = std::min(library.ring_gb_per_s.value, n * library.nvls->port_gb_per_s.value);
  const double bus = 2 * library.nvls->expected_efficiency.value * ports * (n - 1) / n;
  return {{LibraryAlgorithm::nvls, LibraryProtocol::simple},
          library.nvls->expected_us.value,
          time_us(2 * (n - 1) / n, bus)};
}

/// The one of which the least is expected for so many bytes, then those with which it goes on for more.
std::vector<LibraryChoice> as_bytes_grow(const std::vector<Expected>& all, double bytes) {
  const auto least = [bytes](const Expected& a, const Expected& b) {
    return a.us(bytes) < b.us(bytes);
  };
  const Expected* current = &*std::ranges::min_element(all, least);
  std::vector<LibraryChoice> choices;
  while (current != nullptr) {
    choices.push_back(current->choice);
    const Expected* next = nullptr;
    double at = std::numeric_limits<double>::infinity();
    for (const Expected& other : all) {
      if (!(other.us_per_byte < current->us_per_byte)) continue;
      const double crossing =
          (other.fixed_us - current->fixed_us) / (current->us_per_byte - other.us_per_byte);
      if (crossing >= at) continue;
      at = crossing;
      next = &other;
    }
    current = next;
  }
  return choices;
}

/// LL up to a limit, then Simple.
std::vector<LibraryChoice> up_to_a_limit(LibraryAlgorithm algorithm, bool is_below) {
  std::vector<LibraryChoice> choices;
  if (is_below) choices.push_back({algorithm, LibraryProtocol::low_latency});
  choices.push_back({algorithm, LibraryProtocol::simple});
  return choices;
}

std::vector<LibraryChoice> by_limit(const Library& library, LibraryAlgorithm algorithm,
                                    Rank world_size, std::uint64_t bytes) {
  const double share = static_cast<double>(bytes) / world_size;
  return up_to_a_limit(algorithm, share <= library.low_latency_max_bytes.value);
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

std::vector<LibraryChoice> library_choices(const Device& device, Collective collective,
                                           Rank world_size, std::uint64_t bytes,
                                           std::optional<LibraryAlgorithm> algorithm) {
  using enum LibraryAlgorithm;
  const Library& library = *device.library;
  const bool all_reduce = collective == Collective::all_reduce;
  if (algorithm == program) {
    if (!library.chooses_by_expectation()) return by_limit(library, program, world_size, bytes);
    fail(
        "device '{}': NCCL runs no schedules but its own; allowed with --library are ring, nvls, "
        "all_gather, reduce_scatter, all_to_all",
        device.name);
  }
  if (collective == Collective::all_to_all) {
    if (!library.chooses_by_expectation()) return by_limit(library, exchange, world_size, bytes);
    return up_to_a_limit(exchange, bytes / world_size <= kMostExchangedByLl);
  }
  if (!all_reduce && collective != Collective::all_gather &&
      collective != Collective::reduce_scatter) {
    fail(
        "the vendor's library is not modelled for this collective: allowed are all_reduce, "
        "all_gather, reduce_scatter, all_to_all");
  }
  if (algorithm == nvls && !library.nvls) {
    fail(
        "device '{}': no NVLS is known of it; that takes a section [library.nvls], and a switch with "
        "multicast and reduction",
        device.name);
  }
  if (!library.chooses_by_expectation() && algorithm != nvls) {
    return by_limit(library, ring, world_size, bytes);
  }
  std::vector<Expected> expected;
  if (algorithm != nvls) expected = expected_of_rings(library, all_reduce, world_size);
  const bool may_nvls = all_reduce && library.nvls && world_size > 2 && algorithm != ring;
  if (algorithm == nvls || may_nvls) expected.push_back(expected_of_nvls(library, world_size));
  return as_bytes_grow(expected, static_cast<double>(bytes));
}

LibraryChoice library_choice(const Device& device, Collective collective, Rank world_size,
                             std::uint64_t bytes, std::optional<LibraryAlgorithm> algorithm) {
  return library_choices(device, collective, world_size, bytes, algorithm).front();
}

double low_latency_channels(const Library& library, Rank world_size, std::uint64_t bytes) {
  const double worth_while = static_cast<double>(bytes) / (kLlBytesPerChannel * world_size);
  return std::clamp(worth_while, 1.0, library.channels.value);
}

}  // namespace arlab

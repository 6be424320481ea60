// The vendor's library inside one server. NCCL as its source says that it chooses (2.27 to 2.29:
// src/graph/tuning.cc, src/enqueue.cc, src/transport/nvls.cc) and as measured times say that it
// performs (Library); RCCL likewise, with two exceptions: its choice of a protocol is a limit read off its times
// (low_latency_max_bytes), and it runs programs of MSCCL's in place of rings.
//
// All-reduces, all-gathers and reduce-scatters go round a ring in S steps, S = 2 (n - 1) or n - 1,
// by one of three protocols, or an all-reduce through the switch (NVLS). NCCL takes the one for which
// it expects the least
//
//   fixed + S hop + bytes S / n / bandwidth
//
// where fixed and hop are expected_..._us of the machine's file (NCCL's own numbers of Hopper, if it
// says nothing), the bandwidth is, of r = ring_gb_per_s,
//
//   LL         r / 2, at most low_latency_ring_gb_per_s
//   LL128      0.92 r; over NVLink only
//   Simple     r
//   NVLS       2 expected_efficiency (n - 1) / n min(r, n port_gb_per_s), without hops
//
// An all-to-all is sends and receives, of up to 32 KiB to a peer by LL: that limit is not NCCL's
// source's, it was read off NVIDIA's tables.
#pragma once

#include <optional>

#include "reference/collectives/schedule.h"
#include "sim/device/device.h"

namespace arlab {

/// tree: across servers only (sim/library/servers.h); program: any schedule, as it is written.
enum class LibraryAlgorithm : std::uint8_t { ring, nvls, exchange, tree, program };
enum class LibraryProtocol : std::uint8_t { low_latency, ll128, simple };

/// Bytes to a peer that an all-to-all sends by LL, at most.
inline constexpr std::uint64_t kMostExchangedByLl = 32768;

struct LibraryChoice {
  LibraryAlgorithm algorithm = LibraryAlgorithm::ring;
  LibraryProtocol protocol = LibraryProtocol::simple;
  bool operator==(const LibraryChoice&) const = default;
};

/// The choice in words: "ring, LL128"; of a program its protocol alone.
std::string describe(const LibraryChoice& choice);

/// Returns the time of a library of the device for `bytes` of a rank, of which an all-gather sends and a reduce-scatter keeps
/// one share per rank; of its all-reduces `algorithm`, if given. Throws InvalidInput when it has no such collective, or not
/// this algorithm on this machine.
LibraryChoice library_choice(const Device& device, Collective collective, Rank world_size,
                             std::uint64_t bytes,
                             std::optional<LibraryAlgorithm> algorithm = std::nullopt);

/// The channels of a ring by LL: one more for every 4 KiB of every rank's share.
double low_latency_channels(const Library& library, Rank world_size, std::uint64_t bytes);

}  // namespace arlab

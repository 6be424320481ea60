// NCCL inside one server, as its source says that it chooses (2.27 to 2.29: src/graph/tuning.cc,
// src/enqueue.cc, src/transport/nvls.cc) and as measured times say that it performs (Nccl).
//
// All-reduces, all-gathers and reduce-scatters go round a ring in S steps, S = 2 (n - 1) or n - 1,
// by one of three protocols, or an all-reduce through the switch (NVLS). It takes the one for which
// it expects the least
//
//   fixed + S hop + bytes S / n / bandwidth
//
//              fixed   hop, NVLink / PCIe   bandwidth, of r = ring_gb_per_s
//   LL         6.6     0.6 / 1.0            r / 2, at most low_latency_ring_gb_per_s
//   LL128      14.0    1.9 / does not run   0.92 r
//   Simple     8.4     3.4 / 5.7            r
//   NVLS       25      -                    2 expected_efficiency (n - 1) / n min(r, n port_gb_per_s)
//
// An all-to-all is sends and receives, of up to 32 KiB to a peer by LL: that limit is not NCCL's
// source's, it was read off NVIDIA's tables.
#pragma once

#include <optional>

#include "reference/collectives/schedule.h"
#include "sim/device/device.h"

namespace arlab {

/// tree: across servers only (sim/servers.h).
enum class NcclAlgorithm : std::uint8_t { ring, nvls, exchange, tree };
enum class NcclProtocol : std::uint8_t { low_latency, ll128, simple };

struct NcclChoice {
  NcclAlgorithm algorithm = NcclAlgorithm::ring;
  NcclProtocol protocol = NcclProtocol::simple;
  bool operator==(const NcclChoice&) const = default;
};

/// The choice in words: "ring, LL128".
std::string describe(const NcclChoice& choice);

/// What NCCL takes for `bytes` of a rank, of which an all-gather sends and a reduce-scatter keeps
/// one share per rank; of its all-reduces `algorithm`, if that is given. Throws InvalidInput when it
/// has no such collective, or not this algorithm on this machine.
NcclChoice nccl_choice(const Device& device, Collective collective, Rank world_size,
                       std::uint64_t bytes, std::optional<NcclAlgorithm> algorithm = std::nullopt);

/// The channels of a ring by LL: one more for every 4 KiB of every rank's share.
double nccl_low_latency_channels(const Nccl& nccl, Rank world_size, std::uint64_t bytes);

}  // namespace arlab

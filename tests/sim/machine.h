// A machine and a codec with round numbers, to count with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "reference/codecs/codec.h"
#include "sim/topology/topology.h"

namespace arlab {

inline Quantity assumed(double value) { return {value, Source::assumed, "test"}; }
inline Count counted(Rank value) { return {value, Source::assumed, "test"}; }

/// 40 * 10^9 operations/s = 40000 per us. Latency and throughput follow each other, codec and wire
/// overlap completely.
inline Device round_device() {
  return {.name = "test device",
          .launch_us = assumed(5),
          .step_us = assumed(2),
          .message_us = assumed(0.5),
          .hbm_gb_per_s = assumed(kLargestQuantity),
          .codec_gops_per_s = assumed(40),
          .decode_cost = assumed(1),
          .codec_tile_us_per_op = assumed(0.25),
          .codec_tile_fixed_ops = assumed(7),
          .latency_overlap = assumed(1),
          .codec_overlap = assumed(100),
          .all_to_all_efficiency = assumed(1),
          .stores = {},
          .blocks = {},
          .codecs = {},
          .small = {},
          .sentinels = {},
          .library = {},
          .compute = {},
          .tails = {}};
}

/// A vendor's library of so many channels, which takes LL up to a limit; LL takes half of the
/// bandwidth.
inline Library library_of(double channels, double low_latency_max_bytes) {
  return {.channels = assumed(channels),
          .low_latency_max_bytes = assumed(low_latency_max_bytes),
          .low_latency_us = assumed(8),
          .low_latency_efficiency = assumed(0.5),
          .low_latency_channel_gb_per_s = assumed(0),
          .simple_us = assumed(3),
          .simple_hop_us = assumed(4),
          .drift_us = assumed(0),
          .exchange_low_latency_us = assumed(5),
          .exchange_low_latency_gb_per_s = assumed(1),
          .exchange_us = assumed(6),
          .exchange_drift_us = assumed(0),
          .ll128 = {},
          .nvls = {},
          .network = {}};
}

/// NCCL, which chooses by what it expects.
inline Library nccl(bool has_nvls) {
  Library library = library_of(8, 0);
  library.low_latency_max_bytes = unless_given(0);
  library.ring_gb_per_s = assumed(100);
  library.low_latency_ring_gb_per_s = assumed(40);
  library.low_latency_us = assumed(3);
  library.low_latency_channel_gb_per_s = assumed(1);
  library.simple_us = assumed(20);
  library.simple_hop_us = assumed(0.5);
  library.drift_us = assumed(4);
  library.exchange_low_latency_us = assumed(2);
  library.exchange_low_latency_gb_per_s = assumed(2);
  library.exchange_drift_us = assumed(8);
  library.ll128 = LibraryLl128{assumed(10), assumed(0.8)};
  if (has_nvls) {
    library.nvls = LibraryNvls{assumed(60), assumed(0.85), assumed(7), assumed(1 << 20)};
  }
  return library;
}

/// 4 blocks of tiles of 1000 elements.
inline Blocks blocks_of(double slot_bytes, double meet_us) {
  return {.resident = assumed(4),
          .tile_elements = assumed(1000),
          .slot_bytes = assumed(slot_bytes),
          .load_us = assumed(1),
          .release_us = assumed(0.25),
          .phase_us = assumed(0.5),
          .meet_us = assumed(meet_us)};
}

/// Links of 10 GB/s = 10000 bytes/us and 1 us; links between groups 4 GB/s and 1.5 us.
inline Topology machine(TopologyKind kind, Rank ranks, Rank group_size = 0) {
  Topology t;
  t.name = "test machine";
  t.summary = "round numbers";
  t.kind = kind;
  t.ranks = counted(ranks);
  t.group_size = counted(group_size);
  t.leaf_servers = counted(2);
  t.ranks_per_router = counted(1);
  t.devices_forward = kind == TopologyKind::ring || kind == TopologyKind::torus;
  for (const std::string& type : link_types_of(kind)) {
    const bool first = type == "link";
    t.link_types.push_back({type, assumed(first ? 10 : 4), assumed(first ? 1 : 1.5)});
  }
  t.device = round_device();
  return t;
}

/// Servers of 4 ranks, pods of 2; `nics` network cards each, and what is inside of them.
inline Topology servers(Rank ranks, Rank nics, ServerInside inside = ServerInside::switched,
                        Rank pcie_switches = 0) {
  Topology t = machine(TopologyKind::fat_tree, ranks, 4);
  t.nics = counted(nics);
  t.inside = inside;
  if (pcie_switches > 0) t.pcie_switches = counted(pcie_switches);
  const auto add = [&t](const char* type, double gb_per_s, double latency_us) {
    t.link_types.push_back({type, assumed(gb_per_s), assumed(latency_us)});
  };
  if (inside == ServerInside::pcie) t.link_types.erase(t.link_types.begin());
  if (inside == ServerInside::pcie || nics < 4) add("pcie", 6, 2);
  if (server_of(t).has_root) add("root", 5, 0.5);
  return t;
}

inline Topology torus_machine(const std::vector<Rank>& shape) {
  Rank ranks = 1;
  for (const Rank extent : shape) ranks *= extent;
  Topology t = machine(TopologyKind::torus, ranks);
  t.shape = shape;
  return t;
}

/// Costs 3 operations to encode and 2 to decode an element, if nothing else is said. It has no
/// values.
class CountedCodec final : public Codec {
 public:
  explicit CountedCodec(std::size_t bytes_per_element, std::size_t alignment = 1,
                        CodecCost cost = {3, 2}, const char* name = "counted")
      : Codec({.name = name,
               .summary = "for counting",
               .source = "test",
               .dtypes = {DType::fp16},
               .alignment = alignment,
               .cost = cost}),
        bytes_per_element_(bytes_per_element) {}

 private:
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    return elements * bytes_per_element_;
  }
  void do_encode(DType, std::span<const std::byte>, std::span<std::byte>,
                 EncodeCounts&) const override {}
  void do_decode(DType, std::span<const std::byte>, std::span<std::byte>) const override {}

  std::size_t bytes_per_element_;
};

inline CodecPtr one_byte() { return std::make_shared<CountedCodec>(1); }

}  // namespace arlab

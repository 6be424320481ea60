// What a device and its software need for their part of a collective: the constants of the kernel
// model (kernel_model.h says what it makes of them).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/topology/sourced.h"

namespace arlab {

/// What a quantity is that a file need not have.
inline Quantity unless_given(double value) { return {value, Source::assumed, "not given"}; }
inline bool is_given(const Quantity& quantity) { return quantity.note != "not given"; }

/// How stores of a fused kernel to its peers get in each other's way. Needed only where
/// measurements show it; a kernel without it is limited by links and codec alone.
struct Stores {
  Quantity tile_bytes;      ///< payload that one workgroup moves at a time
  Quantity resident_tiles;  ///< workgroups that run at the same time
  /// Release of a tile (write-back, flag), per stage; the device does one after the other ...
  Quantity release_us;
  /// ... until so many are under way that they coalesce: from there the cost grows as the root.
  Quantity release_coalescing_tiles;
  /// Contention of stores to several peers, in shares of the time that the packets take: with a
  /// codec (stores interleaved with QDQ, all workgroups at the same peer), and plain.
  Quantity contention_codec;
  Quantity contention_plain;
  /// Packets per peer and stage that travel without contention: with a codec, whose work spaces the
  /// stores out, and plain, what queues take.
  Quantity free_packets_codec;
  Quantity free_packets_plain;
  /// Packets after which peers no longer meet in lock-step: contention grows as the root.
  Quantity decorrelation_packets;
  bool operator==(const Stores&) const = default;
};

/// How a fused kernel cuts its work, where the kernel is known: blocks that each work through tiles
/// of every message, in rounds, as kernels/README.md says of arlab's own.
struct Blocks {
  Quantity resident;       ///< most blocks of a kernel: what the device holds at the same time
  Quantity tile_elements;  ///< that a block works on at a time
  Quantity slot_bytes;     ///< of the wire, that a block sends a peer before it waits for others
  Quantity load_us;        ///< latency of a load: of the input, or of what a peer has stored
  Quantity release_us;     ///< per block and exchange: stores that must be done before the flag
  Quantity phase_us;       ///< per stage that sends, of what is run as a program (kernels/schedule)
  /// Until all blocks know the scale of a message (CodecCost::measures).
  Quantity meet_us;
  std::vector<std::string> measured =
      {};  ///< algorithms that were timed, with the codecs of Device::codecs
  bool operator==(const Blocks&) const = default;
};

/// What a codec takes in kernels with Blocks, of a thread for its eight elements of a tile.
struct CodecTimes {
  struct Instructions {
    double encode = 0;
    double decode = 0;  ///< and add
    bool operator==(const Instructions&) const = default;
  };
  std::string codec;
  Instructions fp16;
  Instructions bf16;  ///< and of all other dtypes
  double slots = 1;  ///< of the processor's issue slots, that an instruction takes on a full device
  double cycles = 1;  ///< that it takes in a tile that is alone
  bool operator==(const CodecTimes&) const = default;
};

/// Names of CodecTimes, per counted operation (CodecCost), of codecs that have none of their own.
inline constexpr std::string_view kOperation = "operation";
inline constexpr std::string_view kPackedOperation = "packed-operation";

/// Kernels for small tensors, of one tile per block (rounds_kernel.h). With Blocks only.
struct Small {
  Quantity launch_us;
  Quantity step_us;         ///< per stage that sends
  Quantity message_us;      ///< and for each peer but the first
  Quantity tile_us_per_op;  ///< latency of a tile, per operation
  Quantity work_cost;       ///< share of the work of all blocks that shows
  Quantity wire_cost;       ///< how much longer bytes take that nothing follows
  bool operator==(const Small&) const = default;
};

/// Kernels with sentinel slots (sentinel_kernel.h). With Blocks only.
struct Sentinels {
  Quantity launch_us;
  Quantity step_us;         ///< per stage: until the first of its wires has come, without the link
  Quantity access_us;       ///< per stage, for each access of a thread in a turn but the first
  Quantity tile_us_per_op;  ///< latency of a tile, per operation
  Quantity fill_us;         ///< per stage: to fill and to empty the pipeline of many turns
  Quantity fill_turns;      ///< turns after which it is full to all but 1/e
  Quantity turn_cost;       ///< share of a turn's work that this takes as well
  bool operator==(const Sentinels&) const = default;
};

/// The vendor's collective library (NCCL, RCCL) on this machine: uncompressed, by one of two
/// protocols, over several channels at once (sim/channels.h).
struct Library {
  /// The all-reduces (of arlab list algorithms) that it has and that these numbers are of; it takes
  /// the fastest. See sim/library.h.
  std::vector<std::string> algorithms = {"ring", "tree"};
  Quantity channels;          ///< most; each is a block on every GPU, with flags of its own
  Quantity channel_bytes;     ///< payload of a rank from which one channel more is worth while
  Quantity channel_gb_per_s;  ///< what the block of one channel can send, to all of its peers
  Quantity low_latency_us;    ///< LL: fixed
  Quantity low_latency_efficiency;  ///< LL: share of the bandwidth that is payload
  Quantity low_latency_max_bytes;   ///< LL up to this payload per rank / world size
  Quantity simple_us;               ///< Simple: fixed
  Quantity simple_message_us;       ///< Simple: per stage and rank that takes part in it
  /// Simple: a chunk, of payload / ranks, is waited for at this rate, 0: for none; of more bytes than
  /// `fill_bytes` the root counts.
  Quantity fill_gb_per_s = unless_given(0);
  Quantity fill_bytes = unless_given(1);
  bool operator==(const Library&) const = default;
};

/// LL128, the protocol of NCCL that only goes over NVLink.
struct NcclLl128 {
  Quantity fixed_us;
  Quantity efficiency;  ///< share of the links' bandwidth that is payload
  bool operator==(const NcclLl128&) const = default;
};

/// NVLS, NCCL's all-reduce that a switch adds up and spreads (Topology::in_switch).
struct NcclNvls {
  // Its choice: what it takes the bandwidth for.
  Quantity port_gb_per_s;  ///< of every rank that takes part, at most
  Quantity expected_efficiency;
  Quantity fixed_us;
  Quantity chunk_bytes;  ///< of a rank: what is added before it is spread
  bool operator==(const NcclNvls&) const = default;
};

/// NCCL on this machine, all of its collectives; see device/nccl.h.
struct Nccl {
  Quantity channels;  ///< most
  // Its choice: what it takes the bandwidth for, not what it is.
  Quantity ring_gb_per_s;
  Quantity low_latency_ring_gb_per_s;  ///< LL: at most
  // Rings.
  Quantity low_latency_us;  ///< LL: fixed
  Quantity low_latency_efficiency;
  Quantity low_latency_channel_gb_per_s;  ///< LL: what the block of a channel sends
  Quantity simple_us;                     ///< Simple: fixed
  Quantity simple_hop_us;                 ///< Simple: per step, beyond the latency of the link
  Quantity drift_us;  ///< Simple: how far its channels are apart after 10^9 bytes
  // Sends and receives.
  Quantity exchange_low_latency_us;
  Quantity exchange_low_latency_gb_per_s;  ///< to each peer
  Quantity exchange_us;
  Quantity exchange_drift_us;  ///< as drift_us
  std::optional<NcclLl128> ll128;
  std::optional<NcclNvls> nvls;
  bool operator==(const Nccl&) const = default;
};

/// What the device makes of the layers of a model (workload/model_time.h). Rates are peaks,
/// efficiencies what is left of them inside a layer.
struct Compute {
  Quantity bf16_tflops;           ///< matrix units, dense, 16-bit inputs; 10^12 per second
  Quantity gemm_efficiency;       ///< share of it that the matrix products of a layer get
  Quantity attention_efficiency;  ///< the same of fused attention over a prompt
  Quantity memory_efficiency;     ///< share of hbm_gb_per_s that kernels bound by memory get
  Quantity kernel_us;             ///< per kernel: what its beginning and end cost in a CUDA graph
  bool operator==(const Compute&) const = default;
};

struct Device {
  std::string name;
  Quantity launch_us;   ///< once per collective: start the kernel and see it end
  Quantity step_us;     ///< per stage that sends: enter it, load the first tile
  Quantity message_us;  ///< per stage and peer: signal it, wait for it

  Quantity hbm_gb_per_s;  ///< the device's own memory, reading and writing together
  /// Element-operations of codecs and sums (CodecCost); 10^9 per second.
  Quantity codec_gops_per_s;
  /// Throughput: what a counted operation of decode costs in operations of encode. An encoder
  /// reduces over blocks and waits for the result; a decoder streams. With Blocks only of what is
  /// received: it must be loaded and taken apart.
  Quantity decode_cost;
  /// Latency of one tile through the codec, per stage: this times the operations per element of
  /// encode and decode, plus those of shuffles and of the scale's round trip (not with Blocks).
  Quantity codec_tile_us_per_op;
  Quantity codec_tile_fixed_ops;

  /// How well two times overlap: the p of (a^p + b^p)^(1/p); 1: one after the other, large: the
  /// longer one alone.
  Quantity latency_overlap;  ///< latency of the first tile with the throughput of the others
  Quantity codec_overlap;    ///< throughput of the codec with that of the wire

  /// Share of the links' bandwidth that an all-to-all gets where an all-reduce gets all.
  Quantity all_to_all_efficiency;

  std::optional<Stores> stores;
  std::optional<Blocks> blocks;    ///< not together with stores
  std::vector<CodecTimes> codecs;  ///< with blocks only; of others an operation is one
  std::optional<Small> small;
  std::optional<Sentinels> sentinels;
  std::optional<Library> library;
  std::optional<Nccl> nccl;
  std::optional<Compute> compute;
  bool operator==(const Device&) const = default;
};

/// Whether a file may leave it out.
inline bool is_optional_quantity(std::string_view key) { return key.starts_with("library.fill_"); }

/// Round numbers, for what-if questions.
Device generic_device();

/// Calls visit(key, quantity) in the order of the file. `AnyDevice` is Device or const Device.
template <class AnyDevice, class Visit>
void for_each_quantity_of(AnyDevice& device, Visit visit) {
  visit("overhead.launch_us", device.launch_us);
  visit("overhead.step_us", device.step_us);
  visit("overhead.message_us", device.message_us);
  visit("device.hbm_gb_per_s", device.hbm_gb_per_s);
  visit("device.codec_gops_per_s", device.codec_gops_per_s);
  visit("device.decode_cost", device.decode_cost);
  visit("device.codec_tile_us_per_op", device.codec_tile_us_per_op);
  visit("device.codec_tile_fixed_ops", device.codec_tile_fixed_ops);
  visit("device.latency_overlap", device.latency_overlap);
  visit("device.codec_overlap", device.codec_overlap);
  visit("device.all_to_all_efficiency", device.all_to_all_efficiency);
  if (device.stores) {
    auto& stores = *device.stores;
    visit("stores.tile_bytes", stores.tile_bytes);
    visit("stores.resident_tiles", stores.resident_tiles);
    visit("stores.release_us", stores.release_us);
    visit("stores.release_coalescing_tiles", stores.release_coalescing_tiles);
    visit("stores.contention_codec", stores.contention_codec);
    visit("stores.contention_plain", stores.contention_plain);
    visit("stores.free_packets_codec", stores.free_packets_codec);
    visit("stores.free_packets_plain", stores.free_packets_plain);
    visit("stores.decorrelation_packets", stores.decorrelation_packets);
  }
  if (device.blocks) {
    auto& blocks = *device.blocks;
    visit("blocks.resident", blocks.resident);
    visit("blocks.tile_elements", blocks.tile_elements);
    visit("blocks.slot_bytes", blocks.slot_bytes);
    visit("blocks.load_us", blocks.load_us);
    visit("blocks.release_us", blocks.release_us);
    visit("blocks.phase_us", blocks.phase_us);
    visit("blocks.meet_us", blocks.meet_us);
  }
  if (device.small) {
    auto& small = *device.small;
    visit("small.launch_us", small.launch_us);
    visit("small.step_us", small.step_us);
    visit("small.message_us", small.message_us);
    visit("small.tile_us_per_op", small.tile_us_per_op);
    visit("small.work_cost", small.work_cost);
    visit("small.wire_cost", small.wire_cost);
  }
  if (device.sentinels) {
    auto& sentinels = *device.sentinels;
    visit("sentinels.launch_us", sentinels.launch_us);
    visit("sentinels.step_us", sentinels.step_us);
    visit("sentinels.access_us", sentinels.access_us);
    visit("sentinels.tile_us_per_op", sentinels.tile_us_per_op);
    visit("sentinels.fill_us", sentinels.fill_us);
    visit("sentinels.fill_turns", sentinels.fill_turns);
    visit("sentinels.turn_cost", sentinels.turn_cost);
  }
  if (device.library) {
    auto& library = *device.library;
    visit("library.channels", library.channels);
    visit("library.channel_bytes", library.channel_bytes);
    visit("library.channel_gb_per_s", library.channel_gb_per_s);
    visit("library.low_latency_us", library.low_latency_us);
    visit("library.low_latency_efficiency", library.low_latency_efficiency);
    visit("library.low_latency_max_bytes", library.low_latency_max_bytes);
    visit("library.simple_us", library.simple_us);
    visit("library.simple_message_us", library.simple_message_us);
    visit("library.fill_gb_per_s", library.fill_gb_per_s);
    visit("library.fill_bytes", library.fill_bytes);
  }
  if (device.nccl) {
    auto& nccl = *device.nccl;
    visit("nccl.channels", nccl.channels);
    visit("nccl.ring_gb_per_s", nccl.ring_gb_per_s);
    visit("nccl.low_latency_ring_gb_per_s", nccl.low_latency_ring_gb_per_s);
    visit("nccl.low_latency_us", nccl.low_latency_us);
    visit("nccl.low_latency_efficiency", nccl.low_latency_efficiency);
    visit("nccl.low_latency_channel_gb_per_s", nccl.low_latency_channel_gb_per_s);
    visit("nccl.simple_us", nccl.simple_us);
    visit("nccl.simple_hop_us", nccl.simple_hop_us);
    visit("nccl.drift_us", nccl.drift_us);
    visit("nccl.exchange_low_latency_us", nccl.exchange_low_latency_us);
    visit("nccl.exchange_low_latency_gb_per_s", nccl.exchange_low_latency_gb_per_s);
    visit("nccl.exchange_us", nccl.exchange_us);
    visit("nccl.exchange_drift_us", nccl.exchange_drift_us);
    if (nccl.ll128) {
      visit("nccl_ll128.fixed_us", nccl.ll128->fixed_us);
      visit("nccl_ll128.efficiency", nccl.ll128->efficiency);
    }
    if (nccl.nvls) {
      visit("nccl_nvls.port_gb_per_s", nccl.nvls->port_gb_per_s);
      visit("nccl_nvls.expected_efficiency", nccl.nvls->expected_efficiency);
      visit("nccl_nvls.fixed_us", nccl.nvls->fixed_us);
      visit("nccl_nvls.chunk_bytes", nccl.nvls->chunk_bytes);
    }
  }
  if (device.compute) {
    auto& compute = *device.compute;
    visit("compute.bf16_tflops", compute.bf16_tflops);
    visit("compute.gemm_efficiency", compute.gemm_efficiency);
    visit("compute.attention_efficiency", compute.attention_efficiency);
    visit("compute.memory_efficiency", compute.memory_efficiency);
    visit("compute.kernel_us", compute.kernel_us);
  }
}

}  // namespace arlab

// Constants of a device and its software for their part of a collective; kernel_model.h uses them. A struct is a section of
// machine files, a member a key of it; the reference of keys is made of the comments beside the members.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/topology/sourced.h"

namespace arlab {

/// Default of a quantity that a file may leave out.
inline Quantity unless_given(double value) { return {value, Source::assumed, "not given"}; }
inline bool is_given(const Quantity& quantity) { return quantity.note != "not given"; }

/// How stores of a fused kernel to its peers get in each other's way. Needed only where
/// measurements show it; a kernel without it is limited by links and codec alone.
struct Stores {
  Quantity tile_bytes;      ///< payload that one workgroup moves at a time
  Quantity resident_tiles;  ///< workgroups that run at the same time
  /// per stage: release of a tile (write-back, flag); the device does one after the other
  Quantity release_us;
  /// releases under way that coalesce: beyond so many the cost grows as the root
  Quantity release_coalescing_tiles;
  /// contention of stores to several peers in a kernel with a codec, in shares of the time that the
  /// packets take: all workgroups store to the same peer, between encoding and decoding
  Quantity contention_codec;
  Quantity contention_plain;  ///< the same in a kernel without a codec
  /// packets per peer and stage that travel without contention where a codec's work spaces them out
  Quantity free_packets_codec;
  Quantity free_packets_plain;  ///< the same without a codec: what queues take
  /// packets after which peers no longer meet in lock-step: from there contention grows as the root
  Quantity decorrelation_packets;
  bool operator==(const Stores&) const = default;
};

/// How a fused kernel cuts its work, where the kernel is known: blocks that each work through tiles
/// of every chunk, as kernels/README.md says of arlab's own. It takes the place of
/// [stores]; device.decode_cost is then of what is received only, and device.codec_tile_fixed_ops
/// has no effect.
struct Blocks {
  Quantity resident;       ///< most blocks of a kernel: what the device holds at the same time
  Quantity tile_elements;  ///< elements that a block works on at a time
  Quantity slot_bytes;  ///< bytes of the wire that a block sends a peer at once; no effect on times
  Quantity load_us;     ///< latency of a load of the input, or of what a peer has stored
  Quantity release_us;  ///< per block and stage that sends: finish stores, then set the flag
  Quantity phase_us;    ///< more per stage that sends, of a schedule that is run as a program
  Quantity meet_us;     ///< until all blocks know a message's scale, of codecs that have one
  /// multiprocessors of the device, which blocks fill; 0: not known, and kernels cannot be simulated
  /// on a part of them
  Quantity multiprocessors = unless_given(0);
  /// most that the blocks of one multiprocessor read and write; 0: a share of the device's
  Quantity multiprocessor_gb_per_s = unless_given(0);
  /// algorithms that were timed on this class of machine, with the codecs of [codecs]; arlab select
  /// ranks these, others only with --unmeasured
  std::vector<std::string> measured = {};
  bool operator==(const Blocks&) const = default;
};

/// Cost of a codec in kernels with Blocks: a row of [codecs]. An operation is then an instruction of a thread, per element, and
/// device.codec_gops_per_s how many a device begins per second.
struct CodecTimes {
  /// Instructions of a thread for its eight elements of one more tile.
  struct Instructions {
    double encode = 0;
    double decode = 0;  ///< to decode and add
    bool operator==(const Instructions&) const = default;
  };
  std::string codec;
  Instructions fp16;
  Instructions bf16;  ///< other dtypes are taken as bf16
  /// places for an instruction that one takes where the device is full: waiting, barriers and the
  /// protocol are in it
  double slots = 1;
  double cycles = 1;  ///< cycles that an instruction takes in a tile that is alone
  bool operator==(const CodecTimes&) const = default;
};

/// Names of the rows for codecs that have none of their own: per operation that is counted in a
/// codec's definition (CodecCost), by how it calculates.
inline constexpr std::string_view kOperation = "operation";
inline constexpr std::string_view kPackedOperation = "packed-operation";

/// Behind a codec's name: of what it takes in programs, where that is another kernel than those of algorithms.
inline constexpr std::string_view kInPrograms = "-program";

/// Kernels that arlab has for small tensors, of one tile per block, with Lamport slots
/// (own_kernels.h); only beside [blocks].
struct Small {
  Quantity launch_us;       ///< once per collective: start the kernel and see it end
  Quantity step_us;         ///< per stage that sends
  Quantity message_us;      ///< per stage, for each peer but the first
  Quantity tile_us_per_op;  ///< latency of a tile, per operation and element
  Quantity work_cost;       ///< share of the work of all blocks, as if they were many, that shows
  Quantity wire_cost;       ///< factor: how much longer bytes take that nothing follows
  bool operator==(const Small&) const = default;
};

/// Kernels with sentinel slots, whose wires need no flags (sentinel_kernel.h); only beside
/// [blocks].
struct Sentinels {
  Quantity launch_us;       ///< once per collective: start the kernel and see it end
  Quantity step_us;         ///< per stage: until its first wires have come, without the link
  Quantity access_us;       ///< per stage, for each access of a thread in a turn but the first
  Quantity tile_us_per_op;  ///< latency of a tile, per operation and element
  Quantity fill_us;     ///< per stage: to fill and to empty the pipeline of many turns; may be 0
  Quantity fill_turns;  ///< turns beyond the first after which it is full to all but 1/e
  Quantity turn_cost;   ///< share of a turn's work that fills and empties it as well
  bool operator==(const Sentinels&) const = default;
};

/// LL128, a protocol of NCCL that goes over NVLink only. Optional.
struct LibraryLl128 {
  Quantity fixed_us;    ///< fixed
  Quantity efficiency;  ///< share of the links' bandwidth that is payload, at most 1
  bool operator==(const LibraryLl128&) const = default;
};

/// NVLS, NCCL's all-reduce that a switch adds up and spreads. Optional; needs both abilities of
/// [switch].
struct LibraryNvls {
  Quantity port_gb_per_s;        ///< upper limit of a rank's port in NCCL's choice
  Quantity expected_efficiency;  ///< share of it that NCCL expects of the switch, at most 1
  Quantity fixed_us;             ///< fixed
  Quantity chunk_bytes;          ///< bytes of a rank's share that are added before they are spread
  Quantity expected_us = unless_given(25);  ///< fixed time that NCCL assumes when it chooses
  bool operator==(const LibraryNvls&) const = default;
};

/// Network between servers, by what its cards speak.
enum class NetFabric : std::uint8_t { roce, infiniband, efa, tcp };
inline constexpr NetFabric kNetFabrics[] = {NetFabric::roce, NetFabric::infiniband, NetFabric::efa,
                                            NetFabric::tcp};
std::string_view name_of(NetFabric fabric);

/// The library between servers (sim/library/servers.h); has an effect where kind is fat_tree. Defaults but that of
/// hop_floor_us are fitted to all-reduces of three pairs of servers: arlab calibrate --fit nccl_servers.
struct LibraryNetwork {
  /// protocol of the cards: roce, infiniband, efa or tcp; without it roce is assumed, and said to be
  std::optional<NetFabric> fabric = std::nullopt;
  /// time of a message of few bytes on the longest way, beyond the latency of its links. Without it the fabric's
  Quantity hop_floor_us = unless_given(0);
  Quantity low_latency_hop_us = unless_given(0);  ///< LL and LL128: in place of hop_floor_us
  Quantity simple_hop_us = unless_given(0);       ///< Simple: in place of hop_floor_us
  /// payload of a rank at which half of the messages ask the receiver first
  Quantity eager_bytes = unless_given(23292);
  /// cost of asking the receiver, in floors of a hop
  Quantity rendezvous_hops = unless_given(0.633);
  Quantity rendezvous_us = unless_given(0);  ///< the same in us, in place of rendezvous_hops
  /// cost of filling the pipeline of chunks, in floors of a hop
  Quantity fill_hops = unless_given(6.5);
  /// bytes of a channel that are passed on at once; eight of them for every rank of a server half fill the pipeline
  Quantity chunk_bytes = unless_given(524288);
  bool ll128 = true;  ///< whether the network keeps 128 bytes together, as LL128 needs it
  bool operator==(const LibraryNetwork&) const = default;
};

/// The floor of a hop, beyond the latency of its links: the file's, else the fabric's, with an interval.
Quantity hop_floor_of(const LibraryNetwork& network);

/// The vendor's collective library (NCCL, RCCL) on this machine: values travel as they are. How it
/// chooses and how long it takes: library_choice.h, library_kernel.h.
struct Library {
  /// the all-reduces (of arlab list algorithms) that it has inside a server, beside NVLS. Others than
  /// ring are programs that it runs as they are written (MSCCL's, of RCCL)
  std::vector<std::string> algorithms = {"ring"};
  /// over PCIe: whether GPUs write to each other; false: bytes go through memory of the host, which leaves 0.59 of the bandwidth
  bool peer_to_peer = true;
  /// the least fixed time of a protocol on this host, which drivers, IOMMU and processor set; 13 to 60 were seen over PCIe
  Quantity host_floor_us = unless_given(0);
  Quantity channels;  ///< most channels, 1 to 1024; each is a block on every GPU
  /// most payload of a rank, over the world size, that goes by LL. Without it the library chooses as
  /// NCCL does, by what it expects: the next two, and expected_..._us
  Quantity low_latency_max_bytes = unless_given(0);
  /// bandwidth that NCCL assumes for its rings when it chooses; needed without low_latency_max_bytes
  Quantity ring_gb_per_s = unless_given(0);
  Quantity low_latency_ring_gb_per_s = unless_given(0);  ///< the same with LL, at most
  Quantity low_latency_us;                               ///< rings, LL: fixed
  /// programs, LL: most payload of a rank, over the world size, that takes another fixed time; 0: none
  Quantity small_max_bytes = unless_given(0);
  Quantity small_us = unless_given(0);  ///< the time itself, at most low_latency_us
  /// rings, LL: share of the bandwidth that is payload, at most 1
  Quantity low_latency_efficiency;
  /// rings, LL: what the block of a channel sends; 0: as much as the link takes
  Quantity low_latency_channel_gb_per_s;
  Quantity simple_us;  ///< rings, Simple: fixed
  /// rings, Simple: share of the links' bandwidth that it gets
  Quantity simple_efficiency = unless_given(1);
  /// rings, Simple: per step, beyond the latency of the link, for a message that is sent and one that
  /// is awaited; half of it more for every other message of a step. May be 0
  Quantity simple_hop_us;
  /// rings, Simple: how far channels are apart when a rank has sent 10^9 bytes; grows as the root.
  /// May be 0
  Quantity drift_us;
  Quantity exchange_low_latency_us;        ///< all-to-all of up to 32 KiB to a peer: fixed
  Quantity exchange_low_latency_gb_per_s;  ///< all-to-all of up to 32 KiB to a peer: rate to each
  Quantity exchange_us;                    ///< all-to-all of more: fixed
  Quantity exchange_drift_us;              ///< all-to-all of more: as drift_us
  /// all-to-all of more: rate to each, at most; 0: what the link has
  Quantity exchange_gb_per_s = unless_given(0);
  /// times that NCCL assumes for rings when it chooses: a fixed one and one per step, by protocol (tuning.cc of 2.27 to 2.29:
  /// baseLat, hwLat; over PCIe 1.0 and 5.7 per step of LL and Simple)
  Quantity expected_low_latency_us = unless_given(6.6);
  Quantity expected_low_latency_hop_us = unless_given(0.6);  ///< the same, LL, per step
  Quantity expected_ll128_us = unless_given(14);             ///< the same, LL128: fixed
  Quantity expected_ll128_hop_us = unless_given(1.9);        ///< the same, LL128: per step
  Quantity expected_simple_us = unless_given(8.4);           ///< the same, Simple: fixed
  Quantity expected_simple_hop_us = unless_given(3.4);       ///< the same, Simple: per step
  std::optional<LibraryLl128> ll128;
  std::optional<LibraryNvls> nvls;
  LibraryNetwork network;
  bool operator==(const Library&) const = default;

  /// Whether it chooses as NCCL does.
  bool chooses_by_expectation() const { return !is_given(low_latency_max_bytes); }
};

/// Cost of a tail behind an all-reduce (reference/tails/SPEC.md, "In a schedule"): residual, norm and quantization of rows. A file without the
/// section has what was measured on the H200.
struct Tails {
  /// more in the all-reduce's kernel, of few rows: a row's squares are added up before it goes on
  Quantity fused_us = unless_given(1.5);
  Quantity kernel_us = unless_given(2.8);  ///< the same in a kernel of its own, in a CUDA graph
  /// share of device.hbm_gb_per_s that both get, at most 1
  Quantity efficiency = unless_given(0.75);
  bool operator==(const Tails&) const = default;
};

/// How fast the device works through the layers of a model between collectives, for arlab model
/// time alone (workload/model_time.h). Rates are peaks, efficiencies what is left of them inside a
/// layer.
struct Compute {
  Quantity bf16_tflops;           ///< matrix units, dense, 16-bit inputs; 10^12 per second, at most
  Quantity gemm_efficiency;       ///< share of it that the matrix products of a layer get
  Quantity attention_efficiency;  ///< share of it that fused attention over a prompt gets
  Quantity memory_efficiency;     ///< share of device.hbm_gb_per_s that kernels bound by memory get
  Quantity kernel_us;             ///< per kernel: what its beginning and end cost in a CUDA graph
  bool operator==(const Compute&) const = default;
};

/// The device and its software, in two sections of the file. Every machine has them.
struct Device {
  std::string name;     ///< the accelerator
  Quantity launch_us;   ///< once per collective: start the kernel and see it end
  Quantity step_us;     ///< per stage that sends: enter it, load the first tile; may be 0
  Quantity message_us;  ///< per stage and peer: signal it, wait for it; may be 0

  Quantity hbm_gb_per_s;  ///< the device's own memory, reading and writing together
  /// its capacity in 2^30 bytes, as in data sheets; used by arlab model time alone; 0: not known
  Quantity memory_gb = unless_given(0);
  /// operations on elements, of codecs (CodecCost) and sums; 10^9 per second
  Quantity codec_gops_per_s;
  /// throughput: what a counted operation of decode costs in operations of encode; an encoder
  /// reduces over blocks and waits for the result, a decoder streams
  Quantity decode_cost;
  /// cost of an operation on bf16, and of a sum, relative to fp16, where kernels have no [codecs]
  Quantity bf16_cost = unless_given(1);
  /// the same of the latency of one tile, where a sum is an operation too; 0: as bf16_cost, and sums
  /// take none
  Quantity bf16_tile_cost = unless_given(0);
  /// latency of one tile through the codec, per stage and per operation and element
  Quantity codec_tile_us_per_op;
  /// operations that count for that latency beside the codec's: shuffles, the scale's round trip
  Quantity codec_tile_fixed_ops;
  /// how the latency of the first tile overlaps with the throughput of the others, 1 to 100: the p
  /// of (a^p + b^p)^(1/p), 1: one after the other, 100: the longer alone
  Quantity latency_overlap;
  Quantity codec_overlap;  ///< the same of the codec's throughput with that of the wire, 1 to 100
  /// share of the links' bandwidth that an all-to-all gets where an all-reduce gets all, at most 1
  Quantity all_to_all_efficiency;
  /// share of the links' bandwidth that copy engines get; arlab topology flows alone asks
  Quantity copy_efficiency = unless_given(1);

  std::optional<Stores> stores;
  std::optional<Blocks> blocks;    ///< not together with stores
  std::vector<CodecTimes> codecs;  ///< with blocks only; of others an operation is one
  std::optional<Small> small;
  std::optional<Sentinels> sentinels;
  std::optional<Library> library;
  std::optional<Compute> compute;
  Tails tails;
  bool operator==(const Device&) const = default;
};

/// Whether GPUs reach each other's memory, as arlab's kernels have to.
inline bool has_peer_access(const Device& device) {
  return !device.library || device.library->peer_to_peer;
}

/// Whether a file may leave it out.
inline bool is_optional_quantity(std::string_view key) {
  return key == "device.memory_gb" || key == "device.copy_efficiency" ||
         key.starts_with("device.bf16_") || key.starts_with("library.small_") ||
         key == "library.low_latency_max_bytes" || key == "library.host_floor_us" ||
         key == "library.ring_gb_per_s" || key == "library.low_latency_ring_gb_per_s" ||
         key == "library.simple_efficiency" || key == "library.exchange_gb_per_s" ||
         key.starts_with("library.network.") || key.starts_with("library.expected_") ||
         key == "library.nvls.expected_us" || key.starts_with("blocks.multiprocessor") ||
         key.starts_with("tails.");
}

/// Round numbers, for what-if questions.
Device generic_device();

/// Multiprocessors of the device. Throws InvalidInput where its file does not say.
std::uint32_t multiprocessors_of(const Device& device);

/// Returns the device as seen by arlab's kernels on so many of its multiprocessors, each full of blocks: their share of blocks
/// and instructions, and their limits of reading and writing. Throws InvalidInput when it has fewer.
Device with_multiprocessors(Device device, std::uint32_t count);

/// Calls visit(key, quantity) in the order of the file. `AnyDevice` is Device or const Device.
template <class AnyDevice, class Visit>
void for_each_quantity_of(AnyDevice& device, Visit visit) {
  visit("overhead.launch_us", device.launch_us);
  visit("overhead.step_us", device.step_us);
  visit("overhead.message_us", device.message_us);
  visit("device.hbm_gb_per_s", device.hbm_gb_per_s);
  visit("device.memory_gb", device.memory_gb);
  visit("device.codec_gops_per_s", device.codec_gops_per_s);
  visit("device.decode_cost", device.decode_cost);
  visit("device.bf16_cost", device.bf16_cost);
  visit("device.bf16_tile_cost", device.bf16_tile_cost);
  visit("device.codec_tile_us_per_op", device.codec_tile_us_per_op);
  visit("device.codec_tile_fixed_ops", device.codec_tile_fixed_ops);
  visit("device.latency_overlap", device.latency_overlap);
  visit("device.codec_overlap", device.codec_overlap);
  visit("device.all_to_all_efficiency", device.all_to_all_efficiency);
  visit("device.copy_efficiency", device.copy_efficiency);
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
    visit("blocks.multiprocessors", blocks.multiprocessors);
    visit("blocks.multiprocessor_gb_per_s", blocks.multiprocessor_gb_per_s);
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
    visit("library.host_floor_us", library.host_floor_us);
    visit("library.channels", library.channels);
    visit("library.low_latency_max_bytes", library.low_latency_max_bytes);
    visit("library.ring_gb_per_s", library.ring_gb_per_s);
    visit("library.low_latency_ring_gb_per_s", library.low_latency_ring_gb_per_s);
    visit("library.low_latency_us", library.low_latency_us);
    visit("library.small_max_bytes", library.small_max_bytes);
    visit("library.small_us", library.small_us);
    visit("library.low_latency_efficiency", library.low_latency_efficiency);
    visit("library.low_latency_channel_gb_per_s", library.low_latency_channel_gb_per_s);
    visit("library.simple_us", library.simple_us);
    visit("library.simple_efficiency", library.simple_efficiency);
    visit("library.simple_hop_us", library.simple_hop_us);
    visit("library.drift_us", library.drift_us);
    visit("library.exchange_low_latency_us", library.exchange_low_latency_us);
    visit("library.exchange_low_latency_gb_per_s", library.exchange_low_latency_gb_per_s);
    visit("library.exchange_us", library.exchange_us);
    visit("library.exchange_drift_us", library.exchange_drift_us);
    visit("library.exchange_gb_per_s", library.exchange_gb_per_s);
    visit("library.expected_low_latency_us", library.expected_low_latency_us);
    visit("library.expected_low_latency_hop_us", library.expected_low_latency_hop_us);
    visit("library.expected_ll128_us", library.expected_ll128_us);
    visit("library.expected_ll128_hop_us", library.expected_ll128_hop_us);
    visit("library.expected_simple_us", library.expected_simple_us);
    visit("library.expected_simple_hop_us", library.expected_simple_hop_us);
    if (library.ll128) {
      visit("library.ll128.fixed_us", library.ll128->fixed_us);
      visit("library.ll128.efficiency", library.ll128->efficiency);
    }
    if (library.nvls) {
      visit("library.nvls.port_gb_per_s", library.nvls->port_gb_per_s);
      visit("library.nvls.expected_efficiency", library.nvls->expected_efficiency);
      visit("library.nvls.expected_us", library.nvls->expected_us);
      visit("library.nvls.fixed_us", library.nvls->fixed_us);
      visit("library.nvls.chunk_bytes", library.nvls->chunk_bytes);
    }
    auto& network = library.network;
    visit("library.network.hop_floor_us", network.hop_floor_us);
    visit("library.network.low_latency_hop_us", network.low_latency_hop_us);
    visit("library.network.simple_hop_us", network.simple_hop_us);
    visit("library.network.eager_bytes", network.eager_bytes);
    visit("library.network.rendezvous_hops", network.rendezvous_hops);
    visit("library.network.rendezvous_us", network.rendezvous_us);
    visit("library.network.fill_hops", network.fill_hops);
    visit("library.network.chunk_bytes", network.chunk_bytes);
  }
  if (device.compute) {
    auto& compute = *device.compute;
    visit("compute.bf16_tflops", compute.bf16_tflops);
    visit("compute.gemm_efficiency", compute.gemm_efficiency);
    visit("compute.attention_efficiency", compute.attention_efficiency);
    visit("compute.memory_efficiency", compute.memory_efficiency);
    visit("compute.kernel_us", compute.kernel_us);
  }
  visit("tails.fused_us", device.tails.fused_us);
  visit("tails.kernel_us", device.tails.kernel_us);
  visit("tails.efficiency", device.tails.efficiency);
}

}  // namespace arlab

// The kernel model: what a stage of a fused kernel costs a device, and how that overlaps with the
// wire.
//
//   latency   step_us + message_us * (peers + extra flags)                        flags
//           + codec_tile_us_per_op * (ops per element + codec_tile_fixed_ops)     first tile
//   work      max(ops / codec_gops_per_s, memory traffic / hbm_gb_per_s)          all tiles
//   wire      as the network says, + contention of stores at the sender
//   release   release_us * g(tiles, release_coalescing_tiles)
//   stage     latency (+) max(wire (+) work, release)
//   measure   before the stage, where its codec takes two passes: a kernel that reads all that is
//             encoded; of sums another one that has written them, and they are read once more
//
// where a (+) b = (a^p + b^p)^(1/p) with the overlap p of the two, and
// g(x, n) = n (sqrt(1 + 2 x/n) - 1) is x for x << n and grows as its root beyond.
//
//   contention   c (H(peers) - 1) g(sqrt(v^2 + w^2) - w, decorrelation_packets) packets, where v
//                are the packets of a message that resident tiles make, w those that travel freely,
//                and H(n) - 1 = 1/2 + ... + 1/n is how much longer than the mean the slowest of n
//                exponential times takes: 0 for one peer
//
// With Device::blocks, how a kernel cuts its work is known. With the largest message of a plan:
//
//   blocks     its elements / tile_elements, at most `resident`
//   rounds R   what a rank sends a peer / (resident * slot_bytes), at least 1
//   flags      step_us + release_us * blocks + message_us * (peers + extra flags)
//   load       load_us * what is loaded / elements of the largest message
//   first tile codec_tile_us_per_op * operations of the stage / elements of the largest message
//   stage      flags + ((load + first tile) (+) (work / R (+) wire / R))
//              + (1 - 1/R) (wire (+) share), share: of all work of the rank, by bytes sent
//   gather     after what comes in exchange: (load + first tile) (+) work / R
//
// One round is worked through step by step; of several the wire of one hides the work of others,
// whichever stage it belongs to. Operations of codecs that are not packed count unpacked_cost
// times, those of decoding what is received decode_cost times.
//
// Of two codecs, each counts for the elements that it works on. The first tile of a stage takes the
// operations of the codec that it encodes with and of the one that it decodes with; of the more
// expensive one, where it does so with both.
//
// The terms and their constants were found on MK1 QuickReduce's tables; sim/README.md says how far
// the model is from them and from others.
#pragma once

#include <vector>

#include "sim/device/device.h"
#include "sim/network/max_min.h"
#include "sim/plan.h"

namespace arlab {

/// How a collective runs: by a fused kernel with a codec, or by the vendor's library.
enum class Implementation : std::uint8_t { kernel, low_latency, simple };

/// Parts of a stage's time that do not depend on the network; us.
struct StageCost {
  double flags_us = 0;
  double first_tile_us = 0;
  double work_us = 0;
  double release_us = 0;
  double measure_us = 0;  ///< before all of these
  // with Device::blocks
  double rounds = 1;
  double hidden_us = 0;  ///< work, of any stage of the rank, that its messages hide in other rounds

  double latency_us() const { return flags_us + first_tile_us; }
};

/// Where the time of a stage or message goes; us. They add up to it.
struct TimeParts {
  double synchronisation_us = 0;
  double wire_us = 0;
  double contention_us = 0;
  double codec_us = 0;
  double release_us = 0;

  double total_us() const {
    return synchronisation_us + wire_us + contention_us + codec_us + release_us;
  }
};

class KernelModel {
 public:
  /// Throws InvalidInput when the implementation is a library's and the device has none.
  KernelModel(const Device& device, const Plan& plan, Implementation implementation);

  double launch_us() const;
  /// Share of a link's bandwidth that is wire bytes, for what the outer codec packs them into.
  double link_efficiency() const;
  /// Bytes that a message is for a link of that efficiency: its own, but where the inner codec
  /// packs differently.
  std::uint64_t link_bytes(const PlannedMessage& message) const;

  /// What the sender's blocks can send to each peer of the stage, in wire bytes.
  double rate_cap_gb_per_s(const Stage& stage) const;

  StageCost cost_of(const Stage& stage) const;
  /// Whether the memory of the device makes the work of the stage as long as it is, not its
  /// arithmetic.
  bool is_memory_bound(const Stage& stage) const;
  /// The stage that decoding into the output would be.
  static Stage output_stage(std::uint64_t elements, std::uint64_t inner = 0) {
    return {.decoded = elements, .written = elements, .inner = {.decoded = inner}};
  }
  /// Decoding into the output what arrives at a rank that is not busy with a stage; `inner` of the
  /// elements with the inner codec.
  double output_us(std::uint64_t elements, std::uint64_t inner = 0) const {
    return work_us(output_stage(elements, inner));
  }

  /// From the last arrival in exchange for the stage's messages until the output that they make up
  /// is written; 0 where that is hidden, as without Device::blocks.
  double gather_us(const Stage& stage) const;

  /// Whether the time of a message depends on the bandwidth of its link beyond what the network
  /// says.
  bool knows_contention() const {
    return device_.stores && implementation_ == Implementation::kernel && !has_blocks();
  }
  /// From the begin of the stage until a message of it has left, given how long the network took
  /// for it, on a link of this bandwidth. Not before the network is done.
  TimeParts message_time(const Stage& stage, const StageCost& cost, const PlannedMessage& message,
                         double network_us, double link_gb_per_s) const;
  /// From the begin of the stage until its own work is done.
  TimeParts stage_time(const StageCost& cost) const;

 private:
  bool has_blocks() const {
    return implementation_ == Implementation::kernel && device_.blocks.has_value();
  }
  void plan_rounds();
  StageCost cost_with_blocks(const Stage& stage) const;
  double first_tile_with_blocks_us(const Stage& stage) const;
  TimeParts message_time_with_blocks(const StageCost& cost, double network_us) const;
  TimeParts message_time_with_stores(const Stage& stage, const StageCost& cost,
                                     const PlannedMessage& message, double network_us,
                                     double link_gb_per_s) const;
  double operations(const CodecCost& cost, const CodecWork& work) const;
  double operations(const Stage& stage) const;
  /// Of a codec to encode an element and decode it.
  static double operations(const CodecCost& cost) {
    return cost.encode_ops_per_element + cost.decode_ops_per_element;
  }
  double first_tile_operations(const Stage& stage) const;
  double operations(const PlannedMessage& message) const;
  double bytes_sent(const Stage& stage) const;

  double contention_us(const Stage& stage, const PlannedMessage& message,
                       double link_gb_per_s) const;
  double tiles_of(const Stage& stage) const;
  /// Read and written in the device's own memory.
  double memory_bytes(const Stage& stage) const;
  double arithmetic_us(const Stage& stage) const;
  double memory_us(const Stage& stage) const;
  double work_us(const Stage& stage) const;
  double measure_us(const Stage& stage) const;
  StageCost cost_without_measuring(const Stage& stage) const;
  double latency_overlap() const;

  const Device& device_;
  const Plan& plan_;
  Implementation implementation_;

  // with Device::blocks
  double largest_message_ = 1;           ///< elements
  double blocks_ = 1;                    ///< of the kernel
  std::vector<double> rounds_;           ///< by rank
  std::vector<double> work_us_by_byte_;  ///< by rank: all of its work / bytes that it sends
};

/// The protocol that the library takes for this payload: LL or Simple.
Implementation library_protocol(const Device& device, std::uint64_t payload_bytes, Rank world_size);

/// How many channels the library takes for this payload of a rank: 1 to Library::channels.
Rank library_channels(const Device& device, std::uint64_t payload_bytes);

}  // namespace arlab

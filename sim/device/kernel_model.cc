#include "sim/device/kernel_model.h"

#include <algorithm>
#include <cmath>

namespace arlab {
namespace {

constexpr double kPacketBytes = 64;

/// 10^9 operations per second are 10^3 per microsecond; the same for bytes.
double time_us(double amount, double giga_per_s) { return amount / (giga_per_s * 1e3); }

double overlapped(double a, double b, double p) {
  const double longer = std::max(a, b);
  if (longer <= 0) return 0;
  const double ratio = std::min(a, b) / longer;
  return longer * std::pow(1 + std::pow(ratio, p), 1 / p);
}

/// n (sqrt(1 + 2 x / n) - 1), without the loss of digits where x << n.
double linear_then_root(double x, double n) { return 2 * x / (std::sqrt(1 + 2 * x / n) + 1); }

/// 1/2 + 1/3 + ... + 1/n.
double harmonic_beyond_one(Rank n) {
  constexpr Rank kExact = 4096;
  if (n > kExact) return std::log(n) + 0.57721566490153286 - 1 + 0.5 / n;
  double sum = 0;
  for (Rank k = 2; k <= n; ++k) sum += 1.0 / k;
  return sum;
}

/// Shortens or lengthens parts so that they add up to `total`.
void scale(double& a, double& b, double total) {
  const double sum = a + b;
  const double factor = sum > 0 ? total / sum : 0;
  a *= factor;
  b *= factor;
}

const Library& library_of(const Device& device) {
  if (device.library) return *device.library;
  fail(
      "device '{}': its topology file has no section [library], which says how NCCL or RCCL "
      "behave on it",
      device.name);
}

}  // namespace

Implementation library_protocol(const Device& device, std::uint64_t payload_bytes,
                                Rank world_size) {
  const double per_rank = static_cast<double>(payload_bytes) / world_size;
  return per_rank <= library_of(device).low_latency_max_bytes.value ? Implementation::low_latency
                                                                    : Implementation::simple;
}

Rank library_channels(const Device& device, std::uint64_t payload_bytes) {
  const Library& library = library_of(device);
  const double worth_while = static_cast<double>(payload_bytes) / library.channel_bytes.value;
  return static_cast<Rank>(std::clamp(worth_while, 1.0, library.channels.value));
}

KernelModel::KernelModel(const Device& device, const Plan& plan, Implementation implementation)
    : device_(device), plan_(plan), implementation_(implementation) {
  if (implementation_ != Implementation::kernel) library_of(device);
  if (has_blocks()) plan_rounds();
}

void KernelModel::plan_rounds() {
  const Rank ranks = plan_.lists_one_rank() ? 1 : plan_.world_size;
  std::vector<double> work_us(ranks, 0);
  std::vector<double> sent(ranks, 0);
  std::vector<double> to_a_peer(ranks, 0);
  std::uint64_t largest = 1;
  for (const Stage& stage : plan_.stages) {
    work_us[stage.rank] += this->work_us(stage);
    sent[stage.rank] += bytes_sent(stage);
    std::uint64_t most = 0;  // of all the peers that the stage sends to
    for (std::uint32_t i = 0; i < stage.messages; ++i) {
      const PlannedMessage& message = plan_.messages[stage.first_message + i];
      most = std::max(most, message.bytes);
      largest = std::max(largest, message.elements);
    }
    to_a_peer[stage.rank] += static_cast<double>(most);
  }
  const Blocks& blocks = *device_.blocks;
  largest_message_ = static_cast<double>(largest);
  blocks_ =
      std::min(blocks.resident.value, std::ceil(largest_message_ / blocks.tile_elements.value));
  const double round_bytes = blocks.resident.value * blocks.slot_bytes.value;
  for (Rank rank = 0; rank < ranks; ++rank) {
    rounds_.push_back(std::max(1.0, to_a_peer[rank] / round_bytes));
    work_us_by_byte_.push_back(sent[rank] > 0 ? work_us[rank] / sent[rank] : 0);
  }
}

double KernelModel::launch_us() const {
  switch (implementation_) {
    case Implementation::low_latency:
      return device_.library->low_latency_us.value;
    case Implementation::simple:
      return device_.library->simple_us.value;
    case Implementation::kernel:
      break;
  }
  return device_.launch_us.value;
}

double KernelModel::link_efficiency() const {
  const bool exchanges = plan_.collective == Collective::all_to_all ||
                         plan_.collective == Collective::dispatch_combine;
  const double collective = exchanges ? device_.all_to_all_efficiency.value : 1;
  if (implementation_ == Implementation::low_latency) {
    return collective * device_.library->low_latency_efficiency.value;
  }
  // Wires are put together and leave in whole packets.
  if (has_blocks()) return collective;
  return collective * plan_.cost.store_efficiency;
}

std::uint64_t KernelModel::link_bytes(const PlannedMessage& message) const {
  const double packed_better = plan_.cost.store_efficiency / plan_.inner_cost.store_efficiency;
  if (implementation_ == Implementation::low_latency || has_blocks() || packed_better == 1) {
    return message.bytes;
  }
  const double inner = std::ceil(static_cast<double>(message.inner_bytes) * packed_better);
  return message.bytes - message.inner_bytes + static_cast<std::uint64_t>(inner);
}

double KernelModel::rate_cap_gb_per_s(const Stage& stage) const {
  if (implementation_ == Implementation::kernel) return kNoRateCap;
  const Rank channels = library_channels(device_, plan_.elements * size_of(plan_.dtype));
  const double blocks = static_cast<double>(channels) / plan_.channels;
  // What a block sends is packed as on the link.
  return blocks * device_.library->channel_gb_per_s.value * link_efficiency() / stage.messages;
}

double KernelModel::latency_overlap() const {
  return implementation_ == Implementation::kernel ? device_.latency_overlap.value : 1;
}

double KernelModel::tiles_of(const Stage& stage) const {
  // What a stage sends, and the share that stays on its rank.
  std::uint64_t elements = 0;
  std::uint64_t share = 0;
  for (std::uint32_t i = 0; i < stage.messages; ++i) {
    const PlannedMessage& message = plan_.messages[stage.first_message + i];
    elements += message.elements;
    share = std::max(share, message.elements);
  }
  const double bytes = static_cast<double>((elements + share) * size_of(plan_.dtype));
  return std::ceil(bytes / device_.stores->tile_bytes.value);
}

double KernelModel::memory_bytes(const Stage& stage) const {
  const auto element = static_cast<double>(size_of(plan_.dtype));
  // What is sent goes to the memory of others; their links are slower.
  return static_cast<double>(stage.encoded + stage.written) * element +
         static_cast<double>(stage.outer().decoded) * plan_.wire_bytes_per_element +
         static_cast<double>(stage.inner.decoded) * plan_.inner_wire_bytes_per_element;
}

double KernelModel::operations(const CodecCost& cost, const CodecWork& work) const {
  if (has_blocks()) {
    const double decoded =
        device_.decode_cost.value * static_cast<double>(work.received + work.gathered) +
        static_cast<double>(work.decoded - work.received - work.gathered);
    const double ops = cost.encode_ops_per_element * static_cast<double>(work.encoded) +
                       cost.decode_ops_per_element * decoded;
    return (cost.packed ? 1 : device_.blocks->unpacked_cost.value) * ops;
  }
  return cost.encode_ops_per_element * static_cast<double>(work.encoded) +
         device_.decode_cost.value * cost.decode_ops_per_element *
             static_cast<double>(work.decoded);
}

double KernelModel::operations(const Stage& stage) const {
  return operations(plan_.cost, stage.outer()) + operations(plan_.inner_cost, stage.inner);
}

double KernelModel::operations(const PlannedMessage& message) const {
  const double outer = message.bytes > message.inner_bytes ? operations(plan_.cost) : 0;
  return message.inner_bytes > 0 ? std::max(outer, operations(plan_.inner_cost)) : outer;
}

double KernelModel::first_tile_operations(const Stage& stage) const {
  const CodecWork outer = stage.outer();
  const CodecWork& inner = stage.inner;
  const auto slower = [&](double CodecCost::*ops, bool with_outer, bool with_inner) {
    return std::max(with_outer ? plan_.cost.*ops : 0, with_inner ? plan_.inner_cost.*ops : 0);
  };
  // What only encodes, or only decodes, counts with both directions of its codec.
  const bool encodes = stage.encoded > 0;
  const bool decodes = stage.decoded > 0;
  return slower(&CodecCost::encode_ops_per_element, encodes ? outer.encoded > 0 : outer.decoded > 0,
                encodes ? inner.encoded > 0 : inner.decoded > 0) +
         slower(&CodecCost::decode_ops_per_element, decodes ? outer.decoded > 0 : outer.encoded > 0,
                decodes ? inner.decoded > 0 : inner.encoded > 0);
}

double KernelModel::bytes_sent(const Stage& stage) const {
  double bytes = 0;
  for (std::uint32_t i = 0; i < stage.messages; ++i) {
    bytes += static_cast<double>(plan_.messages[stage.first_message + i].bytes);
  }
  return bytes;
}

double KernelModel::arithmetic_us(const Stage& stage) const {
  const double ops = operations(stage) + static_cast<double>(stage.added);
  return time_us(ops, device_.codec_gops_per_s.value);
}

double KernelModel::memory_us(const Stage& stage) const {
  return time_us(memory_bytes(stage), device_.hbm_gb_per_s.value);
}

bool KernelModel::is_memory_bound(const Stage& stage) const {
  return memory_us(stage) > arithmetic_us(stage);
}

double KernelModel::work_us(const Stage& stage) const {
  // Channels share the device evenly.
  return plan_.channels * std::max(arithmetic_us(stage), memory_us(stage));
}

namespace {

/// What a stage does when what its messages are exchanged for has come.
Stage gathering_of(const Stage& stage) {
  const std::uint64_t inner = stage.inner.gathered;
  return {.decoded = stage.gathered,
          .written = stage.gathered,
          .gathered = stage.gathered,
          .inner = {.decoded = inner, .gathered = inner}};
}

/// All the rest.
Stage before_gathering(Stage stage) {
  stage.decoded -= stage.gathered;
  stage.written -= stage.gathered;
  stage.gathered = 0;
  stage.inner.decoded -= stage.inner.gathered;
  stage.inner.gathered = 0;
  return stage;
}

}  // namespace

double KernelModel::first_tile_with_blocks_us(const Stage& stage) const {
  const double loaded = static_cast<double>(stage.loaded + stage.gathered);
  return (device_.blocks->load_us.value * loaded +
          device_.codec_tile_us_per_op.value * operations(stage)) /
         largest_message_;
}

StageCost KernelModel::cost_with_blocks(const Stage& stage) const {
  const Stage before = before_gathering(stage);
  const double rounds = rounds_[stage.rank];
  StageCost cost;
  cost.flags_us =
      device_.message_us.value * (static_cast<double>(stage.messages) + stage.extra_flags);
  if (stage.messages > 0) {
    cost.flags_us += device_.step_us.value + device_.blocks->release_us.value * blocks_;
  }
  cost.first_tile_us = first_tile_with_blocks_us(before);
  cost.work_us = work_us(before) / rounds;
  cost.hidden_us = (1 - 1 / rounds) * work_us_by_byte_[stage.rank] * bytes_sent(stage);
  cost.rounds = rounds;
  return cost;
}

double KernelModel::gather_us(const Stage& stage) const {
  if (!has_blocks() || stage.gathered == 0) return 0;
  const Stage gathering = gathering_of(stage);
  return overlapped(first_tile_with_blocks_us(gathering), work_us(gathering) / rounds_[stage.rank],
                    latency_overlap());
}

double KernelModel::measure_us(const Stage& stage) const {
  if (implementation_ != Implementation::kernel) return 0;
  const double measured =
      static_cast<double>((plan_.cost.measures ? stage.outer().encoded : 0) +
                          (plan_.inner_cost.measures ? stage.inner.encoded : 0));
  if (measured == 0) return 0;
  // Input is read once more. Sums are complete when a kernel ends: written, measured, read.
  const double passes = stage.added > 0 ? 3 : 1;
  const double kernels = stage.added > 0 ? 2 : 1;
  return kernels * device_.launch_us.value +
         time_us(passes * measured * static_cast<double>(size_of(plan_.dtype)),
                 device_.hbm_gb_per_s.value);
}

StageCost KernelModel::cost_of(const Stage& stage) const {
  StageCost cost = cost_without_measuring(stage);
  cost.measure_us = measure_us(stage);
  return cost;
}

StageCost KernelModel::cost_without_measuring(const Stage& stage) const {
  if (has_blocks()) return cost_with_blocks(stage);
  StageCost cost;
  cost.work_us = work_us(stage);
  const double peers = static_cast<double>(stage.messages) + stage.extra_flags;
  switch (implementation_) {
    case Implementation::low_latency:
      return cost;  // all of it is in launch_us()
    case Implementation::simple:
      if (stage.messages > 0)
        cost.flags_us = device_.library->simple_message_us.value * (peers + 1);
      return cost;
    case Implementation::kernel:
      break;
  }
  cost.flags_us =
      (stage.messages > 0 ? device_.step_us.value : 0) + device_.message_us.value * peers;
  if (const double ops = first_tile_operations(stage); ops > 0) {
    cost.first_tile_us =
        device_.codec_tile_us_per_op.value * (ops + device_.codec_tile_fixed_ops.value);
  }
  if (device_.stores && stage.messages > 0) {
    cost.release_us =
        device_.stores->release_us.value *
        linear_then_root(tiles_of(stage), device_.stores->release_coalescing_tiles.value);
  }
  return cost;
}

double KernelModel::contention_us(const Stage& stage, const PlannedMessage& message,
                                  double link_gb_per_s) const {
  if (!device_.stores || implementation_ != Implementation::kernel) return 0;
  const Stores& stores = *device_.stores;
  const bool codec = operations(message) > 0;
  const double packets =
      (static_cast<double>(message.bytes - message.inner_bytes) / plan_.cost.store_efficiency +
       static_cast<double>(message.inner_bytes) / plan_.inner_cost.store_efficiency) /
      kPacketBytes;
  const double resident =
      packets * std::min(1.0, stores.resident_tiles.value / std::max(1.0, tiles_of(stage)));
  const double free = codec ? stores.free_packets_codec.value : stores.free_packets_plain.value;
  const double share = codec ? stores.contention_codec.value : stores.contention_plain.value;
  const double crowded = std::hypot(resident, free) - free;
  const double waiting = share * harmonic_beyond_one(stage.messages) *
                         linear_then_root(crowded, stores.decorrelation_packets.value);
  return time_us(waiting * kPacketBytes, link_gb_per_s);
}

namespace {

/// Of two overlapped times the longer one in full, the other one with what it adds.
void book(double a, double b, double total, double& part_a, double& part_b) {
  part_a += a >= b ? a : total - b;
  part_b += a >= b ? total - a : b;
}

}  // namespace

TimeParts KernelModel::message_time_with_blocks(const StageCost& cost, double network_us) const {
  const double overlap = device_.codec_overlap.value;
  TimeParts parts;
  parts.synchronisation_us = cost.flags_us;
  // The round that nothing hides.
  const double wire_us = network_us / cost.rounds;
  const double moved_us = overlapped(wire_us, cost.work_us, overlap);
  const double total_us = overlapped(cost.first_tile_us, moved_us, latency_overlap());
  double moved_part_us = 0;
  book(cost.first_tile_us, moved_us, total_us, parts.codec_us, moved_part_us);
  double wire_part_us = 0;
  double codec_part_us = 0;
  book(wire_us, cost.work_us, moved_us, wire_part_us, codec_part_us);
  scale(wire_part_us, codec_part_us, moved_part_us);
  parts.wire_us = wire_part_us;
  parts.codec_us += codec_part_us;
  // The others.
  const double others_us = network_us - wire_us;
  book(others_us, cost.hidden_us, overlapped(others_us, cost.hidden_us, overlap), parts.wire_us,
       parts.codec_us);
  return parts;
}

TimeParts KernelModel::message_time(const Stage& stage, const StageCost& cost,
                                    const PlannedMessage& message, double network_us,
                                    double link_gb_per_s) const {
  TimeParts parts = has_blocks()
                        ? message_time_with_blocks(cost, network_us)
                        : message_time_with_stores(stage, cost, message, network_us, link_gb_per_s);
  parts.codec_us += cost.measure_us;
  return parts;
}

TimeParts KernelModel::message_time_with_stores(const Stage& stage, const StageCost& cost,
                                                const PlannedMessage& message, double network_us,
                                                double link_gb_per_s) const {
  TimeParts parts;
  parts.synchronisation_us = cost.flags_us;
  parts.wire_us = network_us;
  parts.contention_us = contention_us(stage, message, link_gb_per_s);
  const double wire_us = parts.wire_us + parts.contention_us;
  const double moved_us = overlapped(wire_us, cost.work_us, device_.codec_overlap.value);
  const double throughput_us = std::max(moved_us, cost.release_us);
  const double total_us = overlapped(cost.latency_us(), throughput_us, latency_overlap());

  // The longer of two overlapped times is booked in full, the other one with what it adds.
  double codec_us = moved_us - wire_us;
  if (cost.work_us > wire_us) {
    codec_us = cost.work_us;
    scale(parts.wire_us, parts.contention_us, moved_us - codec_us);
  }
  parts.release_us = throughput_us - moved_us;
  double first_tile_us = cost.first_tile_us;
  if (throughput_us >= cost.latency_us()) {
    scale(parts.synchronisation_us, first_tile_us, total_us - throughput_us);
  } else if (throughput_us > 0) {
    const double factor = (total_us - cost.latency_us()) / throughput_us;
    for (double* part : {&parts.wire_us, &parts.contention_us, &parts.release_us, &codec_us}) {
      *part *= factor;
    }
  }
  parts.codec_us = codec_us + first_tile_us;
  return parts;
}

TimeParts KernelModel::stage_time(const StageCost& cost) const {
  TimeParts parts;
  parts.synchronisation_us = cost.flags_us;
  if (has_blocks()) {
    parts.codec_us =
        cost.measure_us + overlapped(cost.first_tile_us, cost.work_us, latency_overlap());
    return parts;
  }
  const double throughput_us = std::max(cost.work_us, cost.release_us);
  const double total_us = overlapped(cost.latency_us(), throughput_us, latency_overlap());
  double first_tile_us = cost.first_tile_us;
  double rest_us = throughput_us;
  if (throughput_us >= cost.latency_us()) {
    scale(parts.synchronisation_us, first_tile_us, total_us - throughput_us);
  } else {
    rest_us = total_us - cost.latency_us();
  }
  const double released = throughput_us > cost.work_us ? 1 - cost.work_us / throughput_us : 0;
  parts.release_us = rest_us * released;
  parts.codec_us = cost.measure_us + first_tile_us + rest_us * (1 - released);
  return parts;
}

}  // namespace arlab

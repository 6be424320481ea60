#include "sim/device/fused_kernel.h"

#include <algorithm>
#include <cmath>

#include "sim/device/times.h"

namespace arlab {
namespace {

constexpr double kPacketBytes = 64;

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

}  // namespace

double FusedKernel::link_efficiency() const {
  // Messages by cards and PCIe are packed anew.
  return collective_efficiency() * (device_.stores ? plan_.cost.store_efficiency : 1);
}

std::uint64_t FusedKernel::link_bytes(const PlannedMessage& message) const {
  if (!device_.stores) return message.bytes;
  const double packed_better = plan_.cost.store_efficiency / plan_.inner_cost.store_efficiency;
  if (packed_better == 1) return message.bytes;
  const double inner = std::ceil(static_cast<double>(message.inner_bytes) * packed_better);
  return message.bytes - message.inner_bytes + static_cast<std::uint64_t>(inner);
}

double FusedKernel::tiles_of(const Stage& stage) const {
  // Elements that a stage sends, and the share that stays on its rank.
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

bool FusedKernel::uses_codec(const PlannedMessage& message) const {
  const auto computes = [](const CodecCost& cost) {
    return cost.encode_ops_per_element + cost.decode_ops_per_element > 0;
  };
  return (message.bytes > message.inner_bytes && computes(plan_.cost)) ||
         (message.inner_bytes > 0 && computes(plan_.inner_cost));
}

double FusedKernel::first_tile_operations(const Stage& stage) const {
  const CodecWork outer = stage.outer();
  const CodecWork& inner = stage.inner;
  const auto slower = [&](double CodecCost::* ops, bool with_outer, bool with_inner) {
    return std::max(with_outer ? plan_.cost.*ops : 0, with_inner ? plan_.inner_cost.*ops : 0);
  };
  // A stage that only encodes, or only decodes, counts with both directions of its codec.
  const bool encodes = stage.encoded > 0;
  const bool decodes = stage.decoded > 0;
  return slower(&CodecCost::encode_ops_per_element, encodes ? outer.encoded > 0 : outer.decoded > 0,
                encodes ? inner.encoded > 0 : inner.decoded > 0) +
         slower(&CodecCost::decode_ops_per_element, decodes ? outer.decoded > 0 : outer.encoded > 0,
                decodes ? inner.decoded > 0 : inner.encoded > 0);
}

StageCost FusedKernel::cost_without_measuring(const Stage& stage) const {
  StageCost cost;
  cost.work_us = work_us(stage);
  const double peers = static_cast<double>(stage.messages) + stage.extra_flags;
  cost.flags_us =
      (stage.messages > 0 ? device_.step_us.value : 0) + device_.message_us.value * peers;
  const double bf16_cost = plan_.dtype == DType::bf16 ? device_.bf16_tile_cost.value : 0;
  const double sums = bf16_cost > 0 && stage.added > 0 ? 1 : 0;
  if (const double ops = first_tile_operations(stage) + sums; ops > 0) {
    const double cost_of_op = bf16_cost > 0 ? bf16_cost : operation_cost();
    cost.first_tile_us = device_.codec_tile_us_per_op.value *
                         (ops * cost_of_op + device_.codec_tile_fixed_ops.value);
  }
  if (device_.stores && stage.messages > 0) {
    cost.release_us =
        device_.stores->release_us.value *
        linear_then_root(tiles_of(stage), device_.stores->release_coalescing_tiles.value);
  }
  return cost;
}

double FusedKernel::contention_us(const Stage& stage, const PlannedMessage& message,
                                  double link_gb_per_s) const {
  if (!knows_contention()) return 0;
  const Stores& stores = *device_.stores;
  const bool codec = uses_codec(message);
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

TimeParts FusedKernel::time_without_measuring(const Stage& stage, const StageCost& cost,
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

TimeParts FusedKernel::stage_time(const StageCost& cost) const {
  TimeParts parts;
  parts.synchronisation_us = cost.flags_us;
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

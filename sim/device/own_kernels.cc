#include "sim/device/own_kernels.h"

#include <algorithm>
#include <cmath>

#include "sim/device/times.h"

namespace arlab {

// ---------------------------------------------------------------- arlab's own

OwnKernelModel::OwnKernelModel(const Device& device, const Plan& plan, bool is_program)
    : KernelModel(device, plan),
      chunk_(std::max(1.0, static_cast<double>(plan.largest_chunk))),
      tiles_(tiles_of(chunk_)),
      outer_(operations_of(plan.codec, plan.cost, is_program)),
      inner_(operations_of(plan.inner_codec, plan.inner_cost, is_program)),
      outer_tile_(in_a_tile(outer_)),
      inner_tile_(in_a_tile(inner_)) {}

OwnKernelModel::Operations OwnKernelModel::operations_of(const std::string& codec,
                                                         const CodecCost& cost,
                                                         bool is_program) const {
  constexpr double kOfAThread = 8;  // elements
  const auto named = [&](std::string_view name) {
    return std::ranges::find(device_.codecs, name, &CodecTimes::codec);
  };
  auto known = is_program ? named(codec + std::string(kInPrograms)) : device_.codecs.end();
  if (known == device_.codecs.end()) known = named(codec);
  double encode = 1;
  double decode = 1;
  if (known == device_.codecs.end()) {
    known = named(cost.packed ? kPackedOperation : kOperation);
    encode = cost.encode_ops_per_element;
    decode = cost.decode_ops_per_element;
    if (known == device_.codecs.end()) return {encode, decode};
  }
  const CodecTimes::Instructions& counted = plan_.dtype == DType::fp16 ? known->fp16 : known->bf16;
  return {encode * counted.encode / kOfAThread, decode * counted.decode / kOfAThread, known->slots,
          known->cycles};
}

OwnKernelModel::Operations OwnKernelModel::in_a_tile(const Operations& codec) const {
  const Operations plain = operations_of(std::string(name_of(plan_.dtype)), {}, false);
  // Small messages are whole blocks, whatever a codec sends of an element on average.
  double sent = 0;
  double of_plain = 0;
  for (const PlannedMessage& message : plan_.messages) {
    sent += static_cast<double>(message.bytes);
    of_plain += static_cast<double>(message.elements * size_of(plan_.dtype));
  }
  const double share = sent < of_plain ? sent / of_plain : 1;
  return {std::max(codec.cycles * codec.encode, share * plain.cycles * plain.encode),
          std::max(codec.cycles * codec.decode, share * plain.cycles * plain.decode)};
}

double OwnKernelModel::counted(const Operations& per_element, const CodecWork& work) const {
  const double decoded =
      device_.decode_cost.value * static_cast<double>(work.received + work.gathered) +
      static_cast<double>(work.decoded - work.received - work.gathered);
  return per_element.encode * static_cast<double>(work.encoded) + per_element.decode * decoded;
}

double OwnKernelModel::operations(const CodecCost& cost, const CodecWork& work) const {
  const Operations& per_element = &cost == &plan_.inner_cost ? inner_ : outer_;
  return per_element.slots * counted(per_element, work);
}

double OwnKernelModel::tile_operations(const Stage& stage) const {
  return counted(outer_tile_, stage.outer()) + counted(inner_tile_, stage.inner);
}

double OwnKernelModel::chunk_of(const Stage& stage) const {
  return stage.chunk > 0 ? static_cast<double>(stage.chunk) : chunk_;
}

double OwnKernelModel::tiles_of(double elements) const {
  return std::ceil(elements / device_.blocks->tile_elements.value);
}

double OwnKernelModel::fixed_measure_us(bool) const { return device_.blocks->meet_us.value; }

namespace {

/// Returns the work of a stage once the peers' messages of its exchange have arrived.
Stage gathering_of(const Stage& stage) {
  const std::uint64_t inner = stage.inner.gathered;
  return {.decoded = stage.gathered,
          .written = stage.gathered,
          .gathered = stage.gathered,
          .chunk = stage.chunk,
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

// ---------------------------------------------------------------- flags

FlagsKernel::FlagsKernel(const Device& device, const Plan& plan, bool is_program)
    : OwnKernelModel(device, plan, is_program),
      is_program_(is_program),
      blocks_(std::min(device.blocks->resident.value, tiles_)) {}

double FlagsKernel::first_tile_us(const Stage& stage) const {
  const double loaded = static_cast<double>(stage.loaded + stage.gathered);
  return (device_.blocks->load_us.value * loaded +
          device_.codec_tile_us_per_op.value * tile_operations(stage)) /
         chunk_of(stage);
}

double FlagsKernel::other_tiles_us(const Stage& stage) const {
  const double arithmetic = arithmetic_us(stage);
  // Uncompressed tensors have the loads of all tiles in flight together.
  const auto computes = [](const CodecCost& cost) {
    return cost.encode_ops_per_element + cost.decode_ops_per_element > 0;
  };
  if (!computes(plan_.cost) && !computes(plan_.inner_cost)) return arithmetic;
  return std::max(arithmetic, (tiles_of(chunk_of(stage)) / blocks_ - 1) * first_tile_us(stage));
}

StageCost FlagsKernel::cost_without_measuring(const Stage& stage) const {
  const Stage before = before_gathering(stage);
  StageCost cost;
  cost.flags_us =
      device_.message_us.value * (static_cast<double>(stage.messages) + stage.extra_flags);
  // All ranks of a program take part in every exchange.
  if (stage.messages > 0 || (is_program_ && stage.dependents > 0)) {
    cost.flags_us += device_.step_us.value + device_.blocks->release_us.value * blocks_;
    if (is_program_) cost.flags_us += device_.blocks->phase_us.value;
  }
  cost.first_tile_us = first_tile_us(before);
  cost.work_us = std::max(other_tiles_us(before), memory_us(before));
  return cost;
}

double FlagsKernel::gather_us(const Stage& stage) const {
  if (stage.gathered == 0) return 0;
  const Stage gathering = gathering_of(stage);
  const double work_us = std::max(other_tiles_us(gathering), memory_us(gathering));
  return overlapped(first_tile_us(gathering), work_us, device_.latency_overlap.value);
}

TimeParts FlagsKernel::time_without_measuring(const Stage& stage, const StageCost& cost,
                                              const PlannedMessage&, double network_us,
                                              double) const {
  TimeParts parts;
  parts.synchronisation_us = cost.flags_us;
  const Stage before = before_gathering(stage);
  const double moved_us =
      std::max(overlapped(network_us, other_tiles_us(before), device_.codec_overlap.value),
               memory_us(before));
  const double total_us = overlapped(cost.first_tile_us, moved_us, device_.latency_overlap.value);
  double moved_part_us = 0;
  book(cost.first_tile_us, moved_us, total_us, parts.codec_us, moved_part_us);
  double wire_part_us = 0;
  double codec_part_us = 0;
  book(network_us, cost.work_us, moved_us, wire_part_us, codec_part_us);
  scale(wire_part_us, codec_part_us, moved_part_us);
  parts.wire_us = wire_part_us;
  parts.codec_us += codec_part_us;
  return parts;
}

TimeParts FlagsKernel::stage_time(const StageCost& cost) const {
  TimeParts parts;
  parts.synchronisation_us = cost.flags_us;
  parts.codec_us =
      cost.measure_us + overlapped(cost.first_tile_us, cost.work_us, device_.latency_overlap.value);
  return parts;
}

// ---------------------------------------------------------------- one tile per block

SmallKernel::SmallKernel(const Device& device, const Plan& plan) : OwnKernelModel(device, plan) {
  for (const Stage& stage : plan.stages) {
    if (stage.messages > 0) steps_ = std::max(steps_, stage.step + 1);
  }
}

double SmallKernel::tile_us(const Stage& stage) const {
  const double besides_us = device_.small->work_cost.value * work_us(stage);
  return device_.small->tile_us_per_op.value * tile_operations(stage) / chunk_of(stage) +
         besides_us;
}

StageCost SmallKernel::cost_without_measuring(const Stage& stage) const {
  StageCost cost;
  cost.first_tile_us = tile_us(before_gathering(stage));
  const double flags = static_cast<double>(stage.messages) + stage.extra_flags;
  if (flags > 0) cost.flags_us = device_.small->message_us.value * (flags - 1);
  if (stage.messages > 0) {
    cost.flags_us += device_.small->step_us.value;
  }
  return cost;
}

double SmallKernel::gather_us(const Stage& stage) const {
  return stage.gathered == 0 ? 0 : tile_us(gathering_of(stage));
}

TimeParts SmallKernel::time_without_measuring(const Stage&, const StageCost& cost,
                                              const PlannedMessage&, double network_us,
                                              double) const {
  TimeParts parts = stage_time(cost);
  parts.wire_us = device_.small->wire_cost.value * network_us / steps_;
  return parts;
}

TimeParts SmallKernel::stage_time(const StageCost& cost) const {
  return {.synchronisation_us = cost.flags_us, .codec_us = cost.measure_us + cost.first_tile_us};
}

}  // namespace arlab

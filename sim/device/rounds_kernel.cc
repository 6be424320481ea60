#include "sim/device/rounds_kernel.h"

#include <algorithm>
#include <cmath>

#include "sim/device/times.h"

namespace arlab {

// ---------------------------------------------------------------- arlab's own

OwnKernelModel::OwnKernelModel(const Device& device, const Plan& plan)
    : KernelModel(device, plan),
      outer_(operations_of(plan.codec, plan.cost)),
      inner_(operations_of(plan.inner_codec, plan.inner_cost)) {
  for (const PlannedMessage& message : plan.messages) {
    largest_message_ = std::max(largest_message_, static_cast<double>(message.elements));
  }
  tiles_ = std::ceil(largest_message_ / device.blocks->tile_elements.value);
}

OwnKernelModel::Operations OwnKernelModel::operations_of(const std::string& codec,
                                                         const CodecCost& cost) const {
  constexpr double kOfAThread = 8;  // elements
  const auto named = [&](std::string_view name) {
    return std::ranges::find(device_.codecs, name, &CodecTimes::codec);
  };
  auto known = named(codec);
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
  return outer_.cycles * counted(outer_, stage.outer()) +
         inner_.cycles * counted(inner_, stage.inner);
}

double OwnKernelModel::fixed_measure_us(bool) const { return device_.blocks->meet_us.value; }

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

// ---------------------------------------------------------------- flags in rounds

RoundsKernel::RoundsKernel(const Device& device, const Plan& plan, double phase_us)
    : OwnKernelModel(device, plan),
      phase_us_(phase_us),
      blocks_(std::min(device.blocks->resident.value, tiles_)) {
  const Rank ranks = plan.lists_one_rank() ? 1 : plan.world_size;
  std::vector<double> work_us(ranks, 0);
  std::vector<double> sent(ranks, 0);
  std::vector<double> to_a_peer(ranks, 0);
  for (const Stage& stage : plan.stages) {
    work_us[stage.rank] += this->work_us(stage);
    sent[stage.rank] += bytes_sent(stage);
    std::uint64_t most = 0;  // of all the peers that the stage sends to
    for (std::uint32_t i = 0; i < stage.messages; ++i) {
      most = std::max(most, plan.messages[stage.first_message + i].bytes);
    }
    to_a_peer[stage.rank] += static_cast<double>(most);
  }
  const double round_bytes = device.blocks->resident.value * device.blocks->slot_bytes.value;
  for (Rank rank = 0; rank < ranks; ++rank) {
    rounds_.push_back(std::max(1.0, to_a_peer[rank] / round_bytes));
    work_us_by_byte_.push_back(sent[rank] > 0 ? work_us[rank] / sent[rank] : 0);
  }
}

double RoundsKernel::first_tile_us(const Stage& stage) const {
  const double loaded = static_cast<double>(stage.loaded + stage.gathered);
  return (device_.blocks->load_us.value * loaded +
          device_.codec_tile_us_per_op.value * tile_operations(stage)) /
         largest_message_;
}

StageCost RoundsKernel::cost_without_measuring(const Stage& stage) const {
  const Stage before = before_gathering(stage);
  const double rounds = rounds_[stage.rank];
  StageCost cost;
  cost.flags_us =
      device_.message_us.value * (static_cast<double>(stage.messages) + stage.extra_flags);
  if (stage.messages > 0) {
    cost.flags_us += phase_us_ + device_.step_us.value + device_.blocks->release_us.value * blocks_;
  }
  cost.first_tile_us = first_tile_us(before);
  cost.work_us = work_us(before) / rounds;
  cost.hidden_us = (1 - 1 / rounds) * work_us_by_byte_[stage.rank] * bytes_sent(stage);
  cost.rounds = rounds;
  return cost;
}

double RoundsKernel::gather_us(const Stage& stage) const {
  if (stage.gathered == 0) return 0;
  const Stage gathering = gathering_of(stage);
  return overlapped(first_tile_us(gathering), work_us(gathering) / rounds_[stage.rank],
                    device_.latency_overlap.value);
}

TimeParts RoundsKernel::time_without_measuring(const Stage&, const StageCost& cost,
                                               const PlannedMessage&, double network_us,
                                               double) const {
  const double overlap = device_.codec_overlap.value;
  TimeParts parts;
  parts.synchronisation_us = cost.flags_us;
  // The round that nothing hides.
  const double wire_us = network_us / cost.rounds;
  const double moved_us = overlapped(wire_us, cost.work_us, overlap);
  const double total_us = overlapped(cost.first_tile_us, moved_us, device_.latency_overlap.value);
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

TimeParts RoundsKernel::stage_time(const StageCost& cost) const {
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
  return device_.small->tile_us_per_op.value * tile_operations(stage) / largest_message_ +
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

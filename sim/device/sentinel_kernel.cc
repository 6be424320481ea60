#include "sim/device/sentinel_kernel.h"

#include <algorithm>
#include <cmath>

#include "reference/device_facts/kernel_rules.h"
#include "sim/device/times.h"

namespace arlab {
namespace {

constexpr double kAccessBytes = 4096;       ///< 16 of each of 256 threads
constexpr std::uint64_t kItemBytes = 4352;  ///< largest item of one_shot

/// Returns the tiles of a chunk in an item.
std::uint32_t tiles_of_item(const Plan& plan, std::uint64_t tile_bytes) {
  if (plan.algorithm == "two_shot") return plan.world_size == 2 ? 2 : 1;
  return 2 * tile_bytes <= kItemBytes ? 2 : 1;
}

}  // namespace

SentinelKernel::SentinelKernel(const Device& device, const Plan& plan)
    : OwnKernelModel(device, plan), steps_(plan.algorithm == "two_shot" ? 2 : 1) {
  const auto tile = static_cast<std::uint64_t>(device.blocks->tile_elements.value);
  const std::uint64_t tile_bytes = kernel_tile_bytes(plan.codec, plan.dtype, tile);
  tiles_of_item_ = tiles_of_item(plan, tile_bytes);
  const double peers = plan.world_size - 1.0;
  accesses_ = std::ceil(peers * tiles_of_item_ * static_cast<double>(tile_bytes) / kAccessBytes);
  turns_ = std::ceil(tiles_ / tiles_of_item_) / device.blocks->resident.value;

  std::vector<Stage> all(plan.lists_one_rank() ? 1 : plan.world_size);
  for (const Stage& stage : plan.stages) {
    Stage& sum = all[stage.rank];
    sum.encoded += stage.encoded;
    sum.decoded += stage.decoded;
    sum.gathered += stage.gathered;
    sum.received += stage.received;
    sum.added += stage.added;
    sum.written += stage.written;
  }
  for (const Stage& sum : all) of_rank_.push_back(cost_of_steps(sum, steps_));
}

StageCost SentinelKernel::cost_of_steps(const Stage& sum, double steps) const {
  const Sentinels& sentinels = *device_.sentinels;
  const double filled = -std::expm1(-std::max(0.0, turns_ - 1) / sentinels.fill_turns.value);
  const double work = work_us(sum);
  const double tile_us =
      sentinels.tile_us_per_op.value * tiles_of_item_ * tile_operations(sum) / chunk_;
  const double turn_us = sentinels.turn_cost.value * work / std::max(turns_, 1.0);
  return {
      .flags_us = steps * (sentinels.step_us.value + sentinels.access_us.value * (accesses_ - 1) +
                           sentinels.fill_us.value * filled),
      .first_tile_us = tile_us + turn_us * filled,
      .hidden_us = work};
}

StageCost SentinelKernel::cost_without_measuring(const Stage& stage) const {
  if (!measures_first(plan_.cost)) return of_rank_[stage.rank];
  return cost_of_steps(stage, stage.messages > 0 ? 1 : 0);
}

TimeParts SentinelKernel::time_without_measuring(const Stage&, const StageCost& cost,
                                                 const PlannedMessage&, double network_us,
                                                 double) const {
  TimeParts parts{.synchronisation_us = cost.flags_us, .codec_us = cost.first_tile_us};
  book(network_us, cost.hidden_us, std::max(network_us, cost.hidden_us), parts.wire_us,
       parts.codec_us);
  return parts;
}

TimeParts SentinelKernel::stage_time(const StageCost& cost) const {
  return {.synchronisation_us = cost.flags_us,
          .codec_us = cost.measure_us + cost.first_tile_us + cost.hidden_us};
}

}  // namespace arlab

#include "sim/device/kernel_choice.h"

#include <algorithm>

#include "reference/device_facts/kernel_rules.h"

namespace arlab {
namespace {

/// one_shot or two_shot as they are by default, and no schedule of the same name.
bool is_default(const Plan& plan, std::uint32_t steps) {
  if (plan.collective != Collective::all_reduce || plan.channels > 1) return false;
  if (!plan.inner_codec.empty() || plan.world_size < 2) return false;
  // Chunks of small tensors may be empty.
  const std::uint64_t listed = plan.lists_one_rank() ? 1 : plan.world_size;
  if (plan.messages.size() > listed * steps * (plan.world_size - 1)) return false;
  return std::none_of(plan.stages.begin(), plan.stages.end(), [steps](const Stage& stage) {
    return stage.messages > 0 && stage.step >= steps;
  });
}

}  // namespace

OwnKernel own_kernel_of(const Device& device, const Plan& plan) {
  const bool is_two_shot = plan.algorithm == "two_shot";
  const bool is_shot = is_two_shot || plan.algorithm == "one_shot";
  if (is_shot && !is_default(plan, is_two_shot ? 2 : 1)) return OwnKernel::program;

  const auto tile = static_cast<std::uint64_t>(device.blocks->tile_elements.value);
  KernelCall call{.codec = codec_in_kernels(plan.codec, plan.dtype),
                  .ranks = static_cast<int>(plan.world_size)};
  if (!call.codec.is_tuned) {  // maybe the caller's own, with an unknown name
    return is_shot || plan.algorithm == "ring" ? OwnKernel::flags : OwnKernel::program;
  }
  call.has_lamport = device.small.has_value() && size_of(plan.dtype) == 2;
  call.has_sentinels =
      device.sentinels && plan.world_size <= (is_two_shot ? kTwoShotSentinelRanks : 2);
  call.blocks = static_cast<std::size_t>(device.blocks->resident.value);
  call.lamport_blocks =
      call.blocks * static_cast<std::size_t>(call.codec.lamport_blocks) / kKernelBlocks;
  call.tile_bytes = kernel_tile_bytes(plan.codec, plan.dtype, tile);
  call.all_tiles_whole = true;
  for (const PlannedMessage& message : plan.messages) {
    call.tiles = std::max<std::size_t>(call.tiles, (message.elements + tile - 1) / tile);
    call.all_tiles_whole = call.all_tiles_whole && message.elements % tile == 0;
  }
  const KernelRule* rule = find_kernel_rule(plan.algorithm, call);
  if (rule == nullptr) return OwnKernel::program;
  if (rule->kernel.ends_with("_sentinel")) return OwnKernel::sentinels;
  return rule->kernel.ends_with("_lamport") ? OwnKernel::small : OwnKernel::flags;
}

std::string_view kernel_in_words(const Device& device, const Plan& plan) {
  if (plan.library) return "";
  if (!device.blocks) return "fused";
  switch (own_kernel_of(device, plan)) {
    case OwnKernel::flags:
      return "flags";
    case OwnKernel::small:
      return "Lamport slots";
    case OwnKernel::sentinels:
      return "sentinel slots";
    case OwnKernel::program:
      break;
  }
  return "program, flags";
}

}  // namespace arlab

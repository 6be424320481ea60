#include "sim/device/kernel_choice.h"

#include <algorithm>
#include <bit>

#include "reference/codecs/anybit.h"
#include "reference/codecs/formats/fp8_blocks.h"
#include "reference/codecs/formats/mx.h"
#include "reference/codecs/formats/mxint8.h"
#include "reference/codecs/registry.h"

namespace arlab {
namespace {

/// In sentinel slots, wires of more than this begin two accesses of each thread.
constexpr std::uint64_t kShortWire = 1408;
constexpr std::uint64_t kLongestWire = 2176;
constexpr Rank kMostSentinelRanks = 4;

/// Of 4 to 32 lanes of a wave.
bool is_group_in_kernels(std::size_t elements) {
  return std::has_single_bit(elements) && elements >= 32 && elements <= 256;
}

/// Any-bit and logarithmic formats with groups of lanes, microscaling, and fp8 in blocks of 128.
bool is_block_format_in_kernels(std::string_view codec) {
  if (const auto format = parse_anybit(codec)) {
    return !format->given && is_group_in_kernels(format->group);
  }
  if (codec.starts_with("logfmt")) return is_group_in_kernels(find_codec(codec)->info().block);
  return Mx::parse(codec) || MxInt8::parse(codec) || Fp8Blocks<128>::parse(codec);
}

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

CodecInKernels codec_in_kernels(std::string_view codec, DType dtype) {
  if (codec == name_of(dtype)) return {.is_tuned = true, .pads_tiles = true};
  if (size_of(dtype) != 2) return {};
  if (codec.starts_with("qr-")) {
    return {.is_tuned = true, .pads_tiles = true, .converts_fp8 = codec == "qr-fp8"};
  }
  const bool is_abstract = codec.find('=') != std::string_view::npos;
  return {.is_tuned = is_abstract || is_block_format_in_kernels(codec),
          .pads_tiles = is_abstract,
          .has_spikes = codec.find("-sr") != std::string_view::npos};
}

std::uint64_t tile_bytes_of(const Plan& plan, std::uint64_t tile_elements) {
  return (find_codec(plan.codec)->wire_bytes(plan.dtype, tile_elements) + 15) / 16 * 16;
}

OwnKernel own_kernel_of(const Device& device, const Plan& plan) {
  if (!device.small && !device.sentinels) return OwnKernel::rounds;
  const bool is_two_shot = plan.algorithm == "two_shot";
  if (!is_two_shot && plan.algorithm != "one_shot") return OwnKernel::rounds;
  if (!is_default(plan, is_two_shot ? 2 : 1)) return OwnKernel::rounds;
  const CodecInKernels codec = codec_in_kernels(plan.codec, plan.dtype);
  if (!codec.is_tuned) return OwnKernel::rounds;

  const auto tile = static_cast<std::uint64_t>(device.blocks->tile_elements.value);
  const auto blocks = static_cast<std::uint64_t>(device.blocks->resident.value);
  std::uint64_t tiles = 0;
  bool all_whole = true;
  for (const PlannedMessage& message : plan.messages) {
    tiles = std::max(tiles, (message.elements + tile - 1) / tile);
    all_whole = all_whole && message.elements % tile == 0;
  }
  const bool is_large = 8 * tiles > blocks;
  if (device.sentinels && size_of(plan.dtype) == 2) {
    const std::uint64_t bytes = tile_bytes_of(plan, tile);
    const bool has_room = bytes <= kLongestWire || codec.pads_tiles;
    if (!is_two_shot && plan.world_size == 2 && is_large && has_room) return OwnKernel::sentinels;
    if (is_two_shot && plan.world_size <= kMostSentinelRanks) {
      if (bytes <= kLongestWire && (is_large || bytes <= kShortWire)) return OwnKernel::sentinels;
    }
  }
  if (device.small && tiles <= blocks && (codec.pads_tiles || all_whole)) return OwnKernel::small;
  return OwnKernel::rounds;
}

}  // namespace arlab

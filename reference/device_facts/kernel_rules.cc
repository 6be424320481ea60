#include "reference/device_facts/kernel_rules.h"

#include <array>
#include <cstdint>

#include "reference/codecs/anybit.h"
#include "reference/codecs/formats/formats.h"
#include "reference/codecs/formats/logfmt.h"
#include "reference/codecs/formats/narrow.h"
#include "reference/codecs/header_codec.h"
#include "reference/codecs/nvfp4.h"
#include "reference/codecs/registry.h"

namespace arlab {
namespace {

/// Kernels have no room for the metadata of shorter ones.
constexpr std::size_t kShortestGroup = 32;

/// Formats with blocks of lanes.
bool is_block_format_in_kernels(std::string_view codec) {
  if (const auto format = parse_anybit(codec)) {
    if (format->given) return !format->stochastic;
    return format->group >= kShortestGroup && is_group_of_a_kernel(*format);
  }
  if (const auto format = parse_logfmt(codec)) {
    return format->group >= kShortestGroup && is_group_of_a_tile(format->group);
  }
  if (const auto format = parse_nvfp4(codec)) return format->tensor_scale.has_value();
  bool is_tuned = codec_header_of(codec) != std::nullopt;
  for_each_format(TunedFormats(),
                  [&]<class Format>() { is_tuned = is_tuned || Format::parse(codec); });
  return is_tuned;
}

/// Returns whether kernels have a scale of the message: for int<b>-gtensor and nvfp4.
bool is_scaled_by_message(std::string_view codec) {
  const auto integers = parse_anybit(codec);
  if (integers) {
    return integers->group == 0 && !integers->given && !integers->hadamard && !integers->stochastic;
  }
  const auto blocks = parse_nvfp4(codec);
  return blocks && !blocks->tensor_scale && blocks->rounding != NvFp4Rounding::te_4over6;
}

/// Enough for blocks to have work in turn.
bool is_large(const KernelCall& call) { return 8 * call.tiles > call.blocks; }

bool has_tuned_kernels(const KernelCall& call) { return !call.codec.programs_only; }

bool fits_sentinels(const KernelCall& call) {
  return call.has_sentinels && call.tile_bytes <= call.codec.most_sentinel_tile_bytes;
}

bool is_one_tile_per_block(const KernelCall& call) {
  return call.tiles <= call.blocks && call.codec.is_tuned &&
         (call.codec.pads_tiles || call.all_tiles_whole);
}

/// In sentinel slots, wires of more than this begin two accesses of each thread.
constexpr std::size_t kShortWire = 1408;

bool is_lamport(const KernelCall& call) {
  return call.has_lamport && call.tiles <= call.lamport_blocks && is_one_tile_per_block(call);
}

constexpr std::array<KernelRule, 8> kRules = {{
    {"one_shot", "one_shot_lamport", 1, is_lamport,
     "a tuned codec, 16-bit elements, one tile per block at most", "h200_lamport_2026-11-23.csv"},
    {"two_shot", "two_shot_lamport", 2, is_lamport,
     "a tuned codec, 16-bit elements, one tile of each chunk per block at most",
     "h200_lamport_2026-11-23.csv", true},
    {"one_shot", "one_shot_sentinel", 1,
     [](const KernelCall& call) {
       return fits_sentinels(call) && call.codec.one_shot_sentinel && is_large(call);
     },
     "2 ranks, a tuned codec, 16-bit elements, more tiles than 1/8 of the blocks",
     "h200_pair_2026-11-22.csv"},
    {"one_shot", "one_shot", 1, has_tuned_kernels, "every other codec of choice.h",
     "h200_places_2026-11-22.csv"},
    {"two_shot", "two_shot_sentinel", 2,
     [](const KernelCall& call) {
       return fits_sentinels(call) && call.codec.two_shot_sentinel &&
              (is_large(call) || call.tile_bytes <= kShortWire);
     },
     "2 to 4 ranks, a tuned codec of up to 8.5 bits, 16-bit elements; wires of more than 1408 "
     "bytes "
     "per tile only with more tiles than 1/8 of the blocks",
     "h200_places_2026-11-22.csv", true},
    {"two_shot", "two_shot", 2, has_tuned_kernels, "every other codec of choice.h",
     "h200_places_2026-11-22.csv"},
    {"ring", "ring", 1, has_tuned_kernels, "every codec of choice.h",
     "h200_batches_2026-11-22.csv"},
    {"all_to_all", "all_to_all", 1,
     [](const KernelCall& call) { return call.codec.is_tuned && call.tiles <= 2 * call.blocks; },
     "a tuned codec, up to two tiles per block", "h200_batches_2026-11-22.csv"},
}};

}  // namespace

CodecInKernels codec_in_kernels(std::string_view codec, DType dtype) {
  const bool is_plain = codec == name_of(dtype);
  if (size_of(dtype) != 2) {
    const bool is_narrow = parse_narrow(codec).has_value();
    return {.is_tuned = is_plain || is_narrow, .pads_tiles = is_plain || is_narrow};
  }
  const bool is_abstract = codec.find('=') != std::string_view::npos;
  CodecInKernels known;
  known.pads_tiles = is_plain || is_abstract || codec.starts_with("qr-");
  known.has_message_scale = !known.pads_tiles && is_scaled_by_message(codec);
  known.is_tuned = known.pads_tiles || known.has_message_scale || is_block_format_in_kernels(codec);
  if (known.is_tuned) known.lamport_blocks = kKernelBlocks;
  // Measuring takes registers.
  if (known.has_message_scale) known.lamport_blocks = kKernelBlocks / 2;
  known.one_shot_sentinel = known.is_tuned && !known.has_message_scale;
  known.two_shot_sentinel =
      known.is_tuned && kernel_tile_bytes(codec, dtype) <= kTwoShotSentinelBytes;
  // Kernels always know the tile's bytes of a header's codecs.
  const bool knows_tiles = known.pads_tiles || codec_header_of(codec);
  known.most_sentinel_tile_bytes = knows_tiles ? SIZE_MAX : kTwoShotSentinelBytes;
  return known;
}

std::size_t kernel_tile_bytes(std::string_view codec, DType dtype, std::size_t elements) {
  return (find_codec(codec)->wire_bytes(dtype, elements) + 15) / 16 * 16;
}

std::span<const KernelRule> kernel_rules() { return kRules; }

const KernelRule* find_kernel_rule(std::string_view algorithm, const KernelCall& call) {
  for (const KernelRule& rule : kRules) {
    const bool takes_codec = !call.codec.has_message_scale || rule.takes_message_scales;
    if (algorithm == rule.algorithm && takes_codec && rule.is_for(call)) return &rule;
  }
  return nullptr;
}

}  // namespace arlab

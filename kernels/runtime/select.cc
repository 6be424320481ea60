#include "kernels/runtime/select.h"

#include <array>

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

/// Enough for blocks to have work in turn.
bool is_large(const CallFacts& call) { return 8 * call.tiles > call.blocks; }

bool has_tuned_kernels(const CallFacts& call) { return !call.codec.programs_only; }

bool fits_sentinels(const CallFacts& call) {
  return call.has_sentinels && call.tile_bytes <= call.codec.most_sentinel_tile_bytes;
}

bool is_one_tile_per_block(const CallFacts& call) {
  return call.tiles <= call.blocks && call.codec.tuning.tuned &&
         (call.codec.tuning.pads_tiles || call.all_tiles_whole);
}

/// In sentinel slots, wires of more than this begin two accesses of each thread.
constexpr std::size_t kShortWire = 1408;

bool is_lamport(const CallFacts& call) {
  return call.has_lamport && call.tiles <= call.lamport_blocks && is_one_tile_per_block(call);
}

bool is_small(const CallFacts& call) { return call.codec.small && is_one_tile_per_block(call); }

constexpr std::array<KernelRule, 10> kRules = {{
    {"one_shot", "one_shot_lamport", launch_one_shot_lamport, 1, is_lamport,
     "a tuned codec, 16-bit elements, one tile per block at most", "h200_lamport_2026-11-23.csv"},
    {"two_shot", "two_shot_lamport", launch_two_shot_lamport, 2, is_lamport,
     "a tuned codec, 16-bit elements, one tile of each chunk per block at most",
     "h200_lamport_2026-11-23.csv"},
    {"one_shot", "one_shot_sentinel", launch_one_shot_sentinel, 1,
     [](const CallFacts& call) {
       return fits_sentinels(call) && call.codec.one_shot_sentinel && is_large(call);
     },
     "2 ranks, a tuned codec, 16-bit elements, more tiles than 1/8 of the blocks",
     "h200_pair_2026-11-22.csv"},
    {"one_shot", "one_shot_small", launch_one_shot_small, 1, is_small,
     "a tuned codec, one tile per block at most, and no Lamport slots",
     "h200_versions_2026-11-21.csv"},
    {"one_shot", "one_shot", launch_one_shot, 1, has_tuned_kernels, "every other codec of choice.h",
     "h200_places_2026-11-22.csv"},
    {"two_shot", "two_shot_sentinel", launch_two_shot_sentinel, 2,
     [](const CallFacts& call) {
       return fits_sentinels(call) && call.codec.two_shot_sentinel &&
              (is_large(call) || call.tile_bytes <= kShortWire);
     },
     "2 to 4 ranks, a tuned codec of up to 8.5 bits, 16-bit elements; wires of more than 1408 "
     "bytes "
     "per tile only with more tiles than 1/8 of the blocks",
     "h200_places_2026-11-22.csv"},
    {"two_shot", "two_shot_small", launch_two_shot_small, 2, is_small,
     "a tuned codec, one tile per block at most, and no Lamport slots",
     "h200_versions_2026-11-21.csv"},
    {"two_shot", "two_shot", launch_two_shot, 2, has_tuned_kernels, "every other codec of choice.h",
     "h200_places_2026-11-22.csv"},
    {"ring", "ring", launch_ring, 1, has_tuned_kernels, "every codec of choice.h",
     "h200_batches_2026-11-22.csv"},
    {"all_to_all", "all_to_all", launch_all_to_all, 1,
     [](const CallFacts& call) { return call.codec.tuning.tuned && call.tiles <= 2 * call.blocks; },
     "a tuned codec, up to two tiles per block", "h200_batches_2026-11-22.csv"},
}};

}  // namespace

Result<AnyChoice> choose(const std::string& codec) {
  const Result<CodecChoice> choice = choose_codec(codec);
  if (choice.ok()) return AnyChoice(choice.value());
  const Result<TwoPassChoice> two_pass = choose_two_pass(codec);
  if (two_pass.ok()) return AnyChoice(two_pass.value());
  return two_pass.status();
}

CodecTraits traits_of(const CodecChoice& codec, DType dtype) {
  CodecTraits traits;
  if (const FormatKernels* format = format_kernels(codec)) {
    return {.tuning = format->tuning(), .programs_only = true};
  }
  (void)with_codec(
      codec, dtype,
      [&]<class Codec, class Element>([[maybe_unused]] const Codec& codec_of, Element) {
        static_assert(DeviceCodec<Codec, Element>);
        traits.tuning = Codec::kTuning;
        if constexpr (kWorksInLamportSlots<Codec, Element>) {
          traits.lamport_blocks = kLamportBlocks<Codec>;
          traits.most_sentinel_tile_bytes = kSentinelTileBytes<Codec>;
        }
        // Where widths and groups are arguments, tuned kernels have room for groups from a certain size on.
        if constexpr (requires { codec_of.has_long_groups(); }) {
          traits.tuning.tuned = codec_of.has_long_groups();
        }
        traits.small = kHasSmallKernels<Codec, Element>;
        traits.one_shot_sentinel = kOneShotWorksWithSentinels<Codec, Element>;
        traits.two_shot_sentinel = kTwoShotWorksWithSentinels<Codec, Element>;
      });
  return traits;
}

std::span<const KernelRule> kernel_rules() { return kRules; }

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

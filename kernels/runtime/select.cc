#include "kernels/runtime/select.h"

#include <algorithm>

#include "kernels/collectives/slots_of_codec.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

namespace {

/// As of its type, FormatOfHeader in Scaled.
CodecTraits traits_of(const CodecOfHeader& codec, DType dtype) {
  if (size_of(dtype) != 2) return {{}, kUntunedScales};
  const std::size_t tile_bytes = tile_bytes_with(codec.bits, codec.block, codec.scale_bytes);
  return {{.is_tuned = true,
           .one_shot_sentinel = kHasSentinels,
           .two_shot_sentinel = kHasSentinels && tile_bytes <= kTwoShotWireBytes,
           .lamport_blocks = lamport_blocks_of(kTunedScales, tile_bytes),
           .most_sentinel_tile_bytes = tile_bytes},
          kTunedScales};
}

}  // namespace

CodecTraits traits_of(const CodecChoice& codec, DType dtype) {
  CodecTraits traits;
  if (const auto* of_header = std::get_if<CodecOfHeader>(&codec)) {
    return traits_of(*of_header, dtype);
  }
  if (const FormatKernels* format = format_kernels(codec)) {
    traits.tuning = format->tuning();
    traits.programs_only = true;
    return traits;
  }
  if (needs_statistics(codec)) {
    // Those with a scale of the message; others of the kind have no kernels of an algorithm.
    traits.is_tuned =
        with_message_scale(codec, dtype, [&]<class Codec, class Element>(const Codec&, Element) {
          traits.has_message_scale = kMeasures<Codec>;
          traits.one_shot_sentinel =
              !kMeasures<Codec> && kOneShotWorksWithSentinels<Codec, Element>;
          traits.tuning = Codec::kTuning;
          traits.tuning.resident_blocks = kPipelineBlocks<Codec>;
          traits.lamport_blocks = kLamportBlocks<Codec>;
          traits.most_sentinel_tile_bytes = kSentinelTileBytes<Codec>;
          traits.two_shot_sentinel = kTwoShotWorksWithSentinels<Codec, Element>;
        });
    traits.programs_only = !traits.is_tuned;
    return traits;
  }
  with_codec(codec, dtype,
             [&]<class Codec, class Element>([[maybe_unused]] const Codec& codec_of, Element) {
               static_assert(DeviceCodec<Codec, Element>);
               traits.tuning = Codec::kTuning;
               if constexpr (kWorksInLamportSlots<Codec, Element>) {
                 traits.lamport_blocks = kLamportBlocks<Codec>;
                 traits.most_sentinel_tile_bytes = kSentinelTileBytes<Codec>;
               }
               traits.pads_tiles = Codec::kTuning.pads_tiles;
               traits.is_tuned = Codec::kTuning.tuned;
               // Where widths and groups are arguments, tuned kernels have room for groups from a certain size on.
               if constexpr (requires { codec_of.has_long_groups(); }) {
                 traits.is_tuned = codec_of.has_long_groups();
               }
               traits.one_shot_sentinel = kOneShotWorksWithSentinels<Codec, Element>;
               traits.two_shot_sentinel = kTwoShotWorksWithSentinels<Codec, Element>;
             });
  return traits;
}

static_assert(kTwoShotWireBytes == kTwoShotSentinelBytes &&
                  kMostSentinelRanks == kTwoShotSentinelRanks,
              "the rules know the slots that there are");

const KernelForm& form_of(const KernelRule& rule) {
  static constexpr const KernelForm* kForms[] = {
      &forms::kOneShot, &forms::kOneShotLamport, &forms::kOneShotSentinel,
      &forms::kTwoShot, &forms::kTwoShotLamport, &forms::kTwoShotSentinel,
      &forms::kRing,    &forms::kAllToAll};
  return **std::ranges::find(kForms, rule.kernel, &KernelForm::name);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

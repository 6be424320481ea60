#include "kernels/runtime/select.h"

#include <array>
#include <utility>

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

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
    traits.tuning = format->tuning();
    traits.programs_only = true;
    return traits;
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
        traits.pads_tiles = Codec::kTuning.pads_tiles;
        traits.is_tuned = Codec::kTuning.tuned;
        // Where widths and groups are arguments, tuned kernels have room for groups from a certain size on.
        if constexpr (requires { codec_of.has_long_groups(); }) {
          traits.is_tuned = codec_of.has_long_groups();
        }
        traits.small = kHasSmallKernels<Codec, Element>;
        traits.one_shot_sentinel = kOneShotWorksWithSentinels<Codec, Element>;
        traits.two_shot_sentinel = kTwoShotWorksWithSentinels<Codec, Element>;
      });
  return traits;
}

CodecTraits traits_of(const TwoPassChoice& codec, DType dtype) {
  CodecTraits traits;
  traits.is_tuned = traits.has_message_scale =
      with_message_scale(codec, dtype, [&]<class Codec, class Element>(const Codec&, Element) {
        traits.tuning = Codec::kTuning;
        traits.tuning.resident_blocks = kPipelineBlocks<Codec>;
        traits.lamport_blocks = kLamportBlocks<Codec>;
        traits.most_sentinel_tile_bytes = kSentinelTileBytes<Codec>;
        traits.two_shot_sentinel = kTwoShotWorksWithSentinels<Codec, Element>;
      });
  traits.programs_only = !traits.is_tuned;
  return traits;
}

static_assert(kTwoShotWireBytes == kTwoShotSentinelBytes &&
                  kMostSentinelRanks == kTwoShotSentinelRanks,
              "the rules know the slots that there are");

Launch launch_of(const KernelRule& rule, const AnyChoice& codec) {
  using LaunchMeasured = hipError_t (*)(const Call&, const TwoPassChoice&, DType, hipStream_t);
  struct Launches {
    std::string_view kernel;
    LaunchCollective launch;
    LaunchMeasured launch_measured = nullptr;
  };
  static constexpr std::array<Launches, 10> kLaunches = {
      {{"one_shot", launch_one_shot},
       {"one_shot_lamport", launch_one_shot_lamport},
       {"one_shot_sentinel", launch_one_shot_sentinel},
       {"one_shot_small", launch_one_shot_small},
       {"two_shot", launch_two_shot},
       {"two_shot_lamport", launch_two_shot_lamport, launch_two_shot_lamport_measured},
       {"two_shot_sentinel", launch_two_shot_sentinel, launch_two_shot_sentinel_measured},
       {"two_shot_small", launch_two_shot_small},
       {"ring", launch_ring},
       {"all_to_all", launch_all_to_all}}};
  for (const Launches& of : kLaunches) {
    if (of.kernel != rule.kernel) continue;
    return [&of, codec](const Call& call, DType dtype, hipStream_t stream) {
      if (const auto* choice = std::get_if<CodecChoice>(&codec)) {
        return of.launch(call, *choice, dtype, stream);
      }
      return of.launch_measured(call, std::get<TwoPassChoice>(codec), dtype, stream);
    };
  }
  return nullptr;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

#include "kernels/collectives/launch.h"
#include "kernels/collectives/two_shot_sentinel.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Codec, class Element, unsigned kRanks>
__global__ void __launch_bounds__(kThreads, kPipelineBlocks<Codec>)
    two_shot_sentinel_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  two_shot_sentinel<Codec, Element, kRanks>(call, codec);
}

template <class Codec, class Element>
void launch_of_ranks(const Call& call, const Codec& codec, Element, hipStream_t stream) {
  const auto launch = [&](auto* kernel) {
    launch_pdl(kernel, static_cast<unsigned>(call.blocks), stream, call, codec);
  };
  static_assert(kMostSentinelRanks == 4);
  switch (call.team.layout.ranks) {
    case 2:
      return launch(two_shot_sentinel_kernel<Codec, Element, 2>);
    case 3:
      return launch(two_shot_sentinel_kernel<Codec, Element, 3>);
    default:
      return launch(two_shot_sentinel_kernel<Codec, Element, 4>);
  }
}

}  // namespace

hipError_t launch_two_shot_sentinel(const Call& call, const CodecChoice& codec, DType dtype,
                                    hipStream_t stream) {
  return with_codec_or_message_scale(
      codec, dtype,
      [&]<class Codec, class Element>([[maybe_unused]] const Codec& device_codec, Element element) {
        if constexpr (kTwoShotWorksWithSentinels<Codec, Element>) {
          launch_of_ranks(call, device_codec, element, stream);
        }
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

#include "kernels/collectives/launch.h"
#include "kernels/collectives/one_shot_sentinel.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads, Codec::kTuning.resident_blocks)
    one_shot_sentinel_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  one_shot_sentinel<Codec, Element>(call, codec);
}

}  // namespace

hipError_t launch_one_shot_sentinel(const Call& call, const CodecChoice& codec, DType dtype,
                                    hipStream_t stream) {
  return with_codec(
      codec, dtype,
      [&]<class Codec, class Element>([[maybe_unused]] const Codec& device_codec, Element) {
        if constexpr (kOneShotWorksWithSentinels<Codec, Element>) {
          launch_pdl(one_shot_sentinel_kernel<Codec, Element>, static_cast<unsigned>(call.blocks),
                     stream, call, device_codec);
        }
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

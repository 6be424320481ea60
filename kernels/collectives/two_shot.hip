#include "kernels/collectives/launch.h"
#include "kernels/collectives/two_shot.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads, Codec::kTuning.resident_blocks)
    two_shot_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  two_shot<Codec, Element>(call, codec);
}

}  // namespace

hipError_t launch_two_shot(const Call& call, const CodecChoice& codec, DType dtype,
                           hipStream_t stream) {
  return with_codec(codec, dtype,
                    [&]<class Codec, class Element>(const Codec& device_codec, Element) {
                      launch_pdl(two_shot_kernel<Codec, Element>,
                                 static_cast<unsigned>(call.blocks), stream, call, device_codec);
                    });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

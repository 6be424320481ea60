#include "kernels/collectives/all_to_all.h"
#include "kernels/collectives/launch.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads, Codec::kTuning.resident_blocks)
    all_to_all_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  all_to_all<Codec, Element>(call, codec);
}

}  // namespace

hipError_t launch_all_to_all(const Call& call, const CodecChoice& codec, DType dtype,
                             hipStream_t stream) {
  return with_codec(codec, dtype,
                    [&]<class Codec, class Element>(const Codec& device_codec, Element) {
                      launch_pdl(all_to_all_kernel<Codec, Element>,
                                 static_cast<unsigned>(call.blocks), stream, call, device_codec);
                    });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

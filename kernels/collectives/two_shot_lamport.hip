#include "kernels/collectives/launch.h"
#include "kernels/collectives/two_shot_lamport.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads, kLamportBlocks<Codec>)
    two_shot_lamport_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  two_shot_lamport<Codec, Element>(call, codec);
}

}  // namespace

hipError_t launch_two_shot_lamport(const Call& call, const CodecChoice& codec, DType dtype,
                                   hipStream_t stream) {
  return with_codec_or_message_scale(
      codec, dtype,
      [&]<class Codec, class Element>([[maybe_unused]] const Codec& device_codec, Element) {
        if constexpr (kWorksInLamportSlots<Codec, Element>) {
          launch_pdl(two_shot_lamport_kernel<Codec, Element>, static_cast<unsigned>(call.blocks),
                     stream, call, device_codec);
        }
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

#include "kernels/collectives/launch.h"
#include "kernels/collectives/one_shot_lamport.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Codec, class Element, int kMostRanks>
__global__ void __launch_bounds__(kThreads, kLamportBlocks<Codec>)
    one_shot_lamport_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  one_shot_lamport<Codec, Element, kMostRanks>(call, codec);
}

}  // namespace

hipError_t launch_one_shot_lamport(const Call& call, const CodecChoice& codec, DType dtype,
                                   hipStream_t stream) {
  return with_codec(
      codec, dtype,
      [&]<class Codec, class Element>([[maybe_unused]] const Codec& device_codec, Element) {
        if constexpr (kWorksInLamportSlots<Codec, Element>) {
          auto* kernel = one_shot_lamport_kernel<Codec, Element, kMaxRanks>;
          if constexpr (kIsPlain<Codec>) {
            if (call.team.layout.ranks == 2) kernel = one_shot_lamport_kernel<Codec, Element, 2>;
          }
          launch_pdl(kernel, static_cast<unsigned>(call.blocks), stream, call, device_codec);
        }
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

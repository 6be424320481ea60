#include "kernels/collectives/one_shot_lamport.h"

#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void one_shot_lamport_instance(const HostLaunch& launch) {
  with_instance_of_tiles(
      *launch.codec, launch.dtype,
      [&]<class Codec, class Element>([[maybe_unused]] const Codec& codec, Element) {
        if constexpr (kWorksInLamportSlots<Codec, Element>) {
          auto* kernel = one_shot_lamport<Codec, Element, kMaxRanks>;
          if constexpr (kIsPlain<Codec>) {
            if (launch.kernel.number == 2) kernel = one_shot_lamport<Codec, Element, 2>;
          }
          run(launch, kernel, codec);
        }
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

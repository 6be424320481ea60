#include "kernels/collectives/two_shot_lamport.h"

#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void two_shot_lamport_instance(const HostLaunch& launch) {
  with_any_instance(*launch.codec, launch.dtype,
                    [&]<class Codec, class Element>([[maybe_unused]] const Codec& codec, Element) {
                      if constexpr (kWorksInLamportSlots<Codec, Element>) {
                        run(launch, two_shot_lamport<Codec, Element>, codec);
                      }
                    });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

#include "kernels/collectives/ring.h"

#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void ring_instance(const HostLaunch& launch) {
  with_instance_of_tiles(*launch.codec, launch.dtype,
                         [&]<class Codec, class Element>(const Codec& codec, Element) {
                           run(launch, ring<Codec, Element>, codec);
                         });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

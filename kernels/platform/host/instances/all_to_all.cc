#include "kernels/collectives/all_to_all.h"

#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void all_to_all_instance(const HostLaunch& launch) {
  with_instance_of_tiles(*launch.codec, launch.dtype,
                         [&]<class Codec, class Element>(const Codec& codec, Element) {
                           run(launch, all_to_all<Codec, Element>, codec);
                         });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

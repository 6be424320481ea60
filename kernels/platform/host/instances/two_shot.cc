#include "kernels/collectives/two_shot.h"

#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void two_shot_instance(const HostLaunch& launch) {
  with_instance_of_tiles(*launch.codec, launch.dtype,
                         [&]<class Codec, class Element>(const Codec& codec, Element) {
                           run(launch, two_shot<Codec, Element>, codec);
                         });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

#include "kernels/collectives/one_shot.h"

#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void one_shot_instance(const HostLaunch& launch) {
  with_instance_of_tiles(*launch.codec, launch.dtype,
                         [&]<class Codec, class Element>(const Codec& codec, Element) {
                           run(launch, one_shot<Codec, Element>, codec);
                         });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

#include "kernels/collectives/one_shot_sentinel.h"

#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void one_shot_sentinel_instance(const HostLaunch& launch) {
  with_instance_of_tiles(
      *launch.codec, launch.dtype,
      [&]<class Codec, class Element>([[maybe_unused]] const Codec& codec, Element) {
        if constexpr (kOneShotWorksWithSentinels<Codec, Element>) {
          run(launch, one_shot_sentinel<Codec, Element>, codec);
        }
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

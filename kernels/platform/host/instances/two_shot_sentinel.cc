#include "kernels/collectives/two_shot_sentinel.h"

#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void two_shot_sentinel_instance(const HostLaunch& launch) {
  with_any_instance(*launch.codec, launch.dtype,
                    [&]<class Codec, class Element>([[maybe_unused]] const Codec& codec, Element) {
                      if constexpr (kTwoShotWorksWithSentinels<Codec, Element>) {
                        static_assert(kMostSentinelRanks == 4);
                        const int ranks = launch.kernel.number;
                        auto* kernel = two_shot_sentinel<Codec, Element, 4>;
                        if (ranks == 2) kernel = two_shot_sentinel<Codec, Element, 2>;
                        if (ranks == 3) kernel = two_shot_sentinel<Codec, Element, 3>;
                        run(launch, kernel, codec);
                      }
                    });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

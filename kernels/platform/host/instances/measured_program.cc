#include "kernels/platform/host/instances/instance.h"
#include "kernels/schedule/run_measured.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void measured_program_instance(const HostLaunch& launch) {
  with_instance_of_message_scale(
      *launch.codec, launch.dtype,
      [&]<class Codec, class Element>([[maybe_unused]] const Codec& codec, Element) {
        if constexpr (kMeasures<Codec>) {
          run(launch, run_measured<Codec, Element>, codec);
        }
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

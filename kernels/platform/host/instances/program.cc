#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void program_instance(const HostLaunch& launch) {
  with_instance(*launch.codec, launch.dtype,
                [&]<class Codec, class Element>(const Codec& codec, Element) {
                  run(launch, run_program<Codec, Element>, codec);
                });
}

void count_call_instance(const HostLaunch& launch) { run(launch, count_call); }

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

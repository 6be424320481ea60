#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void encode_instance(const HostLaunch& launch) {
  with_instance(*launch.codec, launch.dtype,
                [&]<class Codec, class Element>(const Codec& codec, Element) {
                  run_of(codec, launch, encode_alone<Codec, Element>);
                });
}

void decode_instance(const HostLaunch& launch) {
  with_instance(*launch.codec, launch.dtype,
                [&]<class Codec, class Element>(const Codec& codec, Element) {
                  run_of(codec, launch, decode_alone<Codec, Element>);
                });
}

void decode_add_instance(const HostLaunch& launch) {
  with_instance(*launch.codec, launch.dtype,
                [&]<class Codec, class Element>(const Codec& codec, Element) {
                  run_of(codec, launch, decode_add_alone<Codec, Element>);
                });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

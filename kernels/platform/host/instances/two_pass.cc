#include "kernels/codecs/statistics_pass.h"
#include "kernels/platform/host/instances/instance.h"
#include "kernels/schedule/run_two_pass.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void two_pass_program_instance(const HostLaunch& launch) {
  with_two_pass_instance(*launch.codec, launch.dtype,
                         [&]<class Codec, class Element>(const Codec& codec, Element) {
                           run(launch, run_two_pass<Codec, Element>, codec);
                         });
}

void statistics_instance(const HostLaunch& launch) {
  with_two_pass_instance(*launch.codec, launch.dtype,
                         [&]<class Codec, class Element>(const Codec& codec, Element) {
                           run_of(codec, launch, measure_groups<Codec, Element>);
                         });
}

void merge_statistics_instance(const HostLaunch& launch) { run(launch, merge_parts); }

void encode_measured_instance(const HostLaunch& launch) {
  with_two_pass_instance(*launch.codec, launch.dtype,
                         [&]<class Codec, class Element>(const Codec& codec, Element) {
                           run_of(codec, launch, encode_measured<Codec, Element>);
                         });
}

void decode_measured_instance(const HostLaunch& launch) {
  with_two_pass_instance(*launch.codec, launch.dtype,
                         [&]<class Codec, class Element>(const Codec& codec, Element) {
                           auto* kernel = decode_measured<Codec, Element, false>;
                           if (launch.kernel.number != 0)
                             kernel = decode_measured<Codec, Element, true>;
                           run_of(codec, launch, kernel);
                         });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

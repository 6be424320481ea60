#include "kernels/collectives/tail_rows.h"

#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

template <class Element, int kPacks>
void tail_rows_of_number(const TailCall& tail, int number) {
  tail_rows<Element, kPacks>(tail, TailSteps::of(number));
}
template <class Codec, class Element>
void tail_rows_encoded(const TailCall& tail, const Codec& codec, int number) {
  tail_rows<Element, kMostPacks>(tail, TailSteps::of(number), codec);
}

}  // namespace

void tail_rows_instance(const HostLaunch& launch) {
  with_element(launch, [&]<class Element>(Element) {
    auto* const kernel = launch.kernel.number % 16 == 0 ? tail_rows_of_number<Element, 0>
                                                        : tail_rows_of_number<Element, kMostPacks>;
    run(launch, kernel, launch.kernel.number);
  });
}

void tail_rows_encoded_instance(const HostLaunch& launch) {
  with_instance(*launch.codec, launch.dtype,
                [&]<class Codec, class Element>(const Codec& codec, Element) {
                  run(launch, tail_rows_encoded<Codec, Element>, codec, launch.kernel.number);
                });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

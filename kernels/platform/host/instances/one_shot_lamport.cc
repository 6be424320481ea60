#include "kernels/collectives/one_shot_lamport.h"

#include "kernels/platform/host/instances/instance.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void one_shot_lamport_instance(const HostLaunch& launch) {
  with_instance_of_tiles(
      *launch.codec, launch.dtype,
      [&]<class Codec, class Element>([[maybe_unused]] const Codec& codec, Element) {
        if constexpr (kWorksInLamportSlots<Codec, Element>) {
          void (*kernel)(const Call&, const Codec&) = one_shot_lamport<Codec, Element, kMaxRanks>;
          if constexpr (kIsPlain<Codec>) {
            if (launch.kernel.number == 2) kernel = one_shot_lamport<Codec, Element, 2>;
          }
          run(launch, kernel, codec);
        }
      });
}

namespace {

template <class Codec, class Element>
void with_tail(const Call& call, const TailCall& tail, int number, const Codec& codec) {
  one_shot_lamport<Codec, Element, kMaxRanks>(call, codec, WithTail{tail, TailSteps::of(number)});
}

}  // namespace

void one_shot_lamport_tail_instance(const HostLaunch& launch) {
  with_instance_of_tiles(
      *launch.codec, launch.dtype,
      [&]<class Codec, class Element>([[maybe_unused]] const Codec& codec, Element) {
        if constexpr (kWorksInLamportSlots<Codec, Element>) {
          run(launch, with_tail<Codec, Element>, launch.kernel.number, codec);
        }
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

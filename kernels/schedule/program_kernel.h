// The kernel of run_program.h: to be included where it is compiled.
#pragma once

#include "kernels/platform/launch.h"
#include "kernels/schedule/run_program.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads, Codec::kTuning.resident_blocks)
    program_kernel(ARLAB_KERNEL_PARAMETER ProgramCall call, ARLAB_KERNEL_PARAMETER Codec codec) {
  run_program<Codec, Element>(call, codec);
}

template <class Codec, class Element>
void launch_program_of(const Codec& codec, Element, const ProgramCall& call, hipStream_t stream) {
  launch_pdl(program_kernel<Codec, Element>, static_cast<unsigned>(call.blocks), stream, call,
             codec);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

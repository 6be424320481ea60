// Starts the tuned kernel of an algorithm on a rank's stream; reference/device_facts/kernel_rules.h says which kernel is for which calls.
#pragma once

#include "kernels/codecs/choice.h"
#include "kernels/collectives/call.h"
#include "kernels/collectives/tail.h"
#include "kernels/compile/unit.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

hipError_t launch_collective(const KernelForm& form, const Call& call, const CodecChoice& codec,
                             DType dtype, hipStream_t stream);
/// one_shot in Lamport slots, with a tail in its kernel.
hipError_t launch_with_tail(const Call& call, const TailCall& tail, const TailSteps& steps,
                            const CodecChoice& codec, DType dtype, hipStream_t stream);
/// A tail behind a collective.
hipError_t launch_tail(const TailCall& tail, const TailSteps& steps, DType dtype,
                       hipStream_t stream);
/// The same with a codec that encodes what comes out (encodes_rows()).
hipError_t launch_tail(const TailCall& tail, const TailSteps& steps, const CodecChoice& codec,
                       DType dtype, hipStream_t stream);
/// Behind it, with a given scale, on the call's first `chunks` chunks.
hipError_t launch_spread_nans(const Call& call, std::size_t chunks, DType dtype,
                              hipStream_t stream);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

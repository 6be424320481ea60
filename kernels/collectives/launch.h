// Starts a tuned kernel of an algorithm on a rank's stream. Each function is in the file of its name;
// reference/codecs/kernel_rules.h says which kernel is for which calls.
#pragma once

#include "kernels/codecs/choice.h"
#include "kernels/collectives/call.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

using LaunchCollective = hipError_t (*)(const Call& call, const CodecChoice& codec, DType dtype,
                                        hipStream_t stream);

hipError_t launch_one_shot(const Call&, const CodecChoice&, DType, hipStream_t);
hipError_t launch_one_shot_lamport(const Call&, const CodecChoice&, DType, hipStream_t);
hipError_t launch_one_shot_sentinel(const Call&, const CodecChoice&, DType, hipStream_t);
hipError_t launch_two_shot(const Call&, const CodecChoice&, DType, hipStream_t);
hipError_t launch_two_shot_lamport(const Call&, const CodecChoice&, DType, hipStream_t);
hipError_t launch_two_shot_sentinel(const Call&, const CodecChoice&, DType, hipStream_t);
hipError_t launch_ring(const Call&, const CodecChoice&, DType, hipStream_t);
hipError_t launch_all_to_all(const Call&, const CodecChoice&, DType, hipStream_t);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// Starts the kernel of an algorithm on a rank's stream. Each function is in the file of its name.
#pragma once

#include "kernels/codecs/choice.h"
#include "kernels/collectives/call.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

using LaunchCollective = hipError_t (*)(const Call& call, const CodecChoice& codec, DType dtype,
                                        hipStream_t stream);

hipError_t launch_one_shot(const Call& call, const CodecChoice& codec, DType dtype,
                           hipStream_t stream);
hipError_t launch_two_shot(const Call& call, const CodecChoice& codec, DType dtype,
                           hipStream_t stream);
hipError_t launch_ring(const Call& call, const CodecChoice& codec, DType dtype, hipStream_t stream);
hipError_t launch_hierarchical(const Call& call, const CodecChoice& codec, DType dtype,
                               hipStream_t stream);
hipError_t launch_all_to_all(const Call& call, const CodecChoice& codec, DType dtype,
                             hipStream_t stream);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// Starts the kernel of an algorithm on a rank's stream. Each function is in the file of its name.
#pragma once

#include "kernels/codecs/choice.h"
#include "kernels/codecs/plain.h"
#include "kernels/codecs/quickreduce.h"
#include "kernels/collectives/call.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// How many blocks of a kernel fit on a multiprocessor, or compute unit, at once. Blocks wait for
/// those of other ranks, so all of a launch must fit.
template <class Codec>
inline constexpr int kResidentBlocks = 2;
template <class Number>
inline constexpr int kResidentBlocks<Plain<Number>> = 4;
template <class Format, class Number>
inline constexpr int kResidentBlocks<QuickReduce<Format, Number>> = 4;

/// Of the kernels of a codec.
inline int resident_blocks(const CodecChoice& codec, DType dtype) {
  int blocks = 1;
  (void)with_codec(codec, dtype, [&]<class Codec, class Number>(const Codec&, Number) {
    blocks = kResidentBlocks<Codec>;
  });
  return blocks;
}

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

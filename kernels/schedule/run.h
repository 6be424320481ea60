// Launches of programs on GPUs.
#pragma once

#include <optional>

#include "kernels/codecs/choice.h"
#include "kernels/codecs/two_pass_kernels.h"
#include "kernels/schedule/program_call.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Runs a program with a codec that encodes a tile as soon as it is there, or whose groups have been measured, for the steps of
/// first_phase that encode.
hipError_t launch_program(const ProgramCall& call, const CodecChoice& codec, DType dtype,
                          hipStream_t stream);

/// The same with a codec that has a scale of the message (codecs/message_scale.h), which this
/// kernel measures itself.
hipError_t launch_measured_program(const ProgramCall& call, const CodecChoice& codec, DType dtype,
                                   hipStream_t stream);
/// How that kernel works best, if there is one.
std::optional<Tuning> measured_tuning(const CodecChoice& codec, DType dtype);

/// One more call of codecs with random numbers: in a graph, each replay has its own.
hipError_t launch_count_call(std::uint32_t* calls, hipStream_t stream);

/// How messages of at most so many elements are cut.
struct MessageTiles {
  int per_unit;       ///< tiles that one block must have together
  std::size_t bytes;  ///< bytes of a tile in a slot
  std::size_t tiles;  ///< tiles of the message
};
MessageTiles message_tiles(const CodecChoice& codec, DType dtype, std::size_t elements);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

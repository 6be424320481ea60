// Programs on GPUs: what the kernel that runs any program is told, and its launch.
#pragma once

#include <optional>

#include "kernels/codecs/choice.h"
#include "kernels/codecs/two_pass_kernels.h"
#include "kernels/collectives/call.h"
#include "kernels/schedule/program.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

static_assert(kMaxProgramRanks == kMaxRanks);

/// Some phases of a program, on one rank.
struct ProgramCall {
  Team team;
  const void* input;
  void* output;                    ///< may be the input, if the program allows it
  ElementRange chunk[kMaxChunks];  ///< chunks of the tensor, or of the part that is worked through
  int first_phase;
  int last_phase;
  bool begins_with_sends;  ///< another kernel has stored what arrived in the first phase
  int blocks;
  int rounds;
  int tiles_per_slot;   ///< tiles of one wire; a multiple of tiles_per_unit
  unsigned tile_bytes;  ///< between tiles of a wire, a multiple of 16
  bool fp32_sums;       ///< codecs/sums.h
  bool aligned;        ///< input, output, and where chunks begin in them, are multiples of 16 bytes
  int tiles_per_unit;  ///< two passes: tiles that one block works on together, of a transform
  std::uint64_t
      encoding_phases;  ///< measured on the way: bit i of phase i, if some rank encodes there
  std::size_t groups;   ///< two passes: entries of statistics from step to step
  const Statistics* statistics;  ///< [step from the first one that sends][group]
  std::uint64_t seed;            ///< of random numbers
  Program program;
};
static_assert(sizeof(ProgramCall) < 4096 - 256, "a kernel's parameters have 4 KiB in all");

/// Runs a program with a codec that encodes a tile as soon as it is there, or whose groups have been measured, for the steps of
/// first_phase that encode.
hipError_t launch_program(const ProgramCall& call, const CodecChoice& codec, DType dtype,
                          hipStream_t stream);
/// Of the latter only.
hipError_t launch_two_pass_program(const ProgramCall& call, const CodecChoice& codec, DType dtype,
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

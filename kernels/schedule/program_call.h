// Arguments of the kernels that run any program (program.h).
#pragma once

#include "kernels/codecs/statistics.h"
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
  std::uint64_t seed;            ///< for random numbers
  Program program;
};
static_assert(sizeof(ProgramCall) < 4096 - 256, "a kernel's parameters have 4 KiB in all");

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

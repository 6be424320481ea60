// From a Schedule of the reference to the programs that GPUs run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/runtime/status.h"
#include "kernels/schedule/program.h"
#include "reference/collectives/schedule.h"

namespace arlab::kernels {

/// The programs of all ranks for a Schedule, or for some of its chunks.
struct Lowered {
  std::vector<Program> programs;  ///< by rank
  std::vector<Chunk> chunks;      ///< programs use their numbers
  int wires = 1;                  ///< most wires from one rank to one rank in an exchange
  /// The output may be the input: nothing is stored where an input is still to be read.
  bool in_place = true;
  /// Phases with steps that encode, on some rank. A two-pass codec needs a pass over what they
  /// encode ahead of each; the phases up to the next are one kernel.
  std::vector<int> encoding_phases;
  /// With two passes, the codec of each of these kernels.
  std::vector<CodecRole> codecs;
  /// Whether each of these kernels stands for itself: it reads no wire that arrived in another one,
  /// and needs no second codec. Otherwise a call with two codecs, or of several rounds, is refused.
  bool kernels_are_whole = true;
};

/// How codecs encode.
enum class Passes {
  one,  ///< a tile as soon as it is there
  two,  ///< once a pass over the whole message has measured it: every sum waits in the output, and
        ///< what a rank encodes is decoded from its own slot
};

/// Lowers a schedule that the checker has proved. With two passes, chunks that begin in different
/// steps (micro-chunks) are lowered by themselves, to be run one after the other: what overlaps
/// their stages saves nothing where a kernel ends after each, and a kernel knows one codec. So are
/// parts of a schedule that has too many steps, or whose ranks send each other more than
/// `most_wires` at once.
///
/// The error says what does not fit.
Result<std::vector<Lowered>> lower(const Schedule& schedule, Passes passes,
                                   std::size_t most_wires = SIZE_MAX);

}  // namespace arlab::kernels

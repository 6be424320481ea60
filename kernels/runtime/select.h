// Which kernel runs a call: the only place that knows which is fastest.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <variant>

#include "kernels/codecs/two_pass_choice.h"
#include "kernels/collectives/launch.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The device code of a codec, whether or not it measures first.
using AnyChoice = std::variant<CodecChoice, TwoPassChoice>;
Result<AnyChoice> choose(const std::string& codec);

/// What kernels need to know of a codec, read off its device code.
struct CodecTraits {
  Tuning tuning = {};
  int lamport_blocks = 0;  ///< of its kernels with Lamport slots, on a multiprocessor
  std::size_t most_sentinel_tile_bytes = 0;  ///< likewise, with sentinel slots
  bool small = false;                        ///< one_shot_small.hip and two_shot_small.hip have it
  bool one_shot_sentinel = false;            ///< one_shot_sentinel.hip has the codec
  bool two_shot_sentinel = false;            ///< two_shot_sentinel.hip has it
  bool programs_only = false;                ///< no kernel of an algorithm has it
};
CodecTraits traits_of(const CodecChoice& codec, DType dtype);

/// A call of an algorithm with its default options, with a codec that encodes tile by tile.
struct CallFacts {
  CodecTraits codec = {};
  int ranks = 0;
  bool has_sentinels = false;      ///< the communicator has some for the algorithm
  bool has_lamport = false;        ///< it has Lamport slots
  std::size_t tiles = 0;           ///< of the longest chunk
  std::size_t blocks = 0;          ///< at most
  std::size_t lamport_blocks = 0;  ///< likewise, of kernels with Lamport slots
  std::size_t tile_bytes = 0;      ///< on the wire
  bool all_tiles_whole = false;    ///< no chunk ends inside a tile
};

struct KernelRule {
  const char* algorithm;
  const char* kernel;
  LaunchCollective launch;
  int tiles_of_each;  ///< wires of a chunk's tile that travel in one exchange, in a slot
  bool (*is_for)(const CallFacts&);
  const char* when;         ///< what is_for() says, in words
  const char* measured_in;  ///< a file of experiments/measured
};

/// Of an algorithm, the first that is for the call. Whatever no rule is for, other algorithms and
/// options among them, is run as a program (schedule/run.h).
std::span<const KernelRule> kernel_rules();

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// Collectives with the codecs of measured.h, whose messages must be whole before the first byte of
// them can be encoded: a sequence of stages, each a kernel, with the measuring of what the next
// stage sends in between. Kernels of a stream run one after the other, which is all that orders
// stages inside a rank; between ranks, every stage consists of whole exchanges (kernels/README.md).
//
// A sum that is encoded again waits in the output for its measurement: in its own place, from which
// nothing is read anymore, whether or not the output is the input.
#pragma once

#include "kernels/codecs/measured_kernels.h"
#include "kernels/collectives/team.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

static_assert(kMaxRanks <= kMaxMessages);

/// Some ranks, evenly spaced.
struct RankRange {
  int first = 0;
  int stride = 0;
  int count = 0;

  ARLAB_HOST_DEVICE int operator[](int i) const { return first + i * stride; }
};

/// A message of the source, encoded once, to some ranks.
struct StagedSend {
  MessageRange message = {};
  RankRange to = {};
};

/// What a sum starts from (as in the reference's Schedule): +0, the first addend, the own input.
enum class SumStart { zero, first, own };

/// The sum of what some ranks sent; into the output, where the message was.
struct StagedReceive {
  MessageRange message = {};
  RankRange from = {};
  SumStart start = SumStart::first;
  int exchange = 0;        ///< of the stage, after which it has arrived
  bool passes_on = false;  ///< the bytes then go to `next` unchanged, for the exchange after
};

struct Stage {
  Team team;
  const void* input;
  void* output;
  const void* source;            ///< of what is sent: input or output
  const Statistics* statistics;  ///< [send][group]
  std::size_t groups;            ///< entries from send to send
  StagedSend send[kMaxRanks];
  int sends;
  StagedReceive receive[kMaxRanks];
  int receives;
  int exchanges;  ///< of a round
  int next;       ///< the rank that bytes are passed on to
  int blocks;
  int rounds;
  int tiles_per_unit;  ///< tiles that one block works on together: those of a transform
  int units_per_slot;
  std::size_t tile_bytes;
};

hipError_t launch_stage(const Stage& stage, const MeasuredChoice& codec, DType dtype,
                        hipStream_t stream);

/// Tiles of a message that one block must have together, and the bytes of a tile in a slot, with
/// messages of at most so many elements; tiles of such a message.
struct StagedTiles {
  int per_unit;
  std::size_t bytes;
  std::size_t tiles;
};
StagedTiles staged_tiles(const MeasuredChoice& codec, DType dtype, std::size_t elements);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

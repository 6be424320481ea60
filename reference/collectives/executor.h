// Runs a Schedule on real data, for all ranks: which bits does every rank end with?
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "reference/collectives/codecs.h"
#include "reference/collectives/schedule.h"
#include "reference/collectives/sum.h"
#include "reference/tails/tail.h"
#include "reference/tensors/tensor.h"
#include "reference/wide_count.h"

namespace arlab {

/// State that codecs carry from one call of a collective to the next, on all ranks: a number for every element that a rank
/// encodes in a step. It belongs to one collective: a schedule of other ranks, elements or messages is refused.
struct CodecState {
  std::string of =
      {};  ///< the schedule and the codecs that it belongs to; empty before the first call
  std::vector<std::vector<float>> numbers =
      {};  ///< by op of the schedule; empty for those that encode nothing with a state
};

/// Operands of a schedule's tails, and places for their results beside the output, which execute()'s `outputs` take in this
/// dtype. Tensors of all ranks lie one after the other; where a rank does not end with rows, nothing is written.
struct TailOperands {
  Tail tail;                  ///< for the schedule's rows
  DType dtype = DType::bf16;  ///< all tensors': that of the inputs, or what their sum is rounded to
  std::vector<std::span<const std::byte>> residuals = {};  ///< every rank's, or one for all
  std::span<const std::byte> weight = {};
  std::span<std::byte> next_residual = {};
  std::span<std::byte> normalized = {};  ///< where it ends beside what is quantized
};

struct ExecuteOptions {
  Sum sum = {};          ///< its `own` is the schedule's matter
  unsigned threads = 0;  ///< 0: all the machine has; the result never depends on it
  /// Count clamped and flushed elements; costs one more decode per encode.
  bool count = false;
  /// Chunks are worked through in tiles of about this many elements, so that a tile stays in cache
  /// and threads share the work; the result never depends on it.
  std::size_t tile_elements = 16384;
  /// Run scalar codecs instead of their accelerated form; the result never depends on it.
  bool scalar = false;
  /// Context of codecs that use one: the seed of random numbers, and how many calls were before this one.
  std::uint64_t seed = 0;
  std::uint32_t call = 0;
  /// State of codecs that have one: what they carry; changed if the call succeeds. Without it every call is the first.
  CodecState* state = nullptr;
  /// Is told what each encode op has made of a tile, for who writes down what travels. Calls come from several threads.
  std::function<void(ValueId, std::span<const std::byte>)> encoded = {};
  const TailOperands* tails = nullptr;  ///< for schedules with tails
};

/// Throws InvalidInput for a sum that is not native, where the collective makes none.
void require_sums(const Schedule& schedule, const Sum& sum);

/// Effects of the codecs on the values, over all encode ops of all ranks.
struct ExecuteCounts {
  std::uint64_t encoded = 0;  ///< elements that went through an encode
  std::uint64_t clamped = 0;  ///< these and sums of codes outside the code range
  std::uint64_t flushed = 0;  ///< elements of these that were not zero, and are after decoding
  WideCount sent_bytes = 0;   ///< all sends', as long as wires have become
};

/// `outputs` holds what all ranks end with (final_kind()) one after the other, world_size * elements elements of
/// the inputs' dtype (TailOperands::dtype), and may not overlap them. The schedule must be well-formed (see check()), and
/// its chunks must cut no block of a codec. All ranks of an all-reduce end with the same bits, unless the sum's owner keeps it.
/// Deterministic: the same bits for any thread count.
/// Throws InvalidInput when sizes, dtype, alignment or schedule do not fit.
ExecuteCounts execute(const Schedule& schedule, const Codecs& codecs, const RankPayloads& inputs,
                      std::span<std::byte> outputs, const ExecuteOptions& options = {});
/// The same, of inputs that lie one after the other, as the outputs do.
ExecuteCounts execute(const Schedule& schedule, const Codecs& codecs, DType dtype,
                      std::span<const std::byte> inputs, std::span<std::byte> outputs,
                      const ExecuteOptions& options = {});

/// Writes elements `begin` on of a rank's input. Calls come from several threads, and may ask for an
/// element again.
using ProduceInput =
    std::function<void(Rank rank, std::uint64_t begin, std::span<std::byte> elements)>;

/// The same, of inputs that are never there as a whole: what makes them hands them over tile by
/// tile, as the epilogue of a matrix product does that encodes what it has in registers. Same bits.
ExecuteCounts execute(const Schedule& schedule, const Codecs& codecs, DType dtype,
                      const ProduceInput& produce, std::span<std::byte> outputs,
                      const ExecuteOptions& options = {});

/// Throws InvalidInput unless every chunk lies in one slot and cuts no block of a codec.
void require_whole_blocks(const Schedule& schedule, const Codecs& codecs);

/// Bytes on the wire: every send of the schedule, each chunk encoded by itself, by its codec; of wires of variable length, the
/// most.
struct WireVolume {
  WideCount bytes = 0;     ///< sum over all sends
  WideCount elements = 0;  ///< payload elements that these bytes carry
  /// Average over the sends; for a schedule without sends, that of the whole tensor by the outer
  /// codec.
  double bits_per_element = 0;
  /// The same average over the sends of each step (EncodeContext::step).
  std::vector<double> bits_of_step = {};
};
WireVolume wire_volume(const Schedule& schedule, const Codecs& codecs, DType dtype);

}  // namespace arlab

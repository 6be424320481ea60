// The Schedule: a collective algorithm as plain data.
//
// It says who encodes, sends and reduces which chunk, and in which order; it holds no values, no
// time and no I/O. The reference executes it on data, the simulator on time, and kernels must do
// the same, so that error, volume and latency can never speak of different algorithms.
//
//   chunks    contiguous element ranges that cover the tensor
//   ops       in single-assignment form: op i makes value i, out of the values of earlier ops
//   outputs   which value ends where in the output tensor of which rank
//
// An all-reduce and a broadcast see a tensor as a whole. Other collectives see it as world_size
// slots of equal size, one per rank; a slot is a message. Which elements share a scale is counted
// from the start of the tensor or of the slot: see slot_elements().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/error.h"

namespace arlab {

using Rank = std::uint32_t;
using ChunkId = std::uint32_t;
/// Index of the op that makes a value, or kOwnInput.
using ValueId = std::uint32_t;

/// The op's rank's own payload of the op's chunk.
inline constexpr ValueId kOwnInput = UINT32_MAX;

/// In the part of a schedule that concerns one rank (ScheduleRequest::only_rank): a value that
/// other ranks made.
inline constexpr ValueId kElsewhere = UINT32_MAX - 1;

inline constexpr Rank kMaxWorldSize = 65536;
inline constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;
/// Limits of a schedule; 1000 ranks of two_shot make 3 million.
inline constexpr std::size_t kMaxOps = std::size_t{1} << 24;

/// Final values of ranks. "Slot j of rank i" is the slot that rank i has for rank j.
enum class Collective : std::uint8_t {
  all_reduce,  ///< every rank: the sum of the tensors of all ranks
  all_to_all,  ///< rank j: as its slot i, slot j of rank i
  /// Rank i: its own tensor, in place, slot j of it after rank j has decoded and encoded it: the
  /// way to the experts of other ranks and back (mixture of experts), past experts that change
  /// nothing.
  dispatch_combine,
  reduce_scatter,  ///< rank i: in slot i the sum of all ranks' slot i, else its own tensor
  all_gather,      ///< every rank: slot i of rank i, for all i
  broadcast,       ///< every rank: the tensor of rank 0
};

inline constexpr Collective kCollectives[] = {
    Collective::all_reduce,     Collective::all_to_all, Collective::dispatch_combine,
    Collective::reduce_scatter, Collective::all_gather, Collective::broadcast};

/// A collective, as all rooms know it.
struct CollectiveFacts {
  std::string_view name;          ///< as it stands in JSON: all_reduce
  std::string_view words;         ///< as it stands in a sentence: an all-reduce
  std::string_view proved;        ///< the property that check() proves
  std::string_view nccl_program;  ///< nccl-tests'
  int chakra = 0;                 ///< CollectiveCommType in Chakra traces
  unsigned bus_passes =
      0;  ///< bus bandwidth as nccl-tests: so many times (n - 1) / n of algbw; 0: algbw
  bool has_slots = false;   ///< a tensor is world_size slots of equal size
  bool adds = false;        ///< values are added; else they only move
  bool ends_alike = false;  ///< all ranks are to end with the same data
  bool has_root = false;
};
/// In the order of Collective.
inline constexpr CollectiveFacts kCollectiveFacts[] = {
    {.name = "all_reduce",
     .words = "an all-reduce",
     .proved = "every rank's contribution exactly once, everywhere",
     .nccl_program = "all_reduce_perf",
     .chakra = 0,
     .bus_passes = 2,
     .adds = true,
     .ends_alike = true},
    {.name = "all_to_all",
     .words = "an all-to-all",
     .proved = "slot i of rank j is slot j of rank i, everywhere",
     .nccl_program = "alltoall_perf",
     .chakra = 6,
     .bus_passes = 1,
     .has_slots = true},
    // Two all-to-alls.
    {.name = "dispatch_combine",
     .words = "a dispatch and combine",
     .proved = "every slot comes back from the rank that it is for, encoded again there",
     .nccl_program = "alltoall_perf",
     .chakra = 6,
     .bus_passes = 2,
     .has_slots = true},
    {.name = "reduce_scatter",
     .words = "a reduce-scatter",
     .proved = "every rank's contribution exactly once in slot i of rank i, else its input",
     .nccl_program = "reduce_scatter_perf",
     .chakra = 7,
     .bus_passes = 1,
     .has_slots = true,
     .adds = true},
    {.name = "all_gather",
     .words = "an all-gather",
     .proved = "slot i of rank i, everywhere",
     .nccl_program = "all_gather_perf",
     .chakra = 2,
     .bus_passes = 1,
     .has_slots = true,
     .ends_alike = true},
    {.name = "broadcast",
     .words = "a broadcast",
     .proved = "the tensor of rank 0, everywhere",
     .nccl_program = "broadcast_perf",
     .chakra = 5,
     .ends_alike = true,
     .has_root = true}};
constexpr const CollectiveFacts& facts_of(Collective collective) {
  return kCollectiveFacts[static_cast<std::size_t>(collective)];
}

constexpr bool has_slots(Collective collective) { return facts_of(collective).has_slots; }
constexpr bool adds(Collective collective) { return facts_of(collective).adds; }
constexpr bool ends_alike(Collective collective) { return facts_of(collective).ends_alike; }
constexpr std::string_view name_of(Collective collective) { return facts_of(collective).name; }
constexpr std::string_view words_for(Collective collective) { return facts_of(collective).words; }

/// Elements [begin, end) of the tensor.
struct Chunk {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const { return end - begin; }
  bool operator==(const Chunk&) const = default;
};

enum class OpKind : std::uint8_t {
  encode,  ///< raw (or encoded: decoded first) value -> encoded value, on one rank
  send,    ///< encoded value -> the same bytes on another rank
  reduce,  ///< sum of several values (encoded ones are decoded) in the given order -> raw value
  tail,    ///< rows of the complete sum (encoded: decoded first) -> raw rows of what Op::makes says
};

/// Which of the codecs of a call: its codec, or the other one that it may name for messages which
/// stay inside a group, or which go back (AlgorithmOptions::inner_codec), or that of the tail's output (Tail::output).
enum class CodecRole : std::uint8_t { outer, inner, output };
inline constexpr CodecRole kCodecRoles[] = {CodecRole::outer, CodecRole::inner, CodecRole::output};

/// The role's name as it stands in JSON: outer.
std::string_view name_of(CodecRole role);

/// Final values of ranks: the sum, or a tail's results behind it (reference/tails/SPEC.md, "In a schedule").
enum class OutputKind : std::uint8_t {
  sum,
  residual,    ///< the next one
  normalized,  ///< the output, before it is quantized by CodecRole::output
  quantized,   ///< encoded by it
};
inline constexpr std::string_view kOutputKindNames[] = {"sum", "residual", "normalized",
                                                        "quantized"};
constexpr std::string_view name_of(OutputKind kind) {
  return kOutputKindNames[static_cast<std::size_t>(kind)];
}

/// Start of a sum: +0, or its first addend (reference/codecs/SPEC.md, "Accumulation").
enum class Start : std::uint8_t { zero, first };

struct Op {
  OpKind kind = OpKind::encode;
  Start start = Start::zero;           ///< reduce
  OutputKind makes = OutputKind::sum;  ///< tail: residual or normalized
  /// encode: the codec that encodes; send: the one that has encoded what it sends.
  CodecRole codec = CodecRole::outer;
  /// Ops are ordered by step. Sends of one step from one rank to one peer travel as one message,
  /// which has arrived in the next step: what is sent in a step is used in a later one.
  std::uint32_t step = 0;
  Rank rank = 0;  ///< who does it; for send: the sender
  Rank peer = 0;  ///< send: the receiver, where the value then is
  ChunkId chunk = 0;
  ValueId source = 0;              ///< encode, send: the operand
  std::uint32_t first_addend = 0;  ///< reduce: operands are Schedule::addends[first, first + count)
  std::uint32_t addend_count = 0;
  bool operator==(const Op&) const = default;
};

/// The output tensor of `rank` (one of each OutputKind) holds, from element `begin` on, `value` (decoded if it is encoded).
struct Output {
  Rank rank = 0;
  ChunkId chunk = 0;
  ValueId value = 0;
  std::uint64_t begin = 0;
  OutputKind kind = OutputKind::sum;
  bool operator==(const Output&) const = default;
};

struct Schedule {
  Collective collective = Collective::all_reduce;
  std::string algorithm;  ///< name, for people
  Rank world_size = 1;
  std::uint64_t elements = 0;  ///< per rank
  /// Chunk boundaries are multiples of it, counted from the start of the slot, or the slot's end.
  std::uint64_t alignment = 1;
  /// The all-reduce by which ranks agree on scales that they share, before step 0: an algorithm's name; empty: one_shot. See
  /// agreement_of().
  std::string agreement = {};
  std::uint64_t row = 0;  ///< elements of a row (a token); chunks are whole rows; 0: no tails
  std::vector<Chunk> chunks;
  std::vector<Op> ops;
  std::vector<ValueId> addends;
  std::vector<Output> outputs;

  /// Elements of a slot. A tensor without slots counts as one, so that which elements share a scale
  /// depends neither on the world size nor on the algorithm. Else a slot is elements / world_size
  /// (0 when there are fewer elements than ranks), and no chunk reaches across two: a slot is
  /// encoded as it would be alone, wherever it stands in the tensor.
  std::uint64_t slot_elements() const {
    return has_slots(collective) ? elements / world_size : elements;
  }

  /// Operands of an op, in order.
  std::span<const ValueId> operands(const Op& op) const {
    if (op.kind == OpKind::reduce) return {addends.data() + op.first_addend, op.addend_count};
    return {&op.source, 1};
  }
  bool operator==(const Schedule&) const = default;
};

/// Returns for every op how many encodings its value has behind it, its own too: 1 for an encoded input, 2 for an encoded sum
/// of those.
std::vector<std::uint32_t> encodings_of(const Schedule& schedule);

/// Returns for every op what its value is: the sum or a part of it, or what a tail has made of it. The schedule is well-formed.
std::vector<OutputKind> contents_of(const Schedule& schedule);
/// The same of one op, whose operands' results are known.
OutputKind content_of(const Op& op, const std::vector<OutputKind>& known);

/// Final values of all ranks: the sum, or the tail's output.
OutputKind final_kind(const Schedule& schedule);

/// True when the chunk lies in one slot and cuts no block of `alignment` elements: both ends are
/// multiples of it, counted from the start of the slot, or the end of the slot.
bool is_aligned(const Schedule& schedule, const Chunk& chunk, std::uint64_t alignment);

/// Elements that travel between different ranks.
struct Volume {
  std::uint64_t total_elements = 0;
  std::uint64_t cross_group_elements = 0;  ///< between groups, both directions together
  std::uint64_t messages = 0;              ///< (step, sender, receiver) triples
  /// Volumes are multiples of one rank's payload. cross_group is one direction, that is half of
  /// what crosses in both, as Flash Communication V2 table 5 counts.
  double total = 0;
  double cross_group = 0;
};

/// Volume of a schedule whose ranks form consecutive groups of `group_size`. Throws InvalidInput
/// when the group size does not divide the world size.
Volume volume_of(const Schedule& schedule, Rank group_size);

}  // namespace arlab

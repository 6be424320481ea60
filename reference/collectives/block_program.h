// Programs of thread blocks, as MSCCL and MSCCL++ have them, as a Schedule.
//
// A reader of a format says which pieces of which GPU's memory each step moves, and what orders the
// steps. They are run here, in one order in which they may, on names in place of numbers: what a
// piece holds is who made it out of what. What is sent is encoded, once; a piece that only passes
// through goes on unchanged. Who sends a value and keeps it ends with what the others decode, so that
// ranks hold the same bits.
//
// Thread blocks run at the same time. Two steps that touch the same piece of memory, one of which
// writes it, must have an order that holds in every run, else the program is refused.
//
// Steps of the schedule follow from what depends on what: that a block does one thing after the other
// is only kept where the data ask for it.
#pragma once

#include <fmt/ranges.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reference/collectives/schedule_json.h"
#include "reference/error.h"

namespace arlab {

/// Most pieces of a rank's buffer; chunks are fractions of a tensor with such a denominator.
inline constexpr std::uint32_t kMostPieces = 1 << 16;
/// Pieces that move, over all steps: each is at most three ops.
inline constexpr std::size_t kMostMoves = std::size_t{1} << 18;
/// Steps times thread blocks: what the check of their order looks at.
inline constexpr std::uint64_t kMostPairs = std::uint64_t{1} << 31;

enum class Buffer : std::uint8_t { input, output, scratch };
inline constexpr const char* kBufferNames[] = {"input", "output", "scratch"};

/// Names as files have them.
template <class Value>
using Names = std::span<const std::pair<const char*, Value>>;
inline constexpr std::pair<const char*, Buffer> kBuffers[] = {
    {"i", Buffer::input}, {"o", Buffer::output}, {"s", Buffer::scratch}};
inline constexpr std::pair<const char*, Collective> kCollectivesOfPrograms[] = {
    {"allreduce", Collective::all_reduce},         {"alltoall", Collective::all_to_all},
    {"allgather", Collective::all_gather},         {"reduce_scatter", Collective::reduce_scatter},
    {"reducescatter", Collective::reduce_scatter}, {"broadcast", Collective::broadcast}};

/// The value of a name. `place` begins the message that refuses others: "MSCCL: algo: coll".
template <class Value>
Value value_named(Names<Value> known, const std::string& name, const std::string& place) {
  std::vector<const char*> names;
  for (const auto& [each, value] : known) {
    if (name == each) return value;
    names.push_back(each);
  }
  fail("{} is {}; allowed {} {}", place, quote(name), names.size() == 1 ? "is" : "are",
       fmt::join(names, ", "));
}

/// The memory of each rank, in pieces: its input and output, which in place share theirs, then
/// scratch, then what nobody else touches.
struct BlockMemory {
  Collective collective = Collective::all_reduce;
  bool in_place = false;
  Rank ranks = 0;
  std::uint32_t inputs = 0;             ///< pieces of the input of a rank
  std::uint32_t outputs = 0;            ///< its output's
  std::vector<std::uint32_t> scratch;   ///< by rank
  std::vector<std::uint32_t> messages;  ///< by rank: each is written once, then read

  std::uint32_t per_chunk = 1;  ///< pieces of what the program calls one

  std::uint32_t size(Buffer buffer, Rank rank) const;
  std::uint32_t begin(Buffer buffer, Rank rank) const;
  std::uint32_t shared(Rank rank) const { return inputs + outputs + scratch[rank]; }
  /// "scratch 2 of gpu 1", as the program names it.
  std::string name_of(std::uint32_t piece, Rank rank) const;
  /// Sets `outputs` from `inputs`. Throws InvalidInput where the collective has no such pieces, and
  /// where they, or those of the scratch, are too many; `format` and `inputs_key` are for messages.
  void settle_outputs(const char* format, const char* inputs_key);
};

struct MemoryPiece {
  Rank rank = 0;
  std::uint32_t at = 0;
  bool has_flags = false;     ///< packets: each datum has a flag beside it
  bool is_waited_for = true;  ///< who reads packets waits for their flags
  bool is_message = false;    ///< `at` is the place in the message that the step receives or sends
};

/// One piece: what stands at `to` is then the sum of what stood at `from`, in this order.
struct Move {
  std::vector<MemoryPiece> from;
  std::vector<MemoryPiece> to;
  bool starts_from_zero = false;
};

struct BlockStep {
  struct After {
    std::uint32_t step = 0;
    bool is_relaxed = false;  ///< orders what others write then, but shows them nothing
  };
  std::uint32_t block = 0;
  /// Phase of its block: steps of one phase run at the same time, phases one after the other.
  std::uint32_t phase = 0;
  std::uint32_t over = 0;         ///< so many phases are over for who waits for this step
  std::vector<After> after = {};  ///< written with the order
  std::vector<Move> moves = {};
  std::vector<std::uint32_t> owns = {};  ///< indices in BlockProgram::owned
  std::uint32_t label = 0;               ///< index in BlockProgram::labels
  bool is_kernel_border = false;         ///< stands for the kernels before and after: moves nothing
};

using Way = std::tuple<std::uint32_t, Rank, Rank>;  ///< channel, from, to

/// Work without a pause, by one thread block, or by what works for it, and what it waits for.
struct BlockAction {
  struct Change {
    std::uint32_t counter = 0;
    bool is_relaxed = false;
    std::uint32_t all = 0;  ///< at a barrier: waits for so many, and takes none
  };
  BlockStep step = {};  ///< but for what it comes after
  std::vector<Change> raises = {};
  std::vector<Change> takes = {};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> after = {};  ///< block, its first actions
  /// The next message of a way that it receives or sends, which holds a piece of each of its moves.
  std::optional<Way> receives = {};
  std::optional<Way> sends = {};
  bool knows_at_once = false;  ///< the state it waits for; else in the next phase
};

/// A counter that is raised and waited for: signals of a channel, a semaphore.
struct Counter {
  std::uint32_t initial = 0;
  std::uint32_t total = 0;
  std::map<std::uint32_t, std::uint32_t> raised_by = {};  ///< block: how often, in all
};

struct BlockProgram {
  const char* format = "";  ///< as messages begin with
  const char* what_orders = "";
  std::string name;
  BlockMemory memory;
  std::vector<Rank> rank_of_block;
  std::vector<std::vector<BlockAction>> blocks;
  std::vector<Counter> counters = {};
  std::vector<BlockStep> steps = {};  ///< schedule_from_blocks() puts actions into an order
  std::vector<std::string> labels;    ///< steps' in messages: "gpu 1, tb 0, step 2"
  /// Resources that only one step of a GPU may use at a time, by name: the end of a channel.
  std::vector<std::string> owned = {};
};

/// Throws InvalidInput for steps that wait for ever, those that race (both are named), pieces that
/// hold nothing, and sums of different pieces. Whether the result is the collective that it says is
/// for check() to say.
WrittenSchedule schedule_from_blocks(BlockProgram program);

}  // namespace arlab

#include "reference/collectives/block_program.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace arlab {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};
/// Numbers that the check of the order keeps, of one GPU.
constexpr std::size_t kMostClocks = std::size_t{1} << 25;

// ---------------------------------------------------------------- an order of the actions

/// Lets every block go on until it has to wait. What is done stays so: if this order gets stuck, all
/// do.
class Scheduler {
 public:
  explicit Scheduler(BlockProgram program)
      : p_(std::move(program)),
        done_(p_.blocks.size()),
        pending_(p_.blocks.size()),
        phase_(p_.blocks.size()),
        raised_(p_.counters.size()),
        taken_(p_.counters.size()) {}

  BlockProgram program() {
    std::uint64_t actions = 0;
    for (const auto& block : p_.blocks) actions += block.size();
    if (actions * p_.blocks.size() > kMostPairs) {
      fail("{}: {} steps of {} thread blocks are too many", p_.format, actions, p_.blocks.size());
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t i = 0; i < p_.blocks.size(); ++i) {
        while (done_[i].size() < p_.blocks[i].size() && runs(p_.blocks[i][done_[i].size()])) {
          moved = true;
        }
      }
    }
    for (std::uint32_t i = 0; i < p_.blocks.size(); ++i) {
      if (done_[i].size() == p_.blocks[i].size()) continue;
      const BlockStep& step = p_.blocks[i][done_[i].size()].step;
      if (step.is_kernel_border) continue;  // it waits for the others
      fail("{}: {} waits for ever: for what nobody sends or signals, or a step that waits itself",
           p_.format, p_.labels[step.label]);
    }
    return std::move(p_);
  }

 private:
  /// Runs the next action of a block, if it need not wait.
  bool runs(const BlockAction& action) {
    std::vector<BlockStep::After> waited;
    for (const auto& [block, actions] : action.after) {
      if (done_[block].size() < actions) return false;
      if (actions > 0) waited.push_back({done_[block][actions - 1]});
    }
    if (action.receives) {
      const std::deque<Message>& way = ways_[*action.receives];
      if (way.empty()) return false;
      if (way.front().count != action.step.moves.size()) {
        fail("{}: {}: it receives {} pieces, but {} were sent", p_.format,
             p_.labels[action.step.label], action.step.moves.size(), way.front().count);
      }
      waited.push_back({way.front().sender});
    }
    for (const BlockAction::Change& take : action.takes) {
      if (!takes(take, waited)) return false;
    }
    for (const Move& move : action.step.moves) {
      for (const MemoryPiece& piece : move.from) {
        if (!piece.has_flags || !piece.is_waited_for) continue;
        const auto flagged = flags_.find({piece.rank, piece.at});
        if (flagged == flags_.end()) return false;
        waited.push_back({flagged->second, true});
      }
    }
    emit(action, waited);
    return true;
  }

  /// Whether a counter is high enough, and which steps must have raised it then: those without
  /// which all others together are too few.
  bool takes(const BlockAction::Change& take, std::vector<BlockStep::After>& waited) const {
    const Counter& counter = p_.counters[take.counter];
    const auto& raised = raised_[take.counter];
    const std::int64_t needed = take.all > 0
                                    ? std::int64_t{take.all}
                                    : std::int64_t{taken_[take.counter]} + 1 - counter.initial;
    if (needed <= 0) return true;
    std::int64_t all = 0;
    for (const auto& [block, steps] : raised) all += static_cast<std::int64_t>(steps.size());
    if (all < needed) return false;
    for (const auto& [block, steps] : raised) {
      const std::int64_t by_block = counter.raised_by.at(block);
      const std::int64_t sure = std::min(by_block, needed - counter.total + by_block);
      if (sure <= 0) continue;
      BlockStep::After after = steps[static_cast<std::size_t>(sure - 1)];
      after.is_relaxed |= take.is_relaxed;
      waited.push_back(after);
    }
    return true;
  }

  void emit(const BlockAction& action, const std::vector<BlockStep::After>& waited) {
    const auto position = static_cast<std::uint32_t>(p_.steps.size());
    BlockStep& step = p_.steps.emplace_back(action.step);
    // Other threads of a block know behind the next nop what one of them waits for.
    std::vector<BlockStep::After>& pending = pending_[step.block];
    if (step.phase > phase_[step.block]) std::swap(step.after, pending);
    phase_[step.block] = step.phase;
    std::vector<BlockStep::After>& known = action.knows_at_once ? step.after : pending;
    known.insert(known.end(), waited.begin(), waited.end());
    for (const BlockAction::Change& take : action.takes) {
      if (take.all == 0) ++taken_[take.counter];
    }
    for (const BlockAction::Change& raise : action.raises) {
      raised_[raise.counter][step.block].push_back({position, raise.is_relaxed});
    }
    if (action.receives) {
      place_message(step, &Move::from, ways_[*action.receives].front().at);
      ways_[*action.receives].pop_front();
    }
    if (action.sends) {
      const Rank to = std::get<2>(*action.sends);
      const std::uint32_t at = p_.memory.shared(to) + p_.memory.messages[to];
      const auto count = static_cast<std::uint32_t>(step.moves.size());
      p_.memory.messages[to] += count;
      place_message(step, &Move::to, at);
      ways_[*action.sends].push_back({position, at, count});
    }
    for (const Move& move : step.moves) {
      for (const MemoryPiece& piece : move.to) {
        if (piece.has_flags) flags_.emplace(std::pair(piece.rank, piece.at), position);
      }
    }
    done_[step.block].push_back(position);
  }

  static void place_message(BlockStep& step, std::vector<MemoryPiece> Move::* pieces,
                            std::uint32_t at) {
    for (Move& move : step.moves) {
      for (MemoryPiece& piece : move.*pieces) piece.at += piece.is_message ? at : 0;
    }
  }

  struct Message {
    std::uint32_t sender = 0;  ///< position in the order
    std::uint32_t at = 0;      ///< in the memory of who receives
    std::uint32_t count = 0;
  };

  BlockProgram p_;
  std::vector<std::vector<std::uint32_t>> done_;        ///< by block: positions of its actions
  std::vector<std::vector<BlockStep::After>> pending_;  ///< by block
  std::vector<std::uint32_t> phase_;                    ///< by block
  /// By counter: by block, the steps that have raised it.
  std::vector<std::map<std::uint32_t, std::vector<BlockStep::After>>> raised_;
  std::vector<std::uint32_t> taken_;                                    ///< by counter
  std::map<Way, std::deque<Message>> ways_ = {};                        ///< messages on their way
  std::map<std::pair<Rank, std::uint32_t>, std::uint32_t> flags_ = {};  ///< packets, and who wrote
};

// ---------------------------------------------------------------- steps that nothing orders

/// A use of a piece of the memory of a GPU, or, behind them, of what only one step may use at a time.
struct Access {
  MemoryPiece piece = {};
  std::uint32_t step = 0;
  std::uint32_t move = 0;
  bool writes = false;
};

/// By GPU, then as steps come. A step reads before it writes.
std::vector<Access> accesses_of(const BlockProgram& program) {
  std::vector<Access> accesses;
  for (std::uint32_t i = 0; i < program.steps.size(); ++i) {
    const BlockStep& step = program.steps[i];
    for (const bool writes : {false, true}) {
      for (std::uint32_t m = 0; m < step.moves.size(); ++m) {
        for (const MemoryPiece& piece : writes ? step.moves[m].to : step.moves[m].from) {
          if (piece.at >= program.memory.shared(piece.rank)) continue;  // a message
          accesses.push_back({piece, i, m, writes});
        }
      }
    }
    const Rank rank = program.rank_of_block[step.block];
    for (const std::uint32_t owned : step.owns) {
      accesses.push_back({{rank, program.memory.shared(rank) + owned}, i, 0, true});
    }
  }
  std::ranges::stable_sort(accesses, {}, [](const Access& access) { return access.piece.rank; });
  return accesses;
}

/// Phases of some thread blocks that are over in every run before a step begins: so many of each
/// such block (a vector clock).
class Clocks {
 public:
  Clocks(const BlockProgram& program, std::span<const Access> accesses, bool with_relaxed)
      : p_(program), with_relaxed_(with_relaxed), index_(program.rank_of_block.size(), kNone) {
    std::uint32_t width = 0;
    for (const Access& access : accesses) {
      std::uint32_t& index = index_[p_.steps[access.step].block];
      if (index == kNone) index = width++;
    }
    if (width < 2) return;
    std::vector<std::shared_ptr<const Clock>> of_block(index_.size(),
                                                       std::make_shared<const Clock>(width));
    std::size_t numbers = 0;
    for (const BlockStep& step : p_.steps) {
      Clock now = *of_block[step.block];
      for (const BlockStep::After& after : step.after) join(now, after);
      if (now != *of_block[step.block]) {
        of_block[step.block] = std::make_shared<const Clock>(std::move(now));
        numbers += width;
      }
      if (numbers > kMostClocks) {
        fail("{}: {} thread blocks are too many for {} steps", p_.format, width, p_.steps.size());
      }
      known_.push_back(of_block[step.block]);
    }
  }

  /// Whether a step is over before another one begins.
  bool is_before(std::uint32_t one, std::uint32_t other) const {
    const BlockStep& first = p_.steps[one];
    if (first.block == p_.steps[other].block) return first.phase < p_.steps[other].phase;
    return (*known_[other])[index_[first.block]] > first.phase;
  }

 private:
  using Clock = std::vector<std::uint32_t>;

  /// Adds what was over before a step, and what is with it.
  void join(Clock& now, const BlockStep::After& after) const {
    if (after.is_relaxed && !with_relaxed_) return;
    const Clock& known = *known_[after.step];
    for (std::size_t i = 0; i < now.size(); ++i) now[i] = std::max(now[i], known[i]);
    const BlockStep& step = p_.steps[after.step];
    const std::uint32_t index = index_[step.block];
    if (index != kNone) now[index] = std::max(now[index], step.over);
  }

  const BlockProgram& p_;
  bool with_relaxed_;
  std::vector<std::uint32_t> index_;                      ///< the blocks', among those that count
  std::vector<std::shared_ptr<const Clock>> known_ = {};  ///< by step
};

/// Refuses programs in which two steps use the same piece of a GPU's memory, one of them writes it,
/// and neither is over before the other begins.
class RaceCheck {
 public:
  /// All accesses to the memory of one GPU.
  RaceCheck(const BlockProgram& program, std::span<const Access> accesses)
      : p_(program), strict_(program, accesses, false), relaxed_(program, accesses, true) {
    for (const Access& access : accesses) {
      if (access.writes) {
        write(pieces_[access.piece.at], access);
      } else {
        read(pieces_[access.piece.at], access);
      }
    }
  }

 private:
  /// Who has used it: the last that wrote, and those that have read since, the last of each thread
  /// block.
  struct Piece {
    std::optional<Access> written = {};
    std::map<std::uint32_t, Access> read = {};
    Access last_read = {.step = kNone};
  };

  void read(Piece& piece, const Access& access) {
    if (piece.written && !(access.piece.has_flags && access.piece.is_waited_for)) {
      require_order(*piece.written, access);
    }
    piece.last_read = access;
    piece.read[p_.steps[access.step].block] = access;
  }

  void write(Piece& piece, const Access& access) {
    const bool was_packet = piece.written && piece.written->piece.has_flags;
    if (piece.last_read.step == access.step) {
      // The threads of a block move all pieces of a step at once.
      if (piece.last_read.move != access.move) {
        fail("{}: {} writes pieces that it has still to read: {}", p_.format, label(access),
             name(access));
      }
      if (access.piece.has_flags && was_packet) return;  // the same packets again
    }
    if (was_packet && access.piece.has_flags) {
      fail("{}: {} writes packets to {} a second time: who reads them cannot tell which", p_.format,
           label(access), name(access));
    }
    if (piece.written) require_order(*piece.written, access);
    for (const auto& [block, reader] : piece.read) require_order(reader, access);
    piece.read.clear();
    piece.written = access;
  }

  void require_order(const Access& one, const Access& other) const {
    const bool begins = is_border(one);
    const bool ends = is_border(other);
    // Own data that a GPU still reads when its kernel ends are for a flush, which plans leave out.
    if (ends && !one.writes && p_.rank_of_block[p_.steps[one.step].block] == one.piece.rank) return;
    const Clocks& clocks = other.writes || begins || ends ? relaxed_ : strict_;
    if (one.step == other.step || clocks.is_before(one.step, other.step)) return;
    fail("{}: {} {} {} and {} {} it; nothing orders them ({})", p_.format, label(other),
         does(other), name(other), label(one), does(one), p_.what_orders);
  }

  bool is_border(const Access& access) const { return p_.steps[access.step].is_kernel_border; }
  bool is_owned(const Access& access) const {
    return access.piece.at >= p_.memory.shared(access.piece.rank);
  }

  // ---- in messages

  const std::string& label(const Access& access) const {
    return p_.labels[p_.steps[access.step].label];
  }

  std::string name(const Access& access) const {
    return is_owned(access) ? p_.owned[access.piece.at - p_.memory.shared(access.piece.rank)]
                            : p_.memory.name_of(access.piece.at, access.piece.rank);
  }

  const char* does(const Access& access) const {
    return is_border(access) || is_owned(access) ? "uses" : access.writes ? "writes" : "reads";
  }

  const BlockProgram& p_;
  Clocks strict_;
  Clocks relaxed_;
  std::unordered_map<std::uint32_t, Piece> pieces_ = {};
};

// ---------------------------------------------------------------- running it on names

/// Contents of a piece of memory.
struct Held {
  ValueId value = kOwnInput;
  ChunkId chunk = 0;
  bool encoded = false;
  std::uint32_t ready = 0;  ///< the first step in which it can be used
};

struct NamedOp {
  Op op;
  std::vector<ValueId> from;
};

class Machine {
 public:
  explicit Machine(const BlockProgram& program) : p_(program), m_(program.memory) {
    const bool gathers = m_.collective == Collective::all_gather;
    chunks_ = gathers ? m_.outputs : m_.inputs;
    held_.resize(m_.ranks);
    for (Rank rank = 0; rank < m_.ranks; ++rank) {
      held_[rank].resize(std::size_t{m_.shared(rank)} + m_.messages[rank]);
      for (std::uint32_t i = 0; i < m_.inputs; ++i) {
        const ChunkId chunk = gathers ? rank * m_.inputs + i : i;
        held_[rank][m_.begin(Buffer::input, rank) + i] = Held{.chunk = chunk};
      }
    }
  }

  WrittenSchedule run() {
    for (std::uint32_t i = 0; i < p_.steps.size(); ++i) {
      for (const Move& move : p_.steps[i].moves) execute(i, move);
    }
    return written();
  }

 private:
  void execute(std::uint32_t step, const Move& move) {
    const Rank rank = p_.rank_of_block[p_.steps[step].block];
    if (move.from.empty()) return;
    const Held value =
        move.from.size() == 1 ? fetched(rank, move.from.front(), step) : sum(rank, move, step);
    for (const MemoryPiece& to : move.to) {
      held_[to.rank][to.at] = to.rank == rank ? value : sent(rank, to.rank, value);
    }
  }

  Held fetched(Rank rank, const MemoryPiece& from, std::uint32_t step) {
    const std::optional<Held>& held = held_[from.rank][from.at];
    if (!held) {
      fail("{}: {}: {} has nothing in it yet", p_.format, p_.labels[p_.steps[step].label],
           m_.name_of(from.at, from.rank));
    }
    return from.rank == rank ? *held : sent(from.rank, rank, *held);
  }

  Held append(const Op& op, std::vector<ValueId> from, std::uint32_t ready) {
    ops_.push_back({op, std::move(from)});
    return {static_cast<ValueId>(ops_.size() - 1), op.chunk, op.kind != OpKind::reduce, ready};
  }

  Held sum(Rank rank, const Move& move, std::uint32_t by) {
    std::vector<ValueId> addends;
    Op op{.kind = OpKind::reduce,
          .start = move.starts_from_zero ? Start::zero : Start::first,
          .rank = rank};
    for (const MemoryPiece& from : move.from) {
      const Held held = fetched(rank, from, by);
      if (addends.empty()) op.chunk = held.chunk;
      if (held.chunk != op.chunk) {
        fail("{}: {}: it adds piece {} of the tensor to piece {}", p_.format,
             p_.labels[p_.steps[by].label], held.chunk, op.chunk);
      }
      op.step = std::max(op.step, held.ready);
      addends.push_back(held.value);
    }
    return append(op, std::move(addends), op.step);
  }

  Held sent(Rank rank, Rank to, const Held& value) {
    Held bytes = value;
    Op op{.start = Start::first, .step = value.ready, .rank = rank, .chunk = value.chunk};
    if (!value.encoded) {
      const auto key = std::tuple(rank, value.value, value.chunk);
      const auto known = encoded_.find(key);
      bytes = known != encoded_.end() ? known->second : append(op, {value.value}, value.ready);
      encoded_.emplace(key, bytes);
    }
    op.kind = OpKind::send;
    op.step = bytes.ready;
    op.peer = to;
    return append(op, {bytes.value}, bytes.ready + 1);
  }

  // ---- the result

  WrittenSchedule written() {
    Schedule schedule;
    schedule.collective = m_.collective;
    schedule.algorithm = p_.name;
    schedule.world_size = m_.ranks;
    schedule.chunks.resize(chunks_);
    std::vector<WrittenSchedule::Fraction> begins;
    const bool scatters = m_.collective == Collective::reduce_scatter;
    for (Rank rank = 0; rank < m_.ranks; ++rank) {
      const std::uint32_t first = scatters ? rank * m_.outputs : 0;
      for (std::uint32_t i = 0; i < chunks_; ++i) {
        std::optional<Held> held = Held{.chunk = i};  // reduce_scatter: its own tensor
        if (i >= first && i < first + m_.outputs) {
          held = held_[rank][m_.begin(Buffer::output, rank) + i - first];
        }
        if (!held) continue;
        schedule.outputs.push_back({rank, held->chunk, as_others_see(rank, *held).value});
        begins.push_back({i, chunks_});
      }
    }
    write_ops(schedule);
    std::vector<std::pair<WrittenSchedule::Fraction, WrittenSchedule::Fraction>> chunks;
    for (std::uint32_t i = 0; i < chunks_; ++i) {
      chunks.push_back({{i, chunks_}, {std::uint64_t{i} + 1, chunks_}});
    }
    return {std::move(schedule), std::move(chunks), std::move(begins)};
  }

  /// In the order of steps. A sum that only another one begins with is a part of that.
  void write_ops(Schedule& schedule) {
    std::vector<std::uint32_t> uses(ops_.size());
    const auto count = [&uses](ValueId id) {
      if (id != kOwnInput) ++uses[id];
    };
    for (const NamedOp& named : ops_) std::ranges::for_each(named.from, count);
    for (const Output& output : schedule.outputs) count(output.value);
    for (NamedOp& named : ops_) {
      const ValueId first = named.from.front();
      if (named.op.kind != OpKind::reduce || named.op.start == Start::zero || first == kOwnInput ||
          ops_[first].op.kind != OpKind::reduce || uses[first] != 1) {
        continue;
      }
      std::vector<ValueId> addends = std::exchange(ops_[first].from, {});
      addends.insert(addends.end(), named.from.begin() + 1, named.from.end());
      named.from = std::move(addends);
      named.op.start = ops_[first].op.start;
    }
    std::vector<ValueId> order;
    for (ValueId id = 0; id < ops_.size(); ++id) {
      if (!ops_[id].from.empty()) order.push_back(id);
    }
    std::ranges::stable_sort(order, {}, [this](ValueId id) { return ops_[id].op.step; });
    std::vector<ValueId> renamed(ops_.size());
    for (ValueId i = 0; i < order.size(); ++i) renamed[order[i]] = i;
    const auto name = [&](ValueId id) { return id == kOwnInput ? id : renamed[id]; };
    for (const ValueId id : order) {
      Op& op = schedule.ops.emplace_back(ops_[id].op);
      if (op.kind != OpKind::reduce) {
        op.source = name(ops_[id].from.front());
        continue;
      }
      op.first_addend = static_cast<std::uint32_t>(schedule.addends.size());
      op.addend_count = static_cast<std::uint32_t>(ops_[id].from.size());
      std::ranges::transform(ops_[id].from, std::back_inserter(schedule.addends), name);
    }
    for (Output& output : schedule.outputs) output.value = name(output.value);
  }

  /// A sent value is kept as it was sent.
  Held as_others_see(Rank rank, const Held& held) const {
    if (held.encoded || !ends_alike(m_.collective)) return held;
    const auto known = encoded_.find({rank, held.value, held.chunk});
    return known == encoded_.end() ? held : known->second;
  }

  const BlockProgram& p_;
  const BlockMemory& m_;
  std::uint32_t chunks_ = 0;                            ///< the tensor's
  std::vector<std::vector<std::optional<Held>>> held_;  ///< [rank][piece of its memory]
  std::map<std::tuple<Rank, ValueId, ChunkId>, Held> encoded_ = {};
  std::vector<NamedOp> ops_ = {};
};

}  // namespace

std::uint32_t BlockMemory::size(Buffer buffer, Rank rank) const {
  const std::uint32_t sizes[] = {inputs, outputs, scratch[rank]};
  return sizes[static_cast<std::size_t>(buffer)];
}

std::uint32_t BlockMemory::begin(Buffer buffer, Rank rank) const {
  const bool gathers = collective == Collective::all_gather;
  const bool scatters = collective == Collective::reduce_scatter;
  const std::uint32_t begins[] = {
      in_place && gathers ? rank * inputs : 0,
      in_place ? (scatters ? rank * outputs : 0) : inputs,
      inputs + outputs,
  };
  return begins[static_cast<std::size_t>(buffer)];
}

std::string BlockMemory::name_of(std::uint32_t piece, Rank rank) const {
  const bool gathers = in_place && collective == Collective::all_gather;
  Buffer buffer = gathers ? Buffer::output : Buffer::input;
  if (!in_place && piece >= inputs) buffer = Buffer::output;
  if (piece >= begin(Buffer::scratch, rank)) buffer = Buffer::scratch;
  return fmt::format("{} {} of gpu {}", kBufferNames[static_cast<std::size_t>(buffer)],
                     (piece - begin(buffer, rank)) / per_chunk, rank);
}

void BlockMemory::settle_outputs(const char* format, const char* inputs_key) {
  const bool gathers = collective == Collective::all_gather;
  const bool scatters = collective == Collective::reduce_scatter;
  const bool by_slot = collective == Collective::all_to_all || scatters;
  if (inputs == 0 || (by_slot && inputs % ranks != 0)) {
    fail("{}: {} is {}; allowed are multiples of {}", format, inputs_key, inputs,
         by_slot ? ranks : 1);
  }
  if (gathers && std::uint64_t{inputs} * ranks > kMostPieces) {
    fail("{}: {} ranks of {} {} each are too many; allowed are {} in all", format, ranks, inputs,
         inputs_key, kMostPieces);
  }
  outputs = gathers ? inputs * ranks : scatters ? inputs / ranks : inputs;
  if (std::uint64_t{ranks} * (inputs + outputs) > kMostMoves) {
    fail("{}: {} ranks of {} {} each are too many", format, ranks, inputs, inputs_key);
  }
  if (std::accumulate(scratch.begin(), scratch.end(), std::size_t{0}) > kMostMoves) {
    fail("{}: pieces of the scratch of all gpus are more than {}", format, kMostMoves);
  }
  messages.resize(ranks);
}

WrittenSchedule schedule_from_blocks(BlockProgram unordered) {
  const BlockProgram program = Scheduler(std::move(unordered)).program();
  const std::vector<Access> accesses = accesses_of(program);
  for (auto begin = accesses.begin(); begin != accesses.end();) {
    const auto end = std::find_if(begin, accesses.end(), [&](const Access& access) {
      return access.piece.rank != begin->piece.rank;
    });
    RaceCheck(program, {begin, end});
    begin = end;
  }
  return Machine(program).run();
}

}  // namespace arlab

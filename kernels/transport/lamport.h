// One block's side of the protocol of Lamport slots (lamport_slots.h): it sends wires, reads wires, and
// leaves their slots empty.
#pragma once

#include "kernels/transport/sentinels.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Wires in shared memory: what is sent to a rank, then what that rank has sent; at the block's own
/// rank what it contributes itself.
template <unsigned kWords>
struct LamportMemory {
  std::uint32_t failed;
  Uint4 wire[kMaxRanks][kWords];
};

/// A bit for every rank.
using RankSet = std::uint32_t;
inline constexpr RankSet kAllRanks = ~RankSet{0};

/// All threads of a block use it together. kWords: of 16 bytes, in a wire at most.
template <unsigned kWords, class Memory = LamportMemory<kWords>>
class LamportExchange {
 public:
  /// Looks at nothing that another kernel may write. `words`: in a wire of this call.
  ARLAB_DEVICE LamportExchange(const Team& team, unsigned words, Memory& memory)
      : team_(team), words_(words), memory_(memory) {}

  /// To be called behind pdl_wait(). What is loaded before is still on its way. No barrier: there
  /// is one before anything is received.
  ARLAB_DEVICE void begin() {
    call_ = load_relaxed(global_pointer(team_.lamport_calls) + blockIdx.x);
    first_ = pieces_from(0);
    if (threadIdx.x == 0) memory_.failed = 0;
    if (meets()) {
      epoch_ = global_pointer(team_.epochs)[0] + 1;
      aborted_ = load_relaxed(abort_word(buffer_of(team_, team_.rank)));
    }
  }

  /// Where the wire of a rank lies in shared memory.
  ARLAB_DEVICE std::uint8_t* wire(int rank) const {
    return reinterpret_cast<std::uint8_t*>(memory_.wire[rank]);
  }

  /// Sends what is in shared memory: to every other rank of the set its wire, or to all of them
  /// `same`.
  ARLAB_DEVICE void send(unsigned stage, RankSet to) const {
    send_each(stage, to, [&](int rank) ARLAB_INLINED_LAMBDA { return memory_.wire[rank]; });
  }
  ARLAB_DEVICE void send(unsigned stage, RankSet to, const Uint4* same) const {
    send_each(stage, to, [&](int) ARLAB_INLINED_LAMBDA { return same; });
  }

  /// Tells other ranks of the call, which they compare with theirs: once, behind the first wires. A
  /// team that has given up is told nothing.
  ARLAB_DEVICE void signal() const {
    if (!meets() || aborted_ != 0) return;
    store_relaxed(flag_at(team_, meets_rank(), 0, team_.rank), flag_of(team_, epoch_));
  }

  /// Waits for the wires of all other ranks of the set, and takes them. At stage 0, behind
  /// signal(), also for what ranks tell of their calls. False when one did not come in time, or
  /// they are in different calls.
  ARLAB_DEVICE bool receive(unsigned stage, RankSet from) const {
    bool looks_for_flag = stage == 0 && meets();
    for_each_group(from, [&](const Pieces& pieces) ARLAB_INLINED_LAMBDA {
      Uint4 words[kAtOnce];
      bool missing = true;
#pragma unroll 1
      for (int polls = 0; polls < kPollsInARow && missing; ++polls) {
        // Looked for one after the other, words and flag would take two ways to memory.
        std::uint32_t flag = 0;
        if (looks_for_flag) flag = load_relaxed(flag_at(team_, team_.rank, 0, meets_rank()));
#pragma unroll
        for (unsigned i = 0; i < kAtOnce; ++i) {
          if (pieces.piece[i].rank >= 0)
            words[i] = load_relaxed_v4(slot(team_, call_, stage, pieces.piece[i]));
        }
        if (looks_for_flag) {
          const bool is_there = flag == flag_of(team_, epoch_) || ahead_by(flag, epoch_) > 0;
          looks_for_flag = !is_there || aborted_ != 0;
        }
        missing = looks_for_flag;
#pragma unroll
        for (unsigned i = 0; i < kAtOnce; ++i) {
          missing = missing || (pieces.piece[i].rank >= 0 && any_empty(words[i]));
        }
      }
      if (looks_for_flag) {
        wait_for_flag(team_, 0, meets_rank(), epoch_, memory_.failed, aborted_);
        looks_for_flag = false;
      }
      if (missing) return take_slowly(team_, memory_, call_, stage, pieces);
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (pieces.piece[i].rank >= 0)
          take(team_, memory_, call_, stage, pieces.piece[i], words[i]);
      }
    });
    __syncthreads();
    return memory_.failed == 0;
  }

  /// For a wire that is the tensor itself, with kThreads words: sends this thread's to all other ranks, and takes theirs
  /// into words[rank], without shared memory. Else as send(), signal() and receive(). Between them `sent` is called.
  template <int kMostRanks, class Sent>
  ARLAB_DEVICE bool exchange(const Uint4& own, Uint4 (&words)[kMostRanks], Sent sent) const {
    constexpr int kOthers = kMostRanks - 1;
    const unsigned thread = thread_index();
    const std::uint32_t at =
        team_.lamport.place(static_cast<int>(blockIdx.x), team_.rank) + thread * 16;
    for_others<kOthers>([&](int, int rank) ARLAB_INLINED_LAMBDA {
      store_relaxed_v4(slots_of(team_, rank) + (at + team_.lamport.of_call(call_, 0)), own);
      if (any_empty(own)) store_release(valid_at(team_, rank, call_, 0, team_.rank, thread), 1);
    });
    signal();
    sent();
    __syncthreads();
    Uint4 got[kOthers];
    bool looks_for_flag = meets();
    bool missing = true;
#pragma unroll 1
    for (int polls = 0; polls < kPollsInARow && missing; ++polls) {
      std::uint32_t flag = 0;
      if (looks_for_flag) flag = load_relaxed(flag_at(team_, team_.rank, 0, meets_rank()));
      for_others<kOthers>([&](int i, int rank) ARLAB_INLINED_LAMBDA {
        got[i] = load_relaxed_v4(slot(team_, call_, 0, {rank, thread, at}));
      });
      if (looks_for_flag) {
        const bool is_there = flag == flag_of(team_, epoch_) || ahead_by(flag, epoch_) > 0;
        looks_for_flag = !is_there || aborted_ != 0;
      }
      missing = looks_for_flag;
      for_others<kOthers>([&](int i, int)
                              ARLAB_INLINED_LAMBDA { missing = missing || any_empty(got[i]); });
    }
    if (looks_for_flag) wait_for_flag(team_, 0, meets_rank(), epoch_, memory_.failed, aborted_);
    for_others<kOthers>([&](int i, int rank) ARLAB_INLINED_LAMBDA {
      if (missing) got[i] = find_slowly(team_, memory_, call_, {rank, thread, at});
      store_relaxed_v4(slot(team_, call_, 0, {rank, thread, at}),
                       {{kEmpty, kEmpty, kEmpty, kEmpty}});
    });
    // Each from registers that are known beforehand: arrays with an index that is not would lie in memory.
#pragma unroll
    for (int rank = 0; rank < kMostRanks; ++rank) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t before = got[rank < kOthers ? rank : 0].word[i];
        const std::uint32_t behind = got[rank > 0 ? rank - 1 : 0].word[i];
        const std::uint32_t other = rank < team_.rank ? before : behind;
        words[rank].word[i] = rank == team_.rank ? own.word[i] : other;
      }
    }
    return !missing || load_relaxed(&memory_.failed) == 0;
  }

  /// To be called after everything else.
  ARLAB_DEVICE void end() const {
    if (threadIdx.x == 0) global_pointer(team_.lamport_calls)[blockIdx.x] = call_ + 1;
    if (meets() && meets_rank() == 0) global_pointer(team_.epochs)[0] = epoch_;
  }

 private:
  /// Pieces that a thread looks for at the same time, at most: all that it has of up to 4 ranks.
  static constexpr unsigned kAtOnce = (3 * kWords + kThreads - 1) / kThreads;

  /// 16 bytes of the wire to another rank, or from it: in both directions the same thread's, so
  /// that shared memory needs no barrier between.
  struct Piece {
    int rank;  ///< below 0: none
    unsigned words;
    std::uint32_t at;  ///< place in that rank's slots of stage 0 and even calls
  };
  struct Pieces {
    Piece piece[kAtOnce];
  };
  /// This thread's. Blocks begin with different ranks, so that all links are used.
  ARLAB_DEVICE Pieces pieces_from(unsigned begin) const {
    const auto own = static_cast<unsigned>(team_.rank);
    const auto others = static_cast<unsigned>(team_.layout.ranks - 1);
    const unsigned first = own + 1 + blockIdx.x % others;
    Pieces pieces;
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned number = begin + thread_index() + i * kThreads;
      const unsigned distance = number / words_;
      unsigned rank = first + distance;
      // Once round all other ranks, which leaves out the own one, then round all of them.
      if (rank > own + others) rank -= others;
      if (rank > others) rank -= others + 1;
      const unsigned words = number % words_;
      pieces.piece[i] = {
          distance < others ? static_cast<int>(rank) : -1, words,
          team_.lamport.place(static_cast<int>(blockIdx.x), team_.rank) + words * 16};
    }
    return pieces;
  }
  /// f of pieces of these ranks, some at a time; at least once.
  template <class F>
  ARLAB_DEVICE void for_each_group(RankSet ranks, F f) const {
    const unsigned end = static_cast<unsigned>(team_.layout.ranks - 1) * words_;
    Pieces pieces = first_;
#pragma unroll 1
    for (unsigned begin = 0;;) {
#pragma unroll
      for (Piece& piece : pieces.piece) {
        if (piece.rank >= 0 && (ranks >> piece.rank & 1) == 0) piece.rank = -1;
      }
      f(pieces);
      begin += kAtOnce * kThreads;
      if (begin >= end) return;
      pieces = pieces_from(begin);
    }
  }

  template <class WireFor>
  ARLAB_DEVICE void send_each(unsigned stage, RankSet to, WireFor wire_for) const {
    __syncthreads();
    for_each_group(to, [&](const Pieces& pieces) ARLAB_INLINED_LAMBDA {
#pragma unroll
      for (const Piece& piece : pieces.piece) {
        if (piece.rank < 0) continue;
        const Uint4 words = load_128(wire_for(piece.rank) + piece.words);
        store_relaxed_v4(
            slots_of(team_, piece.rank) + (piece.at + team_.lamport.of_call(call_, stage)), words);
        if (any_empty(words)) {
          store_release(valid_at(team_, piece.rank, call_, stage, team_.rank, piece.words), 1);
        }
      }
    });
  }

  /// f(number among the others, rank) of every other rank.
  template <int kOthers, class F>
  ARLAB_DEVICE void for_others(F f) const {
#pragma unroll
    for (int i = 0; i < kOthers; ++i) {
      if (kOthers == 1 || i < team_.layout.ranks - 1) f(i, i + (i >= team_.rank ? 1 : 0));
    }
  }

  ARLAB_DEVICE static std::uint8_t* slots_of(const Team& team, int rank) {
    return buffer_of(team, rank) + team.lamport.slots_begin;
  }
  /// Words of the wire from a rank, in this rank's slots.
  ARLAB_DEVICE static std::uint8_t* slot(const Team& team, std::uint32_t call, unsigned stage,
                                         const Piece& piece) {
    return slots_of(team, team.rank) +
           (piece.at + team.lamport.of_call(call, stage) +
            static_cast<std::uint32_t>(piece.rank - team.rank) * LamportSlots::kWireStride);
  }
  /// The flag of words of the wire from a rank, in the buffer of rank `at`.
  ARLAB_DEVICE static std::uint8_t* valid_at(const Team& team, int at, std::uint32_t call,
                                             unsigned stage, int from, unsigned words) {
    return buffer_of(team, at) +
           team.lamport.valid_flag(
               team.lamport.index(call, static_cast<int>(blockIdx.x), stage, from), words);
  }

  ARLAB_DEVICE static void take(const Team& team, Memory& memory, std::uint32_t call,
                                unsigned stage, const Piece& piece, const Uint4& words) {
    store_128(&memory.wire[piece.rank][piece.words], words);
    store_relaxed_v4(slot(team, call, stage, piece), {{kEmpty, kEmpty, kEmpty, kEmpty}});
  }
  /// Takes words that are late, or like kEmpty. Not a member: taking the address of a kernel's
  /// registers makes it read them from memory again and again.
  ARLAB_DEVICE_RARE static void take_slowly(const Team& team, Memory& memory, std::uint32_t call,
                                            unsigned stage, Pieces pieces) {
#pragma unroll
    for (const Piece& piece : pieces.piece) {
      if (piece.rank < 0) continue;
      Uint4 words = load_relaxed_v4(slot(team, call, stage, piece));
      if (any_empty(words)) words = wait_for_words(team, memory, call, stage, piece);
      take(team, memory, call, stage, piece, words);
    }
  }
  ARLAB_DEVICE_RARE static Uint4 find_slowly(const Team& team, Memory& memory, std::uint32_t call,
                                             Piece piece) {
    const Uint4 words = load_relaxed_v4(slot(team, call, 0, piece));
    return any_empty(words) ? wait_for_words(team, memory, call, 0, piece) : words;
  }
  ARLAB_DEVICE static Uint4 wait_for_words(const Team& team, Memory& memory, std::uint32_t call,
                                           unsigned stage, const Piece& piece) {
    std::uint8_t* const valid_here =
        valid_at(team, team.rank, call, stage, piece.rank, piece.words);
    return arlab::kernels::wait_for_words(team, slot(team, call, stage, piece), valid_here,
                                          piece.rank, memory.failed);
  }

  /// Whether this thread meets the other ranks: threads of block 0 that have the fewest words do.
  ARLAB_DEVICE bool meets() const {
    return blockIdx.x == 0 && thread_index() - kIdle < static_cast<unsigned>(team_.layout.ranks);
  }
  ARLAB_DEVICE static int meets_rank() { return static_cast<int>(thread_index() - kIdle); }

  const Team& team_;
  const unsigned words_;  // a wire's; a constant where the codec has one
  Memory& memory_;
  std::uint32_t call_ = 0;  // this block's, through Lamport slots
  Pieces first_ = {};
  std::uint32_t epoch_ = 0;    // in threads that meet
  std::uint32_t aborted_ = 0;  // likewise: the abort word when the kernel started
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

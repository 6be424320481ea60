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
  ARLAB_DEVICE void send(unsigned stage, RankSet to, const Uint4* same) const {
    __syncthreads();
    const std::size_t index = index_of(team_, call_, stage, team_.rank);
    for_each_group(to, [&](const Pieces& pieces) ARLAB_INLINED_LAMBDA {
#pragma unroll
      for (const Piece& piece : pieces.piece) {
        if (piece.rank < 0) continue;
        const Uint4 words =
            load_128(same != nullptr ? same + piece.words : &memory_.wire[piece.rank][piece.words]);
        std::uint8_t* const buffer = buffer_of(team_, piece.rank);
        store_relaxed_v4(buffer + team_.lamport.slot(index) + piece.words * 16, words);
        if (any_empty(words)) {
          store_release(buffer + team_.lamport.valid_flag(index, piece.words), 1);
        }
      }
    });
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
  /// into words[rank], without shared memory. Else as send(), signal() and receive().
  template <int kMostRanks>
  ARLAB_DEVICE bool exchange(const Uint4& own, Uint4 (&words)[kMostRanks]) const {
    const int ranks = team_.layout.ranks;
    const std::size_t index = index_of(team_, call_, 0, team_.rank);
#pragma unroll
    for (int rank = 0; rank < kMostRanks; ++rank) {
      if (rank >= ranks || rank == team_.rank) continue;
      std::uint8_t* const buffer = buffer_of(team_, rank);
      store_relaxed_v4(buffer + team_.lamport.slot(index) + thread_index() * 16, own);
      if (any_empty(own))
        store_release(buffer + team_.lamport.valid_flag(index, thread_index()), 1);
    }
    signal();
    __syncthreads();
    bool looks_for_flag = meets();
    bool missing = true;
#pragma unroll 1
    for (int polls = 0; polls < kPollsInARow && missing; ++polls) {
      std::uint32_t flag = 0;
      if (looks_for_flag) flag = load_relaxed(flag_at(team_, team_.rank, 0, meets_rank()));
#pragma unroll
      for (int rank = 0; rank < kMostRanks; ++rank) {
        if (rank < ranks && rank != team_.rank)
          words[rank] = load_relaxed_v4(slot(team_, call_, 0, {rank, thread_index()}));
      }
      if (looks_for_flag) {
        const bool is_there = flag == flag_of(team_, epoch_) || ahead_by(flag, epoch_) > 0;
        looks_for_flag = !is_there || aborted_ != 0;
      }
      missing = looks_for_flag;
#pragma unroll
      for (int rank = 0; rank < kMostRanks; ++rank) {
        missing = missing || (rank < ranks && rank != team_.rank && any_empty(words[rank]));
      }
    }
    if (looks_for_flag) wait_for_flag(team_, 0, meets_rank(), epoch_, memory_.failed, aborted_);
#pragma unroll
    for (int rank = 0; rank < kMostRanks; ++rank) {
      if (rank >= ranks) continue;
      if (rank == team_.rank) {
        words[rank] = own;
        continue;
      }
      if (missing) words[rank] = find_slowly(team_, memory_, call_, {rank, thread_index()});
      store_relaxed_v4(slot(team_, call_, 0, {rank, thread_index()}),
                       {{kEmpty, kEmpty, kEmpty, kEmpty}});
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
  };
  struct Pieces {
    Piece piece[kAtOnce];
  };
  /// f of this thread's pieces, some at a time; at least once. Blocks begin with different ranks,
  /// so that all links are used.
  template <class F>
  ARLAB_DEVICE void for_each_group(RankSet ranks, F f) const {
    const auto own = static_cast<unsigned>(team_.rank);
    const auto others = static_cast<unsigned>(team_.layout.ranks - 1);
    const unsigned first = own + 1 + blockIdx.x % others;
#pragma unroll 1
    for (unsigned begin = 0; begin < others * words_; begin += kAtOnce * kThreads) {
      Pieces pieces;
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        const unsigned number = begin + thread_index() + i * kThreads;
        const unsigned distance = number / words_;
        unsigned rank = first + distance;
        // Once round all other ranks, which leaves out the own one, then round all of them.
        if (rank > own + others) rank -= others;
        if (rank > others) rank -= others + 1;
        const bool is_one = distance < others && (ranks >> rank & 1) != 0;
        pieces.piece[i] = {is_one ? static_cast<int>(rank) : -1, number % words_};
      }
      f(pieces);
    }
  }

  ARLAB_DEVICE static std::size_t index_of(const Team& team, std::uint32_t call, unsigned stage,
                                           int from) {
    return team.lamport.index(call, static_cast<int>(blockIdx.x), stage, from);
  }
  ARLAB_DEVICE static std::uint8_t* slot(const Team& team, std::uint32_t call, unsigned stage,
                                         const Piece& piece) {
    return buffer_of(team, team.rank) + team.lamport.slot(index_of(team, call, stage, piece.rank)) +
           piece.words * 16;
  }

  ARLAB_DEVICE static void take(const Team& team, Memory& memory, std::uint32_t call,
                                unsigned stage, const Piece& piece, const Uint4& words) {
    store_128(&memory.wire[piece.rank][piece.words], words);
    store_relaxed_v4(slot(team, call, stage, piece), {{kEmpty, kEmpty, kEmpty, kEmpty}});
  }
  /// What is late, or has words like kEmpty. Not a member: who takes the address of what a kernel
  /// has in registers makes it read that from memory again and again.
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
        buffer_of(team, team.rank) +
        team.lamport.valid_flag(index_of(team, call, stage, piece.rank), piece.words);
    return arlab::kernels::wait_for_words(team, slot(team, call, stage, piece), valid_here,
                                          piece.rank, memory.failed);
  }

  /// Whether this thread meets the other ranks: threads of block 0 that have the fewest words do.
  ARLAB_DEVICE bool meets() const {
    return blockIdx.x == 0 && thread_index() - kIdle < static_cast<unsigned>(team_.layout.ranks);
  }
  ARLAB_DEVICE static int meets_rank() { return static_cast<int>(thread_index() - kIdle); }

  const Team& team_;
  const unsigned words_;  // of a wire; a constant where the codec has one
  Memory& memory_;
  std::uint32_t call_ = 0;     // of this block, through Lamport slots
  std::uint32_t epoch_ = 0;    // of threads that meet
  std::uint32_t aborted_ = 0;  // likewise: the abort word when the kernel started
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// One block's side of the protocol (kernels/README.md): it fills slots of other ranks, runs an
// exchange, and reads its own slots.
#pragma once

#include "kernels/collectives/team.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The first word of a communication buffer.
ARLAB_DEVICE std::uint32_t* abort_word(std::uint8_t* buffer) {
  return reinterpret_cast<std::uint32_t*>(buffer);
}

/// And one of those behind it: not 0 when that rank has been waiting for long.
ARLAB_DEVICE std::uint32_t* waiting_word(std::uint8_t* buffer, int rank) {
  return abort_word(buffer) + 1 + rank;
}

ARLAB_DEVICE std::uint8_t* buffer_of(const Team& team, int rank) {
  return global_pointer(team.buffer[rank]);
}

/// Here and on all ranks: the same rank, 1 + its number, is named everywhere, and nobody waits on.
/// `failed` is the block's.
ARLAB_DEVICE void give_up(const Team& team, std::uint32_t culprit, std::uint32_t& failed) {
  store_relaxed(&failed, 1);
  store_relaxed(global_pointer(team.status), culprit);
  for (int rank = 0; rank < team.layout.ranks; ++rank) {
    store_relaxed(abort_word(buffer_of(team, rank)), culprit);
  }
}

/// Of a thread that looks for what rank `from` stores. The own rank is waited for without an end:
/// what keeps it waiting ends that. A rank that waits itself is not to blame, so it gets as long
/// again, for whoever waits for the right one to say so.
class Patience {
 public:
  ARLAB_DEVICE Patience(const Team& team, int from) : team_(team), from_(from) {}

  /// After looking in vain: true when that rank has not stored it in time, or another rank has
  /// given up, and so this one has too.
  ARLAB_DEVICE bool ends(std::uint32_t& failed) {
    constexpr std::uint32_t kPollsPerClock = 16;
    if (++polls_ % kPollsPerClock == 0) {
      std::uint32_t culprit = load_relaxed(abort_word(buffer_of(team_, team_.rank)));
      if (culprit == 0 && from_ != team_.rank) {
        const std::uint64_t timeout = team_.timeout_nanoseconds;
        const std::uint64_t waited = clock_nanoseconds() - start_;
        if (waited > timeout / 2 && (polls_ & kSaid) == 0) say_waiting();
        if (waited > 2 * timeout || (waited > timeout && !is_waiting())) {
          culprit = 1 + static_cast<std::uint32_t>(from_);
        }
      }
      if (culprit != 0) {
        give_up(team_, culprit, failed);
        return true;
      }
    }
    pause();
    return false;
  }

 private:
  static constexpr std::uint32_t kSaid = 0x80000000;

  ARLAB_DEVICE void say_waiting() {
    polls_ |= kSaid;
    for (int at = 0; at < team_.layout.ranks; ++at) {
      store_relaxed(waiting_word(buffer_of(team_, at), team_.rank), 1);
    }
  }
  ARLAB_DEVICE bool is_waiting() const {
    return load_relaxed(waiting_word(buffer_of(team_, team_.rank), from_)) != 0;
  }

  const Team& team_;
  const int from_;
  const std::uint64_t start_ = clock_nanoseconds();
  std::uint32_t polls_ = 0;  // and kSaid, once this is said
};

/// Waits until a flag of this rank's buffer, which rank `from` stores to, is not behind the colour,
/// or patience ends.
ARLAB_DEVICE void wait_for_flag(const Team& team, const std::uint32_t* flag, int from,
                                std::uint32_t colour, std::uint32_t& failed) {
  Patience patience(team, from);
  // A flag is at most one exchange off, and a count of items far from 2^31: the signed difference
  // is right across the wrap.
  while (static_cast<std::int32_t>(load_polled(flag) - colour) < 0) {
    if (patience.ends(failed)) return;
  }
  after_polling(flag);
}

/// All threads of a block use it together.
class Exchange {
 public:
  ARLAB_DEVICE Exchange(const Team& team, std::uint32_t& failed)
      : team_(team),
        block_(static_cast<int>(blockIdx.x)),
        signalled_(global_pointer(team.colours)[blockIdx.x]),
        waited_(signalled_),
        failed_(failed) {
    // Not waited for: the first exchange needs it.
    if (threadIdx.x == 0) aborted_ = load_relaxed(abort_word(buffer_of(team_, team_.rank)));
  }

  /// Where this block writes what block `block` of rank `to` will read: it travels with the next
  /// signal().
  ARLAB_DEVICE std::uint8_t* outgoing(int to) const {
    return buffer_of(team_, to) + team_.layout.slot(signalled_ + 1, block_, team_.rank);
  }

  /// What block `block` of rank `from` wrote here before the signal that the last wait() waited
  /// for, or `age` wait()s ago. It may be read until the next but one signal() after its own.
  ARLAB_DEVICE const std::uint8_t* incoming(int from, std::uint32_t age = 0) const {
    return buffer_of(team_, team_.rank) + team_.layout.slot(waited_ - age, block_, from);
  }

  /// Tells this block on every rank that its slots are filled. Only after a wait() for the signal
  /// before.
  ARLAB_DEVICE void signal() {
    if (!started_ && threadIdx.x == 0) {
      failed_ = aborted_;
      if (aborted_ != 0) store_relaxed(global_pointer(team_.status), aborted_);
    }
    started_ = true;
    ++signalled_;
    finish_stores();
    __syncthreads();
    const int peer = static_cast<int>(threadIdx.x);
    if (peer < team_.layout.ranks) store_release(flag(peer, team_.rank), signalled_);
  }

  /// Waits until the other ranks have signalled as often as this one. False when one did not arrive
  /// in time, now or in a call before: the kernel then ends, and the team with it.
  ARLAB_DEVICE bool wait() {
    waited_ = signalled_;
    const int peer = static_cast<int>(threadIdx.x);
    if (peer < team_.layout.ranks) {
      wait_for_flag(team_, flag(team_.rank, peer), peer, waited_, failed_);
    }
    __syncthreads();
    return failed_ == 0;
  }

  ARLAB_DEVICE bool run() {
    signal();
    return wait();
  }

  /// After everything else: the next kernel goes on where this one ends.
  ARLAB_DEVICE void end() {
    if (threadIdx.x == 0) global_pointer(team_.colours)[block_] = waited_;
  }

 private:
  ARLAB_DEVICE std::uint32_t* flag(int at, int from) const {
    return reinterpret_cast<std::uint32_t*>(buffer_of(team_, at) + team_.layout.flag(block_, from));
  }

  const Team& team_;
  const int block_;
  std::uint32_t signalled_;    // colour
  std::uint32_t waited_;       // colour
  std::uint32_t aborted_ = 0;  // thread 0's: the abort word when the kernel started
  bool started_ = false;
  std::uint32_t& failed_;  // shared by the block; set between signal() and wait()
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

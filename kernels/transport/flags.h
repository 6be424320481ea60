// One block's side of the protocol with flags (kernels/PROTOCOL.md): it fills slots of other ranks,
// runs an exchange, and reads its own slots. And what all three protocols have in common: who waits
// for a rank that does not come, and how a team gives up.
#pragma once

#include "kernels/transport/team.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The first word of a communication buffer: not 0 when somebody has given up.
ARLAB_DEVICE std::uint32_t* abort_word(std::uint8_t* buffer) {
  return reinterpret_cast<std::uint32_t*>(buffer);
}

/// One of the words behind it, one for each rank: not 0 when that rank has been waiting for long.
ARLAB_DEVICE std::uint32_t* waiting_word(std::uint8_t* buffer, int rank) {
  return abort_word(buffer) + 1 + rank;
}

ARLAB_DEVICE std::uint8_t* buffer_of(const Team& team, int rank) {
  return global_pointer(team.buffer[rank]);
}

/// A word of the call that rank `rank` tells of in a communication buffer.
ARLAB_DEVICE std::uint64_t* call_word(std::uint8_t* buffer, int rank, unsigned number) {
  return reinterpret_cast<std::uint64_t*>(buffer + BufferLayout::call(rank)) + number;
}

/// Waits until that rank has told its call: it has signalled, so it is about to find that calls
/// differ, or to hear of it.
ARLAB_DEVICE void wait_for_call(const Team& team, int rank) {
  const std::uint64_t* last =
      call_word(buffer_of(team, team.rank), rank, CallDescription::kWords - 1);
  const std::uint64_t start = clock_nanoseconds();
  while (load_relaxed(last) == 0 && clock_nanoseconds() - start < team.timeout_nanoseconds) pause();
}

/// Gives up here and on all ranks: the same reason (GiveUpReason) is known everywhere, and nobody
/// waits on. Where calls differ, so are those of all ranks: the first that a rank makes when it
/// notices, or when it has heard of it. `failed` is the block's: once it is set, nothing more is
/// said.
ARLAB_DEVICE_RARE void give_up(const Team& team, std::uint32_t reason, std::uint32_t& failed) {
  if (load_relaxed(&failed) != 0) return;
  const bool differ = GiveUpReason::is_calls_differ(reason);
  constexpr unsigned kLast = CallDescription::kWords - 1;
  const bool announces =
      differ && load_relaxed(call_word(buffer_of(team, team.rank), team.rank, kLast)) == 0;
  store_relaxed(&failed, 1);
  store_relaxed(global_pointer(team.status), reason);
#pragma unroll 1
  for (int rank = 0; rank < team.layout.ranks; ++rank) {
    std::uint8_t* const buffer = buffer_of(team, rank);
#pragma unroll 1
    for (unsigned i = 0; announces && i < CallDescription::kWords; ++i) {
      store_relaxed(call_word(buffer, team.rank, i), team.call.word(i));
    }
    store_relaxed(abort_word(buffer), reason);
  }
  if (!differ) return;
  wait_for_call(team, GiveUpReason::rank(reason));
  wait_for_call(team, GiveUpReason::other(reason));
}

/// How long a thread looks for what rank `from` stores. The own rank is waited for without an end:
/// what keeps it waiting ends that. A rank that waits itself is not to blame, so it gets as long
/// again, for whoever waits for the right one to say so.
class Watchdog {
 public:
  ARLAB_DEVICE Watchdog(const Team& team, int from) : team_(team), from_(from) {}

  /// After looking in vain: 0, or why to give up, since that rank has not stored it in time, or
  /// another rank has given up.
  ARLAB_DEVICE std::uint32_t expired() {
    constexpr std::uint32_t kPollsPerClock = 16;
    if (++polls_ % kPollsPerClock == 0) {
      const std::uint32_t reason = load_relaxed(abort_word(buffer_of(team_, team_.rank)));
      if (reason != 0) return reason;
      if (from_ != team_.rank) {
        const std::uint64_t timeout = team_.timeout_nanoseconds;
        const std::uint64_t waited = clock_nanoseconds() - start_;
        if (waited > timeout / 2 && (polls_ & kSaid) == 0) say_waiting();
        if (waited > 2 * timeout || (waited > timeout && !is_waiting())) {
          return GiveUpReason::did_not_arrive(from_);
        }
      }
    }
    pause();
    return 0;
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

/// Waits until a word of this rank's buffer, which rank `from` stores to, is not behind `count`, or
/// the watchdog expires.
ARLAB_DEVICE void wait_for_count(const Team& team, const std::uint32_t* word, int from,
                                 std::uint32_t count, std::uint32_t& failed) {
  Watchdog watchdog(team, from);
  // It is far from 2^31: the signed difference is right across the wrap.
  while (static_cast<std::int32_t>(load_polled(word) - count) < 0) {
    const std::uint32_t reason = watchdog.expired();
    if (reason != 0) return give_up(team, reason, failed);
  }
  after_polling(word);
}

/// The flag of a block of rank `from`, where rank `at` looks for it.
ARLAB_DEVICE std::uint32_t* flag_at(const Team& team, int at, int block, int from) {
  return reinterpret_cast<std::uint32_t*>(buffer_of(team, at) + team.layout.flag(block, from));
}
/// The flag that this rank stores there: the epoch modulo 256, and 24 bits of the call's hash.
ARLAB_DEVICE std::uint32_t flag_of(const Team& team, std::uint32_t epoch) {
  return team.call.hash << 8 | (epoch & 0xFF);
}
/// How many epochs a flag is ahead of another epoch: they are at most one exchange apart.
ARLAB_DEVICE std::int32_t ahead_by(std::uint32_t flag, std::uint32_t epoch) {
  return static_cast<std::int8_t>(flag - epoch);
}

/// Waits until the flag of a block of rank `from` is not behind the epoch, or there is a `reason`
/// to give up: one that is known already, the watchdog's, or that the rank is in another call.
/// Of two ranks, one at least sees the other's flag with the epoch that it waits for itself, so
/// that calls which differ do not pass: a flag is further only if that rank has seen this one's,
/// and so has compared.
ARLAB_DEVICE void wait_for_flag(const Team& team, int block, int from, std::uint32_t epoch,
                                std::uint32_t& failed, std::uint32_t reason = 0) {
  const std::uint32_t* flag = flag_at(team, team.rank, block, from);
  Watchdog watchdog(team, from);
  std::uint32_t seen = load_polled(flag);
  while (reason == 0 && ahead_by(seen, epoch) < 0) {
    reason = watchdog.expired();
    seen = load_polled(flag);
  }
  after_polling(flag);
  const bool differs = ahead_by(seen, epoch) == 0 && seen != flag_of(team, epoch);
  if (reason == 0 && differs) reason = GiveUpReason::calls_differ(team.rank, from);
  if (reason != 0) give_up(team, reason, failed);
}

/// All threads of a block use it together.
class FlagExchange {
 public:
  ARLAB_DEVICE FlagExchange(const Team& team, std::uint32_t& failed)
      : team_(team),
        block_(static_cast<int>(blockIdx.x)),
        signalled_(global_pointer(team.epochs)[blockIdx.x]),
        waited_(signalled_),
        failed_(failed) {
    // Not waited for: the first exchange needs it.
    if (threadIdx.x < static_cast<unsigned>(team_.layout.ranks)) {
      aborted_ = load_relaxed(abort_word(buffer_of(team_, team_.rank)));
    }
  }

  /// Where this block writes what block `block` of rank `to` will read: it travels with the next
  /// signal().
  ARLAB_DEVICE std::uint8_t* outgoing(int to) const {
    return buffer_of(team_, to) + team_.layout.slot(signalled_ + 1, block_, team_.rank);
  }

  /// Data that block `block` of rank `from` wrote here before the signal that the last wait() waited for, or
  /// `age` wait()s ago. They may be read until the next but one signal() after its own.
  ARLAB_DEVICE const std::uint8_t* incoming(int from, std::uint32_t age = 0) const {
    return buffer_of(team_, team_.rank) + team_.layout.slot(waited_ - age, block_, from);
  }

  /// Tells this block on every rank that its slots are filled. Only after a wait() for the signal
  /// before. A team that has given up is told nothing: this call would look like the one that it
  /// gave up in.
  ARLAB_DEVICE void signal() {
    if (!started_ && threadIdx.x == 0) failed_ = 0;
    started_ = true;
    ++signalled_;
    finish_stores();
    __syncthreads();
    const int peer = static_cast<int>(threadIdx.x);
    if (peer < team_.layout.ranks && aborted_ == 0) {
      store_release(flag_at(team_, peer, block_, team_.rank), flag_of(team_, signalled_));
    }
  }

  /// Waits until the other ranks have signalled as often as this one. False when one did not arrive
  /// in time or is in another call, now or in a call before: the kernel then ends, and the team
  /// with it.
  ARLAB_DEVICE bool wait() {
    waited_ = signalled_;
    const int peer = static_cast<int>(threadIdx.x);
    if (peer < team_.layout.ranks) {
      wait_for_flag(team_, block_, peer, waited_, failed_, aborted_);
    }
    __syncthreads();
    return failed_ == 0;
  }

  ARLAB_DEVICE bool run() {
    signal();
    return wait();
  }

  /// To be called after everything else: the next kernel goes on where this one ends.
  ARLAB_DEVICE void end() {
    if (threadIdx.x == 0) global_pointer(team_.epochs)[block_] = waited_;
  }

 private:
  const Team& team_;
  const int block_;
  std::uint32_t signalled_;    // epoch
  std::uint32_t waited_;       // epoch
  std::uint32_t aborted_ = 0;  // in threads that signal: the abort word when the kernel started
  bool started_ = false;
  std::uint32_t& failed_;  // shared by the block; set between signal() and wait()
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// The ranks that work together, and the memory through which they do; kernels/PROTOCOL.md has
// the protocol.
#pragma once

#include <cstddef>

#include "kernels/transport/call_description.h"
#include "kernels/transport/lamport_slots.h"
#include "kernels/transport/sentinel_slots.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

inline constexpr int kMaxRanks = 8;

/// Team::work_counter: pieces of work taken after those that blocks begin with, and blocks ended, in
/// this call; both 0 between calls.
inline constexpr std::size_t kWorkCounterWords = 2;

/// A communication buffer: every rank has one, and all ranks write to all.
///
///   abort     one word: 0, or why some rank has given up (GiveUpReason)
///   waiting   [rank], words: not 0 when that rank has been waiting for long
///   calls     [rank]: the call in which that rank has found, or heard, that calls differ
///   flags     [block][from]: of the last exchange that block of rank `from` has reached, the
///             epoch, and a hash of the call that it belongs to
///   slots     [epoch modulo 4][block][from]: `slot_bytes` of wire bytes, written by that block of
///             rank `from`
///   sentinel slots of one_shot, and of two_shot  (sentinel_slots.h), behind those
///   Lamport slots  (lamport_slots.h) behind those
///
/// A block of one rank exchanges data with the same block of the other ranks only. Where its slots
/// are depends on nothing but what the communicator was made with, never on a call.
struct BufferLayout {
  int blocks;
  int ranks;
  bool sentinels;           ///< there are sentinel slots and Lamport slots
  std::size_t slot_bytes;   ///< a multiple of 16
  std::size_t slot_stride;  ///< from slot to slot: spread_apart(slot_bytes)

  static constexpr std::size_t kCallsAt = 256;
  static constexpr std::size_t kFlagsAt = kCallsAt + kMaxRanks * sizeof(CallDescription);
  static constexpr std::uint32_t kBuffers = 4;  ///< a power of two: epochs wrap around

  ARLAB_HOST_DEVICE std::size_t slots_at() const {
    const std::size_t flag_bytes = static_cast<std::size_t>(blocks * kMaxRanks) * 4;
    return kFlagsAt + (flag_bytes + 255) / 256 * 256;
  }
  ARLAB_HOST_DEVICE std::size_t flag(int block, int from) const {
    return kFlagsAt + static_cast<std::size_t>(block * kMaxRanks + from) * 4;
  }
  ARLAB_HOST_DEVICE static std::size_t call(int rank) {
    return kCallsAt + static_cast<std::size_t>(rank) * sizeof(CallDescription);
  }
  /// The slot of the exchange with this epoch.
  ARLAB_HOST_DEVICE std::size_t slot(std::uint32_t epoch, int block, int from) const {
    const std::size_t index =
        ((epoch % kBuffers) * static_cast<std::size_t>(blocks) + static_cast<std::size_t>(block)) *
            static_cast<std::size_t>(ranks) +
        static_cast<std::size_t>(from);
    return slots_at() + index * slot_stride;
  }
  /// Where this part of the buffer ends.
  ARLAB_HOST_DEVICE std::size_t end() const {
    return slots_at() + kBuffers * static_cast<std::size_t>(blocks * ranks) * slot_stride;
  }
};

/// `bytes` or a little more: how far apart slots should be. Memory is cut in small pieces between
/// 2^n or 3 * 2^n channels; at a distance that has such factors, slots that blocks fill together
/// would lie in a few of the channels. So 128 bytes, times a number without the factors 2 and 3.
inline constexpr std::size_t spread_apart(std::size_t bytes) {
  std::size_t lines = (bytes + 127) / 128;
  while (lines % 2 == 0 || lines % 3 == 0) ++lines;
  return lines * 128;
}

/// Why a rank gives up, in a word that is not 0: a rank did not arrive, or the calls of two ranks
/// differ.
struct GiveUpReason {
  ARLAB_HOST_DEVICE static std::uint32_t did_not_arrive(int rank) {
    return 1 + static_cast<std::uint32_t>(rank);
  }
  ARLAB_HOST_DEVICE static std::uint32_t calls_differ(int rank, int other) {
    return did_not_arrive(rank) | did_not_arrive(other) << 8;
  }
  ARLAB_HOST_DEVICE static bool is_calls_differ(std::uint32_t reason) { return reason >> 8 != 0; }
  ARLAB_HOST_DEVICE static int rank(std::uint32_t reason) {
    return static_cast<int>(reason & 0xFF) - 1;
  }
  ARLAB_HOST_DEVICE static int other(std::uint32_t reason) { return rank(reason >> 8); }
};

/// Messages that a program encodes in one phase, at most, where their scales are measured.
inline constexpr int kMaxMessages = 8;

/// Where the blocks of a rank measure a message together: the word of each block, and what the first one announces. The
/// low half of a word is a range, the high one a number that says which measurement it is of.
struct MeasuredWords {
  std::uint32_t measurements;  ///< so far
  std::uint32_t unused;

  ARLAB_HOST_DEVICE static std::size_t bytes(int blocks) {
    return sizeof(MeasuredWords) +
           kMaxMessages * (1 + std::size_t{2} * static_cast<unsigned>(blocks)) * 8;
  }
  ARLAB_DEVICE std::uint64_t* announced(int message) {
    return reinterpret_cast<std::uint64_t*>(this + 1) + message;
  }
  /// [measurement modulo 2][message][block]. A block begins a measurement when all have begun the one before, so the
  /// words of that one are read no more than one later.
  ARLAB_DEVICE std::uint64_t* of(std::uint32_t measurement, int message, int blocks) {
    const unsigned row = measurement % 2 * kMaxMessages + static_cast<unsigned>(message);
    return announced(kMaxMessages) + row * static_cast<unsigned>(blocks);
  }
};

/// A rank's kernels' view of the team, and of the call that they are part of.
struct Team {
  int rank;
  BufferLayout layout;
  SentinelSlots one_shot_sentinel;  ///< for two ranks
  SentinelSlots two_shot_sentinel;  ///< for up to kMostSentinelRanks
  LamportSlots lamport;
  std::uint8_t* buffer[kMaxRanks];  ///< every rank's, as this rank's device sees it
  std::uint32_t* epochs;            ///< [block]: of its last exchange; this rank's own
  std::uint32_t* work_counter;      ///< work of a call that blocks have taken, and how many ended
  SentinelWords* one_shot_words;    ///< words of its sentinel slots; this rank's own
  SentinelWords* two_shot_words;    ///< likewise
  std::uint32_t* lamport_calls;     ///< [block]: through Lamport slots; this rank's own
  std::uint32_t* row_sums;          ///< RowSumsLayout; this rank's own
  MeasuredWords* measured;          ///< findings of blocks about messages; this rank's own
  /// Calls before this one of codecs with random numbers; this rank's own.
  std::uint32_t* random_calls;
  std::uint32_t* status;  ///< 0, or why this rank has given up; this rank's own
  std::uint64_t timeout_nanoseconds;
  CallDescription call;
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

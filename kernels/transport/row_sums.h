// Sums of squares that the blocks of a rank tell each other, for rows that several of them have.
//
// As in Lamport slots (lamport_slots.h), a word is there when it is not kEmpty, and calls with odd and with even numbers have
// words of their own. A call empties the words of the call before, whose kernel has ended; who stores there again is in the
// call behind this one.
#pragma once

#include "kernels/transport/sentinels.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Memory of a rank's own.
///
///   calls      [block]: how many there were, and the words of the last one. A call sets those of all blocks.
///   sums       [call modulo 2][word]
struct RowSumsLayout {
  int blocks;

  static constexpr std::size_t kWordsOfBlock = kThreads;

  ARLAB_HOST_DEVICE std::size_t words() const {
    return static_cast<std::size_t>(blocks) * kWordsOfBlock;
  }
  ARLAB_HOST_DEVICE std::size_t sums(std::uint32_t call) const {
    return 2 * static_cast<std::size_t>(blocks) + call % 2 * words();
  }
  ARLAB_HOST_DEVICE std::size_t all_words() const { return sums(1) + words(); }
};

/// One block's side. All threads of a block use it together, but for tell() and wait().
class RowSums {
 public:
  /// `words`: of this call. `failed` is the block's.
  ARLAB_DEVICE RowSums(const Team& team, unsigned words, std::uint32_t& failed)
      : team_(team), words_(words), failed_(failed) {}

  /// Behind pdl_wait(). What is loaded is still on its way.
  ARLAB_DEVICE void begin() {
    const std::uint32_t* calls = own() + std::size_t{2} * blockIdx.x;
    call_ = load_relaxed(calls);
    before_ = load_relaxed(calls + 1);
  }
  ARLAB_DEVICE void tell(unsigned word, float sum) const {
    store_relaxed(at(call_, word), sum == sum ? float_bits(sum) : kNanBits);
  }
  /// 0 when the team has given up.
  ARLAB_DEVICE float wait(unsigned word) const {
    const std::uint32_t* const from = at(call_, word);
    std::uint32_t bits = kEmpty;
#pragma unroll 1
    for (int polls = 0; polls < kPollsInARow && bits == kEmpty; ++polls) bits = load_relaxed(from);
    return float_of(bits != kEmpty ? bits : wait_slowly(team_, from, failed_));
  }
  /// Behind tell().
  ARLAB_DEVICE void end() const {
    const unsigned thread = blockIdx.x * kThreads + thread_index();
#pragma unroll 1
    for (unsigned word = thread; word < before_; word += gridDim.x * kThreads)
      store_relaxed(at(call_ + 1, word), kEmpty);
    const auto blocks = static_cast<unsigned>(team_.layout.blocks);
#pragma unroll 1
    for (unsigned block = blockIdx.x + thread_index() * gridDim.x; block < blocks;
         block += gridDim.x * kThreads) {
      store_relaxed(own() + std::size_t{2} * block, call_ + 1);
      store_relaxed(own() + std::size_t{2} * block + 1, words_);
    }
  }

 private:
  ARLAB_DEVICE std::uint32_t* own() const { return global_pointer(team_.row_sums); }
  ARLAB_DEVICE std::uint32_t* at(std::uint32_t call, unsigned word) const {
    return own() + RowSumsLayout{team_.layout.blocks}.sums(call) + word;
  }
  ARLAB_DEVICE_RARE static std::uint32_t wait_slowly(const Team& team, const std::uint32_t* from,
                                                     std::uint32_t& failed) {
    Watchdog watchdog(team, team.rank);
    for (;;) {
      const std::uint32_t bits = load_relaxed(from);
      if (bits != kEmpty) return bits;
      const std::uint32_t reason = watchdog.expired();
      if (reason == 0) continue;
      give_up(team, reason, failed);
      return 0;
    }
  }

  const Team& team_;
  const unsigned words_;
  std::uint32_t& failed_;
  std::uint32_t call_ = 0;
  std::uint32_t before_ = 0;  // words of the call before
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

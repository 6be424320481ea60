// One block's side of the protocol of sentinel slots (sentinel_slots.h): it takes items, asks whether
// their slots are free, sends wires, reads wires, and gives credits back.
#pragma once

#include "kernels/transport/flags.h"
#include "kernels/transport/work_counter.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

inline constexpr std::uint32_t kNoItem = 0xFFFFFFFF;
/// The first of the threads that have the fewest words to read.
inline constexpr unsigned kIdle = kThreads - 32;

/// Messages between the threads of a block.
struct SentinelMemory {
  static constexpr unsigned kTurns = 4;  // turns whose items are known

  std::uint32_t first_item;  // number, through all calls, of this call's first
  // Block 0's, of the exchange by which ranks meet; made before there is anything to send.
  std::uint32_t epoch;
  std::uint32_t flag;
  std::uint32_t* flag_at[kMaxRanks];
  std::uint32_t item[kTurns];  // numbers in this call, in the order of the block
  std::uint32_t slot_is_free;  // the slot of the item to send
  std::uint32_t failed;
  std::uint32_t slot_failed;  // not `failed`, which slow threads may be about to read
};

ARLAB_DEVICE bool any_empty(const Uint4& words) {
  return words.word[0] == kEmpty || words.word[1] == kEmpty || words.word[2] == kEmpty ||
         words.word[3] == kEmpty;
}

/// Waits for words of a wire from rank `from` until none is empty, or their flag says that they are
/// valid as they are; the flag is taken back. When that rank has not sent them in time, this one
/// gives up, and so will the block: `failed`.
ARLAB_DEVICE Uint4 wait_for_words(const Team& team, const std::uint8_t* at,
                                  std::uint8_t* valid_flag, int from, std::uint32_t& failed) {
  Watchdog watchdog(team, from);
  for (;;) {
    const bool is_valid = load_acquire(valid_flag) != 0;
    const Uint4 words = load_relaxed_v4(at);
    if (!any_empty(words)) return words;
    if (is_valid) {
      store_relaxed(valid_flag, 0);
      return words;
    }
    const std::uint32_t reason = watchdog.expired();
    if (reason != 0) {
      give_up(team, reason, failed);
      return words;
    }
  }
}

/// Words of 16 bytes of an item's wire.
struct WordsOfWire {
  std::uint32_t number;  ///< number of the item in this call
  unsigned wire;
  unsigned words;  ///< which of the wire
};

/// All threads of a block use it together, but for what is said to be one thread's.
class SentinelExchange {
 public:
  /// `items`: of this call.
  ARLAB_DEVICE SentinelExchange(const Team& team, const SentinelSlots& slots, SentinelWords* words,
                                std::uint32_t items, SentinelMemory& memory)
      : team_(team),
        slots_(slots),
        words_(*global_pointer(words)),
        items_(items),
        memory_(memory) {}

  // ---- items

  /// To be called first, before a barrier of the block; then `failed` says whether to go on.
  ARLAB_DEVICE void begin() {
    const std::uint32_t first = load_relaxed(&words_.next_item);
    prepare_signal(threadIdx.x - kIdle);
    if (threadIdx.x == 0) {
      const std::uint32_t aborted = load_relaxed(abort_word(buffer_of(team_, team_.rank)));
      memory_.first_item = first;
      memory_.failed = 0;
      if (aborted != 0) give_up(team_, aborted, memory_.failed);
      memory_.slot_failed = 0;
      memory_.item[0] = item_at_start(0);
      memory_.item[1] = item_at_start(1);
    }
    // Gives the credits of all calls before, at once.
    const auto ranks = static_cast<unsigned>(team_.layout.ranks);
    if (blockIdx.x == 0 && threadIdx.x < ranks * kCreditWindows) {
      const std::uint32_t next = first - threadIdx.x / ranks * slots_.window();
      const auto at = static_cast<int>(threadIdx.x % ranks);
      store_release(word(at, slots_.credit(team_.rank, next - 1)), next);
    }
    // While the first input comes.
    if (item_at_start(0) != kNoItem) (void)may_send(item_at_start(0), first);
  }
  ARLAB_DEVICE std::uint32_t item_at_start(unsigned turn) const {
    return one_of_them(blockIdx.x + turn * gridDim.x);
  }
  /// The item that the block works on next; one thread calls this.
  ARLAB_DEVICE std::uint32_t take_item() const { return one_of_them(take_work(team_)); }
  /// To be called by one thread in the end.
  ARLAB_DEVICE void leave() const {
    if (!is_last_to_end(team_)) return;
    store_relaxed(&words_.next_item, item(slots_.window_of(items_ + slots_.window() - 1)));
  }

  // ---- other ranks
  // An exchange of block 0 on all ranks: whoever ends this call knows that the others are in the
  // same. `thread` is 0 and more for threads that have time.

  /// The first half of that exchange, to be called by all threads before this block waits for other
  /// ranks. As FlagExchange::signal(), but no release, since it hands nothing over. Not before the
  /// first wires are sent, or cannot be: the fence in begin() would wait for it.
  ARLAB_DEVICE void signal(unsigned thread) const {
    if (blockIdx.x != 0 || thread >= static_cast<unsigned>(team_.layout.ranks)) return;
    store_relaxed(memory_.flag_at[thread], memory_.flag);
    if (thread == 0) global_pointer(team_.epochs)[0] = memory_.epoch;
  }
  /// The second half of that exchange, behind a barrier, and before the first wires are read; then
  /// a barrier, and `failed` says whether to go on.
  ARLAB_DEVICE void meet(unsigned thread, std::uint32_t& failed) const {
    if (blockIdx.x != 0 || thread >= static_cast<unsigned>(team_.layout.ranks)) return;
    wait_for_flag(team_, 0, static_cast<int>(thread), memory_.epoch, failed);
  }

  // ---- credits

  /// Whether all ranks have emptied the item's slot, and those of all items before; the first wave
  /// has the answer.
  ARLAB_DEVICE bool may_send(std::uint32_t number) {
    if (slots_.window_of(number) == granted_window_) return true;
    return may_send(number, memory_.first_item);
  }
  /// Waits for the item's slot to be empty. All threads call it; then comes a barrier, and
  /// `slot_failed` says whether to go on, since ranks in another call might never empty it.
  ARLAB_DEVICE void wait_for_slot(std::uint32_t number) {
    meet(threadIdx.x, memory_.slot_failed);
    granted_window_ = slots_.window_of(number);
    if (threadIdx.x >= words_to_ask()) return;
    wait_for_count(team_, credit_word(item(number)), asked_rank(), credit_for(item(number)),
                   memory_.slot_failed);
  }
  /// One thread calls this: the item is read, and its slot empty. `next` is what this block reads
  /// next.
  ARLAB_DEVICE void return_credit(std::uint32_t number, std::uint32_t next) {
    const std::uint32_t window = slots_.window_of(number);
    if (window + slots_.count >= items_) return;  // this call does not use it again
    ++counted_;
    if (next != kNoItem && slots_.window_of(next) == window) return;
    const std::uint32_t begin = item(window);
    std::uint32_t* read = &words_.read[slots_.residue(begin)];
    if (atomic_add_in_order(read, counted_) + counted_ == slots_.window()) {
      store_relaxed(read, 0);
      for (int at = 0; at < team_.layout.ranks; ++at) {
        store_release(word(at, slots_.credit(team_.rank, begin)), begin + slots_.window());
      }
    }
    counted_ = 0;
  }

  // ---- wires

  /// Where rank `at` has the first slot's wire.
  ARLAB_DEVICE std::uint8_t* wire(int at, unsigned wire) const {
    return buffer_of(team_, at) + slots_.slots_at() + wire * slots_.wire_bytes;
  }
  /// How far behind it the item's slot has it.
  ARLAB_DEVICE std::uint32_t slot_of(std::uint32_t number) const {
    return slots_.slot(item(number));
  }
  /// Sends words to `to`, in their slot at rank `at`.
  ARLAB_DEVICE void send_words(std::uint8_t* to, const Uint4& words, int at,
                               const WordsOfWire& which) const {
    store_relaxed_v4(to, words);
    if (any_empty(words)) store_release(valid_flag(at, which), 1);
  }
  /// Takes words from their slot, which were read as `words`: waits for them where some are
  /// empty, and leaves the slot empty. When rank `from` has not sent them in time, this one gives
  /// up, and so will the block: `failed`.
  ARLAB_DEVICE void take_words(std::uint8_t* at, Uint4 words, int from, const WordsOfWire& which,
                               Uint4& to) const {
    if (any_empty(words)) words = wait_for_words(at, from, which);
    store_128(&to, words);
    store_relaxed_v4(at, {{kEmpty, kEmpty, kEmpty, kEmpty}});
  }

 private:
  ARLAB_DEVICE void prepare_signal(unsigned thread) const {
    if (blockIdx.x != 0 || thread >= static_cast<unsigned>(team_.layout.ranks)) return;
    const std::uint32_t epoch = global_pointer(team_.epochs)[0] + 1;
    memory_.flag_at[thread] = flag_at(team_, static_cast<int>(thread), 0, team_.rank);
    if (thread == 0) memory_.epoch = epoch;
    if (thread == 0) memory_.flag = flag_of(team_, epoch);
  }
  ARLAB_DEVICE std::uint32_t one_of_them(std::uint32_t number) const {
    return number < items_ ? number : kNoItem;
  }
  ARLAB_DEVICE std::uint32_t item(std::uint32_t number) const {
    return memory_.first_item + number;
  }
  ARLAB_DEVICE std::uint32_t* word(int at, std::size_t offset) const {
    return reinterpret_cast<std::uint32_t*>(buffer_of(team_, at) + offset);
  }

  ARLAB_DEVICE std::uint8_t* valid_flag(int at, const WordsOfWire& which) const {
    return buffer_of(team_, at) + slots_.valid_flag(item(which.number), which.wire, which.words);
  }
  ARLAB_DEVICE Uint4 wait_for_words(const std::uint8_t* at, int from,
                                    const WordsOfWire& which) const {
    std::uint8_t* const valid_here = valid_flag(team_.rank, which);
    return arlab::kernels::wait_for_words(team_, at, valid_here, from, memory_.failed);
  }

  // Each of the first threads asks one rank about one window: that before the item's in its slot,
  // or the window before that.
  ARLAB_DEVICE unsigned words_to_ask() const {
    return static_cast<unsigned>(team_.layout.ranks) * kCreditWindows;
  }
  ARLAB_DEVICE static int asked_rank() { return static_cast<int>(threadIdx.x / kCreditWindows); }
  ARLAB_DEVICE std::uint32_t credit_for(std::uint32_t item) const {
    const std::uint32_t windows_back = kCreditWindows - 1 + threadIdx.x % kCreditWindows;
    return slots_.window_of(item) - windows_back * slots_.window();
  }
  ARLAB_DEVICE const std::uint32_t* credit_word(std::uint32_t item) const {
    return word(team_.rank, slots_.credit(asked_rank(), credit_for(item) - 1));
  }
  ARLAB_DEVICE bool may_send(std::uint32_t number, std::uint32_t first) {
    bool is_free = true;
    if (threadIdx.x < words_to_ask()) {
      const std::uint32_t item = first + number;
      is_free = static_cast<std::int32_t>(load_acquire(credit_word(item)) - credit_for(item)) >= 0;
    }
    if (any_of_wave(!is_free)) return false;
    granted_window_ = slots_.window_of(number);
    return true;
  }

  const Team& team_;
  const SentinelSlots& slots_;
  SentinelWords& words_;
  const std::uint32_t items_;
  SentinelMemory& memory_;
  std::uint32_t granted_window_ = kNoItem;  // the first wave's
  std::uint32_t counted_ = 0;               // one thread's: items of a window, read by this block
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

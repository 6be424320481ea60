// Sentinel slots: slots of ranks whose wires need no flags.
//
// A flag that tells of a wire must not be seen before the wire. So whoever stores it waits first
// until the links have taken all that its multiprocessor sent: microseconds, for every wire. Here
// every word of an empty slot is a sentinel, kEmpty; the sender stores the words of a wire in any
// order, and the receiver looks at each until it is something else. What it has read, it makes
// empty again.
//
// A call's work is a row of items, which the blocks of a rank take from a counter. Items are
// numbered through all calls, modulo 2^32; item n is in slot n modulo `count`. It may be sent once
// all ranks have emptied that slot: the others, so that nothing is overwritten, and this one, so
// that what was there before is not taken for the answer. Credits say so. One for every item would
// take the flags again, so a credit is for a window, half of the slots: a rank gives it when it has
// read all items of a window, and only where the same call uses the window's slots again. For the
// calls before, a call that starts gives it once.
//
// A word of a wire may happen to be kEmpty. The thread that sends it notices, and sets, behind its
// words, a flag of their own that they are valid.
//
// A block that has to wait for a slot first reads what the other ranks have sent for its items
// before, and counts them; and it sends none for which it has no credit for the window before the
// item's own as well. So what is not read yet waits for items with lower numbers only. Blocks begin
// with items of their own, so all of them have to run at once. sentinel.pml is a model of this.
#pragma once

#include <cstddef>

#include "kernels/platform/platform.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// A word like any other, but none that wires are full of.
inline constexpr std::uint32_t kEmpty = 0x80A7C35D;

/// Most bytes of a wire: in one_shot those of two tiles of codecs with up to 8.5 bits per element,
/// in two_shot of one.
inline constexpr unsigned kOneShotWireBytes = 4352;
inline constexpr unsigned kTwoShotWireBytes = 2176;

/// Most ranks of two_shot with sentinel slots; one_shot has them for two ranks.
inline constexpr int kMostSentinelRanks = 4;
/// Tiles of a chunk in an item of two_shot.
ARLAB_HOST_DEVICE constexpr unsigned two_shot_tiles(int ranks) { return ranks == 2 ? 2 : 1; }
/// Contributions from the others, and their sums.
inline constexpr unsigned two_shot_wires(int ranks) {
  return 2 * static_cast<unsigned>(ranks - 1) * two_shot_tiles(ranks);
}

inline constexpr std::uint32_t kCreditWindows = 2;

/// A part of a communication buffer.
///
///   credits    [rank][window modulo kCreditWindows]: the first item behind the last of such windows
///              whose items that rank has read
///   valid      [slot][wire][16 bytes]: 1 when words of which some are like kEmpty are there, until
///              they are read
///   slots      [slot][wire]
struct SentinelSlots {
  std::size_t begin;    ///< in the buffer
  std::uint32_t count;  ///< a power of two; 0: there are none
  unsigned wires;       ///< in a slot
  unsigned wire_bytes;  ///< from wire to wire
  unsigned stride;      ///< from slot to slot; of all slots less than 4 GiB

  static constexpr std::size_t kValidFlagsAt = 256;

  ARLAB_HOST_DEVICE std::uint32_t window() const { return count / kCreditWindows; }
  /// The first item of the item's window.
  ARLAB_HOST_DEVICE std::uint32_t window_of(std::uint32_t item) const {
    return item & ~(window() - 1);
  }
  /// The number of the item's window, modulo kCreditWindows.
  ARLAB_HOST_DEVICE std::size_t residue(std::uint32_t item) const {
    return item / window() % kCreditWindows;
  }
  ARLAB_HOST_DEVICE std::size_t credit(int rank, std::uint32_t item) const {
    return begin + (static_cast<std::size_t>(rank) * kCreditWindows + residue(item)) * 4;
  }
  /// Where the flag lies that says the wire's words of 16 bytes with this number are valid.
  ARLAB_HOST_DEVICE std::size_t valid_flag(std::uint32_t item, unsigned wire,
                                           unsigned words) const {
    return begin + kValidFlagsAt +
           (std::size_t{item & (count - 1)} * wires + wire) * (wire_bytes / 16) + words;
  }
  ARLAB_HOST_DEVICE std::size_t slots_at() const {
    const std::size_t valid_bytes = std::size_t{count} * wires * (wire_bytes / 16);
    return begin + kValidFlagsAt + (valid_bytes + 255) / 256 * 256;
  }
  /// Where the slot of the item's first wire begins, from slots_at() on.
  ARLAB_HOST_DEVICE std::uint32_t slot(std::uint32_t item) const {
    return (item & (count - 1)) * stride;
  }
  /// Where this part of the buffer ends.
  ARLAB_HOST_DEVICE std::size_t end() const { return slots_at() + std::size_t{count} * stride; }
};

/// Items, as the kernels of one rank know them.
struct SentinelWords {
  std::uint32_t next_item;             ///< first item of the next call; the first of a window
  std::uint32_t read[kCreditWindows];  ///< items of a window that this call uses again
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

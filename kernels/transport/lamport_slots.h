// Lamport slots: of small tensors, where no block has more than one tile of a chunk.
//
// As in sentinel slots (sentinel_slots.h), wires need no flags: every word of an empty slot is kEmpty,
// and the receiver looks at each word until it is something else. But no slot is waited for before it
// is written to. Every block counts its calls; calls with odd and with even numbers have slots of
// their own. In call n a block writes to the other ranks' slots of n, and empties its own slots of
// n as it reads them. Who writes to them again is in call n + 2, and so has read what this rank
// sent in call n + 1; before it sent that, its kernel of call n had ended. lamport.pml is a model
// of this.
#pragma once

#include <cstddef>

#include "kernels/platform/platform.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// A part of a communication buffer.
///
///   valid      [call modulo 2][block][stage][from][16 bytes]: as that of sentinel slots
///   slots      [call modulo 2][block][stage][from]: one wire
struct LamportSlots {
  std::size_t begin;  ///< in the buffer
  int blocks;         ///< 0: there are none
  int ranks;
  // set_places() makes these of the others, so that kernels need not.
  std::size_t slots_begin = 0;
  std::uint32_t of_odd_calls = 0;  ///< bytes from slots of even calls to those of odd ones

  static constexpr unsigned kWireBytes = 4096;   ///< at most: a tile of 16-bit elements
  static constexpr unsigned kWireStride = 4480;  ///< spread_apart(kWireBytes)
  static constexpr unsigned kStages = 2;         ///< stages of two_shot: contributions, sums

  /// The number of a wire: each call, block, stage and sender has its own.
  ARLAB_HOST_DEVICE std::uint32_t index(std::uint32_t call, int block, unsigned stage,
                                        int from) const {
    const unsigned of_block = static_cast<unsigned>(block) * kStages + stage;
    return first_of(call) + of_block * static_cast<unsigned>(ranks) + static_cast<unsigned>(from);
  }
  ARLAB_HOST_DEVICE std::uint32_t first_of(std::uint32_t call) const {
    return call % 2 * (wires() / 2);
  }
  ARLAB_HOST_DEVICE std::uint32_t wires() const {
    return 2 * kStages * static_cast<unsigned>(blocks * ranks);
  }
  /// Where the flag lies that says the wire's words of 16 bytes with this number are valid.
  ARLAB_HOST_DEVICE std::size_t valid_flag(std::uint32_t wire, unsigned words) const {
    return begin + std::size_t{wire} * (kWireBytes / 16) + words;
  }
  void set_places() {
    slots_begin = valid_flag(wires(), 0);
    of_odd_calls = first_of(1) * kWireStride;
  }
  /// Where a wire lies behind slots_begin: the sum of both, of which only the second needs the call's number, for which a
  /// kernel waits. 32 bits have 100,000 blocks of 8 ranks.
  ARLAB_HOST_DEVICE std::uint32_t place(int block, int from) const {
    return index(0, block, 0, from) * kWireStride;
  }
  ARLAB_HOST_DEVICE std::uint32_t of_call(std::uint32_t call, unsigned stage) const {
    return call % 2 * of_odd_calls + stage * static_cast<unsigned>(ranks) * kWireStride;
  }
  /// Where this part of the buffer ends.
  ARLAB_HOST_DEVICE std::size_t end() const {
    return slots_begin + std::size_t{wires()} * kWireStride;
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

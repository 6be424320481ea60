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

  static constexpr unsigned kWireBytes = 4096;   ///< at most: a tile of 16-bit elements
  static constexpr unsigned kWireStride = 4480;  ///< spread_apart(kWireBytes)
  static constexpr unsigned kStages = 2;         ///< stages of two_shot: contributions, sums

  /// The number of a wire: each call, block, stage and sender has its own.
  ARLAB_HOST_DEVICE std::size_t index(std::uint32_t call, int block, unsigned stage,
                                      int from) const {
    const std::size_t of_block =
        (call % 2) * static_cast<std::size_t>(blocks) + static_cast<std::size_t>(block);
    return (of_block * kStages + stage) * static_cast<std::size_t>(ranks) +
           static_cast<std::size_t>(from);
  }
  ARLAB_HOST_DEVICE std::size_t wires() const {
    return std::size_t{2} * kStages * static_cast<std::size_t>(blocks * ranks);
  }
  /// Where the flag lies that says the wire's words of 16 bytes with this number are valid.
  ARLAB_HOST_DEVICE std::size_t valid_flag(std::size_t wire, unsigned words) const {
    return begin + wire * (kWireBytes / 16) + words;
  }
  ARLAB_HOST_DEVICE std::size_t slots_at() const { return valid_flag(wires(), 0); }
  ARLAB_HOST_DEVICE std::size_t slot(std::size_t wire) const {
    return slots_at() + wire * kWireStride;
  }
  /// Where this part of the buffer ends.
  ARLAB_HOST_DEVICE std::size_t end() const { return slot(wires()); }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// Wire bytes on their way to other ranks, a few tiles at a time.
//
// A link carries a packet of 128 bytes at little more than the price of one of 16. So tiles are
// encoded into memory that the block shares, and copied from there 16 bytes per thread: whole
// packets, whatever the codec's wire looks like. Plain codecs have such packets anyway: their
// tiles go directly.
#pragma once

#include "kernels/codecs/plain.h"
#include "kernels/collectives/call.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// How many tiles a block has in work at once, so that their loads are under way together.
inline constexpr int kBatch = 2;

/// Shared memory of an Outbox. Two buffers: while one is copied, the other is filled.
inline constexpr std::size_t kOutboxBytes = 6144;
struct OutboxMemory {
  Words4 words[2][kOutboxBytes / 16];
};

template <class Codec>
inline constexpr bool kGoesDirectly = false;
template <class Number>
inline constexpr bool kGoesDirectly<Plain<Number>> = true;

/// All threads of a block use it together: put() up to capacity() tiles, fill() once, copy each to
/// its slots with send(), and start again with next().
template <class Codec>
class Outbox {
 public:
  using Encoded = typename Codec::Encoded;

  ARLAB_DEVICE Outbox(const Codec& codec, const Call& call, OutboxMemory& memory)
      : codec_(codec), tile_bytes_(call.tile_bytes), memory_(memory) {}

  ARLAB_DEVICE int capacity() const {
    if constexpr (kGoesDirectly<Codec>) return kBatch;
    const auto fitting = static_cast<int>(static_cast<unsigned>(kOutboxBytes) / tile_bytes_);
    return fitting < kBatch ? fitting : kBatch;
  }
  ARLAB_DEVICE void put(int place, const Encoded& encoded, const Tile& tile) {
    if constexpr (!kGoesDirectly<Codec>) codec_.store(encoded, wire(place), tile.at());
  }
  ARLAB_DEVICE void fill() const {
    if constexpr (!kGoesDirectly<Codec>) __syncthreads();
  }
  /// `encoded` and `tile`: what was put there.
  ARLAB_DEVICE void send(int place, const Encoded& encoded, const Tile& tile,
                         std::uint8_t* slot) const {
    std::uint8_t* to = slot + tile.slot_offset;
    if constexpr (kGoesDirectly<Codec>) {
      codec_.store(encoded, to, tile.at());
    } else {
      const std::uint8_t* from = wire(place);
      const auto words = static_cast<unsigned>(codec_.wire_bytes(tile.elements) + 15) / 16;
      // Most wires keep only some of the waves busy: other waves for each place.
      const unsigned first = (threadIdx.x + static_cast<unsigned>(place) * 64) % kThreads;
#pragma unroll 1
      for (unsigned i = first; i < words; i += kThreads) {
        store_128(to + i * 16, load_128(from + i * 16));
      }
    }
  }
  /// The other buffer: it was sent before the last fill().
  ARLAB_DEVICE void next() { turn_ ^= 1; }

 private:
  ARLAB_DEVICE std::uint8_t* wire(int place) const {
    return reinterpret_cast<std::uint8_t*>(memory_.words[turn_]) +
           static_cast<unsigned>(place) * tile_bytes_;
  }

  const Codec& codec_;
  const unsigned tile_bytes_;
  OutboxMemory& memory_;
  int turn_ = 0;
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

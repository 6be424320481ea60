// Wire bytes on their way to other ranks, a few tiles at a time.
//
// A link carries a packet of 128 bytes at little more than the price of one of 16. So tiles are
// encoded into memory that the block shares, and copied from there 16 bytes per thread: whole
// packets, whatever the codec's wire looks like. Plain codecs have such packets anyway: their
// tiles go directly.
#pragma once

#include "kernels/collectives/batch.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Shared memory of a StagingBuffer. Two buffers: while one is copied, the other is filled.
inline constexpr std::size_t kStagingBytes = 8704;
struct StagingMemory {
  Uint4 words[2][kStagingBytes / 16];
};

/// All threads of a block use it together: put() tiles with numbers from 0 on, fill() once, send()
/// them to as many slots as they are for, and start again with next().
template <class Codec, class AnyCall = Call>
class StagingBuffer {
 public:
  using Encoded = typename Codec::Encoded;

  // Calls with a larger batch have fewer tiles in a slot (PreparedCall).
  static_assert(Codec::kTuning.stores_directly ||
                !requires { requires Codec::kTileBytes > kStagingBytes; });

  ARLAB_DEVICE StagingBuffer(const Codec& codec, const AnyCall& call, StagingMemory& memory)
      : codec_(codec), call_(call), memory_(memory) {}

  ARLAB_DEVICE void put(int tile, const Encoded& encoded, Position at) const {
    if constexpr (!Codec::kTuning.stores_directly) {
      codec_.store(encoded, wire() + static_cast<unsigned>(tile) * tile_bytes_of<Codec>(call_), at);
    }
  }
  ARLAB_DEVICE void fill() const {
    if constexpr (!Codec::kTuning.stores_directly) __syncthreads();
  }
  ARLAB_DEVICE void put(const Encoded (&encoded)[Codec::kTuning.batch], int count) const {
#pragma unroll
    for (int i = 0; i < Codec::kTuning.batch; ++i) {
      if (i < count) put(i, encoded[i], Batch::at());
    }
  }
  /// A batch whose tiles were put as numbers 0, 1, ...
  ARLAB_DEVICE void send(const Encoded (&encoded)[Codec::kTuning.batch], const Batch& batch,
                         std::uint8_t* to) const {
    if constexpr (Codec::kTuning.stores_directly) {
#pragma unroll
      for (int i = 0; i < Codec::kTuning.batch; ++i) {
        if (i < batch.count) {
          codec_.store(encoded[i], to + static_cast<unsigned>(i) * tile_bytes_of<Codec>(call_),
                       Batch::at());
        }
      }
    } else {
      copy(to, static_cast<unsigned>(batch.count) * tile_bytes_of<Codec>(call_));
    }
  }
  /// A tile that was put as number 0.
  ARLAB_DEVICE void send(const Encoded& encoded, const Tile& tile, std::uint8_t* slot) const {
    std::uint8_t* to = slot + tile.slot_offset;
    if constexpr (Codec::kTuning.stores_directly) {
      codec_.store(encoded, to, tile.at());
    } else {
      copy(to, static_cast<unsigned>(codec_.wire_bytes(tile.elements)));
    }
  }
  /// The other buffer: it was sent before the last fill().
  ARLAB_DEVICE void next() { turn_ ^= 1; }

 private:
  ARLAB_DEVICE std::uint8_t* wire() const {
    return reinterpret_cast<std::uint8_t*>(memory_.words[turn_]);
  }

  ARLAB_DEVICE void copy(std::uint8_t* to, unsigned bytes) const { copy_wire(wire(), to, bytes); }

  const Codec& codec_;
  const AnyCall& call_;
  StagingMemory& memory_;
  unsigned turn_ = 0;
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

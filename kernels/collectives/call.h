// Arguments of one call of a collective, and how its work is cut.
//
// A chunk is a range of elements that the reference's Schedule encodes as one message. Its tiles of
// 2048 elements are dealt to the blocks in turn: block b has tiles b, b + blocks, ... A slot holds
// the wires of some tiles, so a block works in rounds of `tiles_per_slot` tiles of every chunk. In
// a slot, each tile is a message of its own: cut at a multiple of a codec's alignment, messages
// decode to the same bits.
#pragma once

#include "kernels/codecs/device_codec.h"
#include "kernels/transport/flags.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct Call {
  Team team;
  const void* input;              ///< `elements` elements of this rank
  void* output;                   ///< likewise; may be the input
  ElementRange chunk[kMaxRanks];  ///< the Schedule's, by owner; empty where an owner has none
  int blocks;
  int rounds;
  int tiles_per_slot;  ///< one chunk's, at most a batch for codecs which have some; two_shot has as
                       ///< many again behind them
  unsigned tile_bytes;   ///< between tiles of a slot, a multiple of 16
  bool aligned;          ///< input and output are multiples of 16
  bool fp32_sums;        ///< sums.h
  unsigned chunk_tiles;  ///< tiles of the longest chunk
  std::uint64_t seed;    ///< for random numbers
};

/// A tile of a chunk. The same for all threads of a block.
struct Tile {
  std::size_t begin;     ///< element of the tensor
  unsigned elements;     ///< up to kTile
  unsigned slot_offset;  ///< where the tile's wire begins in its slot
  bool whole;            ///< kTile elements, at an address that is a multiple of 16

  /// Where this thread's elements are in the tile's own message.
  ARLAB_DEVICE Position at() const { return {elements, thread_index() * kPerThread}; }

  template <class Element>
  ARLAB_DEVICE Pack8<Element> load(const void* tensor) const {
    const auto* from = global_pointer(static_cast<const typename Element::Bits*>(tensor)) + begin +
                       thread_index() * kPerThread;
    return whole ? load_whole<Element>(from) : load_elements<Element>(from, at().count());
  }
  template <class Element>
  ARLAB_DEVICE void store(void* tensor, const Pack8<Element>& x) const {
    auto* to = global_pointer(static_cast<typename Element::Bits*>(tensor)) + begin +
               thread_index() * kPerThread;
    if (whole) {
      store_whole<Element>(to, x);
    } else {
      store_elements<Element>(to, x, at().count());
    }
  }
};

/// Tile `number` of those that this block has of the chunk, at place k of a slot; false where there
/// is none.
template <class Call>
ARLAB_DEVICE bool tile_at(const Call& call, const ElementRange& chunk, int number, int k,
                          Tile& tile) {
  const auto index =
      static_cast<unsigned>(number) * static_cast<unsigned>(call.blocks) + blockIdx.x;
  tile.begin = chunk.begin + static_cast<std::size_t>(index) * kTile;
  if (tile.begin >= chunk.end) return false;
  const std::size_t rest = chunk.end - tile.begin;
  tile.elements = rest < kTile ? static_cast<unsigned>(rest) : static_cast<unsigned>(kTile);
  tile.slot_offset = static_cast<unsigned>(k) * call.tile_bytes;
  tile.whole = tile.elements == kTile && call.aligned && tile.begin % kPerThread == 0;
  return true;
}

/// Calls f for every tile of the chunk that is this block's in this round.
template <class Call, class F>
ARLAB_DEVICE void for_each_tile(const Call& call, const ElementRange& chunk, int round, F f) {
  Tile tile;
#pragma unroll 1
  for (int k = 0; k < call.tiles_per_slot; ++k) {
    if (!tile_at(call, chunk, round * call.tiles_per_slot + k, k, tile)) return;
    f(tile);
  }
}

/// Encodes a tile that begins at element `begin` of the rank's tensor, and has `step` encodings behind it.
template <class Element, class Codec, class Call>
ARLAB_DEVICE typename Codec::Encoded encode_tile(const Codec& codec,
                                                 [[maybe_unused]] const Call& call,
                                                 [[maybe_unused]] unsigned step,
                                                 [[maybe_unused]] std::size_t begin,
                                                 const Pack8<Element>& x, Position at) {
  if constexpr (UsesContext<Codec, Element>) {
    EncodeContext context;
    context.seed = call.seed;
    context.call = *global_pointer(call.team.random_calls);
    context.rank = static_cast<std::uint32_t>(call.team.rank);
    context.world_size = static_cast<std::uint32_t>(call.team.layout.ranks);
    context.step = step;
    context.position = begin;
    return codec.encode(x, at, context);
  } else {
    return codec.encode(x, at);
  }
}

/// Copies a wire to another slot, and up to 15 bytes more, which are in slots, too. All threads of
/// a block call it.
ARLAB_DEVICE void copy_wire(const std::uint8_t* from, std::uint8_t* to, unsigned bytes) {
#pragma unroll 1
  for (unsigned at = thread_index() * 16; at < bytes; at += kThreads * 16) {
    store_128(to + at, load_128(from + at));
  }
}

// Short forms of what algorithms do with a tile.

template <class Element, class Codec, class Call>
ARLAB_DEVICE typename Codec::Encoded encode(const Codec& codec, const Call& call, unsigned step,
                                            const Tile& tile, const Pack8<Element>& x) {
  return encode_tile(codec, call, step, tile.begin, x, tile.at());
}
/// Sends the rank's own input.
template <class Element, class Codec>
ARLAB_DEVICE void send(const Codec& codec, const Call& call, const Tile& tile,
                       const Pack8<Element>& x, std::uint8_t* slot) {
  codec.store(encode(codec, call, 0, tile, x), slot + tile.slot_offset, tile.at());
}
template <class Element, class Codec>
ARLAB_DEVICE Pack8<Element> receive(const Codec& codec, const Tile& tile,
                                    const std::uint8_t* slot) {
  return codec.decode(codec.load(slot + tile.slot_offset, tile.at()), tile.at());
}
}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

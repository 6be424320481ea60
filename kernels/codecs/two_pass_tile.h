// A tile of a message with a codec of two_pass.h: where its wire is, and what a block does with it.
#pragma once

#include "kernels/codecs/hadamard.h"
#include "kernels/codecs/two_pass.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

// ---------------------------------------------------------------- layouts

/// Elements whose codes travel: a transform fills its last block.
template <class Codec>
ARLAB_HOST_DEVICE std::size_t codes_of(const Codec& codec, std::size_t elements) {
  const std::size_t size = codec.transform();
  return size == 0 ? elements : blocks_of(elements, size) * size;
}

/// The piece of a wire with codes begin .. end of a message of so many elements, for the thread
/// whose first code is `first`.
template <class Codec>
ARLAB_DEVICE WirePiece piece_between(const Codec& codec, std::uint8_t* planes, std::size_t elements,
                                     std::size_t begin, std::size_t end, std::size_t first) {
  const std::size_t block = codec.block(elements);
  if (block >= elements) {  // without divisions of 64 bits, which take a hundred instructions
    return {planes, end - begin, first - begin, Position{end, first}.count(), 1, 0, first == begin};
  }
  const std::size_t first_block = begin / block;
  return {planes,
          end - begin,
          first - begin,
          Position{end, first}.count(),
          (end - 1) / block - first_block + 1,
          first / block - first_block,
          first == begin || first % block == 0};
}

/// The wire of a whole message, reference/codecs/SPEC.md, "Wire chunks and bit planes": a header,
/// then chunks of about 4096 elements.
template <class Codec>
struct MessageWire {
  const Codec& codec;
  std::uint8_t* wire;
  std::size_t elements;

  ARLAB_DEVICE std::size_t chunk_elements() const {
    const std::size_t block = codec.block(elements);
    return block >= WireChunk::kElements ? block : WireChunk::kElements / block * block;
  }
  ARLAB_DEVICE std::size_t chunk_bytes(std::size_t chunk) const {
    return bytes_of_planes(codes_of(codec, chunk), codec.code_bits()) +
           blocks_of(chunk, codec.block(elements)) * codec.metadata_bytes();
  }
  ARLAB_DEVICE WirePiece piece(std::size_t first) const {
    const std::size_t chunk = chunk_elements();
    const std::size_t begin = first / chunk * chunk;
    const std::size_t codes = codes_of(codec, elements);
    const std::size_t end = codes - begin < chunk ? codes : begin + chunk;
    std::uint8_t* planes = wire + begin / chunk * chunk_bytes(chunk);
    if constexpr (Codec::kHasHeader) planes += codec.header_bytes();
    return piece_between(codec, planes, elements, begin, end, first);
  }
  ARLAB_DEVICE std::uint8_t* header() const { return wire; }
  ARLAB_DEVICE bool is_first(std::size_t first) const { return first == 0; }
};

/// The wire of a tile in a slot: the same arrays, with the metadata of every block that has an
/// element in the tile. Its header is padded, so that planes are aligned.
template <class Codec>
struct TileWire {
  static constexpr std::size_t kHeader = Codec::kHasHeader ? 16 : 0;

  const Codec& codec;
  std::uint8_t* wire;
  std::size_t elements;  ///< elements of the message
  std::size_t begin;     ///< where the tile begins

  ARLAB_DEVICE WirePiece piece(std::size_t first) const {
    const std::size_t codes = codes_of(codec, elements);
    const std::size_t end = codes - begin < kTile ? codes : begin + kTile;
    return piece_between(codec, wire + kHeader, elements, begin, end, first);
  }
  ARLAB_DEVICE std::uint8_t* header() const { return wire; }
  ARLAB_DEVICE bool is_first(std::size_t first) const { return first == begin; }

  /// Bytes of shared memory at most; a multiple of 16.
  static std::size_t bytes(const Codec& codec, std::size_t elements) {
    const std::size_t block = codec.block(elements);
    std::size_t blocks = (kTile - 2) / block + 2;
    if (block % kTile == 0 || block >= elements) blocks = 1;
    if (kTile % block == 0) blocks = kTile / block;
    const std::size_t all =
        kHeader + bytes_of_planes(kTile, codec.code_bits()) + blocks * codec.metadata_bytes();
    return (all + 15) / 16 * 16;
  }
};

// ---------------------------------------------------------------- a thread's eight elements

/// A message in memory, and this block's tile of it.
template <class Codec, class Element>
struct MessageElements {
  const typename Element::Bits* elements_at;
  std::size_t elements;

  ARLAB_DEVICE Float8 load(std::size_t first) const {
    return to_floats(
        load_elements<Element>(elements_at + first, Position{elements, first}.count()));
  }
  /// The thread's eight values, as they are quantized, of the tile that begins at `begin`.
  ARLAB_DEVICE Float8 values(const Codec& codec, std::size_t begin, float* shared) const {
    const std::size_t mine = threadIdx.x * kPerThread;
    if constexpr (Codec::kTransforms) {
      const std::size_t size = codec.transform();
      const std::size_t group_begin = size < kTile ? begin : begin / size * size;
      return transform_group(size, (begin - group_begin) / kTile, codec.transform_scale, shared,
                             [&](std::size_t k) { return load(group_begin + k * kTile + mine); });
    } else {
      return load(begin + mine);
    }
  }
};

/// Where the thread's eight values are in the group that is measured, of a message of so many
/// elements. Behind the end: in the last group, with a count of 0.
template <class Codec>
ARLAB_DEVICE GroupPosition group_position(const Codec& codec, std::size_t elements,
                                          std::size_t first, std::size_t& group) {
  const std::size_t codes = codes_of(codec, elements);
  const std::size_t size = codec.group(elements);
  group = 0;
  if (size >= codes) return {first, codes, Position{codes, first}.count()};
  const std::size_t last = (codes - 1) / size;
  group = first / size < last ? first / size : last;
  const std::size_t begin = group * size;
  return {first - begin, codes - begin < size ? codes - begin : size,
          Position{codes, first}.count()};
}

/// Encodes the thread's eight of the tile that begins at `begin`. All threads of the block.
template <class Codec, class Element>
ARLAB_DEVICE typename Codec::Encoded encode_tile(const Codec& codec,
                                                 const MessageElements<Codec, Element>& message,
                                                 const Statistics* statistics, std::size_t begin,
                                                 float* shared) {
  std::size_t group = 0;
  const GroupPosition at =
      group_position(codec, message.elements, begin + threadIdx.x * kPerThread, group);
  const Float8 x = message.values(codec, begin, shared);
  return codec.encode(x, load_statistics(statistics + group), at);
}

template <class Codec, class Wire>
ARLAB_DEVICE void store_encoded(const Codec& codec, const typename Codec::Encoded& e,
                                const Wire& wire, std::size_t first) {
  if (first >= codes_of(codec, wire.elements)) return;
  codec.store(e, wire.piece(first));
  if constexpr (Codec::kHasHeader) {
    if (wire.is_first(first)) codec.store_header(e, wire.header());
  }
}

template <class Codec, class Wire>
ARLAB_DEVICE typename Codec::Encoded load_encoded(const Codec& codec, const Wire& wire,
                                                  std::size_t first) {
  if (first >= codes_of(codec, wire.elements)) return {};
  typename Codec::Encoded e = codec.load(wire.piece(first));
  if constexpr (Codec::kHasHeader) codec.load_header(e, wire.header());
  return e;
}

/// Decodes the thread's eight of the tile that begins at `begin`; `wire_of(b)` is the wire that
/// holds the tile that begins at b. All threads of the block.
template <class Element, class Codec, class WireOf>
ARLAB_DEVICE Pack8<Element> decode_tile(const Codec& codec, std::size_t elements, std::size_t begin,
                                        float* shared, WireOf wire_of) {
  const std::size_t mine = threadIdx.x * kPerThread;
  bool nan = false;
  float limit = kInfinity32;
  const auto decode = [&](std::size_t tile_begin) {
    const std::size_t first = tile_begin + mine;
    const typename Codec::Encoded e = load_encoded(codec, wire_of(tile_begin), first);
    nan = codec.is_nan(e);
    limit = codec.limit(e);
    const std::size_t block = codec.block(elements);
    return codec.decode(e, block >= elements ? first : first % block);
  };
  Float8 x;
  if constexpr (Codec::kTransforms) {
    const std::size_t size = codec.transform();
    const std::size_t group_begin = size < kTile ? begin : begin / size * size;
    x = transform_group(size, (begin - group_begin) / kTile, codec.transform_scale, shared,
                        [&](std::size_t k) { return decode(group_begin + k * kTile); });
  } else {
    x = decode(begin);
  }
  if constexpr (kHasPackedArithmetic<Element>) {
    const Pack8<Element> pairs = pairs_of_floats<Element>(x);
    if (!nan && !any_non_finite(pairs)) return pairs;
  }
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    x.value[i] = nan ? float_of(kNanBits) : limited(x.value[i], limit);
  }
  return from_floats<Element>(x);
}

// ---------------------------------------------------------------- a codec by itself, a block per tile

/// The wire of a message whose groups have been measured.
template <class Codec, class Element>
ARLAB_DEVICE void encode_measured(const Codec& codec, const typename Element::Bits* payload,
                                  std::size_t elements, const Statistics* statistics,
                                  std::uint8_t* wire) {
  ARLAB_SHARED_ARRAY(float, shared, kTile);
  const std::size_t begin = blockIdx.x * kTile;
  const MessageElements<Codec, Element> message{payload, elements};
  const auto e = encode_tile(codec, message, statistics, begin, shared);
  store_encoded(codec, e, MessageWire<Codec>{codec, wire, elements},
                begin + threadIdx.x * kPerThread);
}

/// The payload that a wire stands for; with kAdds, added to what is there.
template <class Codec, class Element, bool kAdds>
ARLAB_DEVICE void decode_measured(const Codec& codec, const std::uint8_t* wire,
                                  std::size_t elements, typename Element::Bits* payload) {
  ARLAB_SHARED_ARRAY(float, shared, kTile);
  const std::size_t begin = blockIdx.x * kTile;
  Pack8<Element> x = decode_tile<Element>(codec, elements, begin, shared, [&](std::size_t) {
    return MessageWire<Codec>{codec, const_cast<std::uint8_t*>(wire), elements};
  });
  const Position at{elements, begin + threadIdx.x * kPerThread};
  if constexpr (kAdds) {
    const Pack8<Element> before = load_elements<Element>(payload + at.first, at.count());
    x = add<Element, Codec::kClampsFp16Sums>(before, x);
  }
  store_elements<Element>(payload + at.first, x, at.count());
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// How the wire of an any-bit integer codec is laid out: SPEC.md, "Wire chunks and bit planes".
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "reference/codecs/anybit.h"
#include "reference/codecs/bit_planes.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/wire_chunks.h"

namespace arlab {

/// Elements per block; kWholeTensor when the message is one block.
constexpr std::size_t anybit_block(const AnyBitFormat& f) {
  if (f.given) return kWireChunk;
  return f.group == 0 ? kWholeTensor : f.group;
}

/// A message consists of chunks, and a chunk of blocks; only the last of each may be shorter.
struct AnyBitLayout {
  std::size_t block;
  std::size_t chunk;
};

inline AnyBitLayout anybit_layout(const AnyBitFormat& f, std::size_t elements) {
  const std::size_t block = anybit_block(f) == kWholeTensor ? elements : anybit_block(f);
  return {block, chunk_elements(block)};
}

/// Codes on the wire for so many elements of one chunk: a Hadamard transform fills its blocks.
constexpr std::size_t anybit_codes(const AnyBitFormat& f, std::size_t elements) {
  return f.hadamard ? blocks_of(elements, f.group) * f.group : elements;
}

/// Bytes per block in each of the arrays behind the planes of a chunk, in wire order.
class AnyBitMetadata {
 public:
  constexpr AnyBitMetadata(const AnyBitFormat& f, std::size_t element_bytes) {
    if (f.given) {
      add(1);  // whether the block is finite
      return;
    }
    const std::size_t wide = f.metadata == AnyBitFormat::Metadata::integer_spikes ? 1 : 2;
    add(wide);                    // scales
    if (!f.symmetric) add(wide);  // zeros
    if (f.metadata == AnyBitFormat::Metadata::scales) return;
    add(element_bytes);  // minima
    add(element_bytes);  // maxima
    add(wide);           // index of minimum
    add(wide);           // index of maximum
  }

  constexpr std::span<const std::size_t> arrays() const { return {bytes_.data(), count_}; }
  constexpr std::size_t bytes_per_block() const {
    std::size_t sum = 0;
    for (const std::size_t bytes : arrays()) sum += bytes;
    return sum;
  }

 private:
  constexpr void add(std::size_t bytes) { bytes_[count_++] = bytes; }

  std::array<std::size_t, 6> bytes_ = {};
  std::size_t count_ = 0;
};

constexpr std::size_t anybit_chunk_bytes(const AnyBitFormat& f, DType dtype, std::size_t elements,
                                         std::size_t block) {
  return planes_bytes(anybit_codes(f, elements), f.bits) +
         blocks_of(elements, block) * AnyBitMetadata(f, size_of(dtype)).bytes_per_block();
}

/// Bytes of a whole block of 16-bit elements.
constexpr std::size_t anybit_block_bytes(const AnyBitFormat& f) {
  return anybit_chunk_bytes(f, DType::fp16, f.group, f.group);
}
static_assert(anybit_block_bytes({.bits = 4, .group = 32}) == 20);
static_assert(anybit_block_bytes({.bits = 8, .group = 128}) == 132);
static_assert(anybit_block_bytes({.bits = 4, .group = 32, .symmetric = true}) == 18);
static_assert(
    anybit_block_bytes({.bits = 2, .group = 32, .metadata = AnyBitFormat::Metadata::spikes}) == 20);
static_assert(anybit_block_bytes({.bits = 2,
                                  .group = 32,
                                  .metadata = AnyBitFormat::Metadata::integer_spikes}) == 16);

}  // namespace arlab

// How a message is cut into chunks and blocks: SPEC.md, "Wire chunks and bit planes".
#pragma once

#include <cstddef>

namespace arlab {

inline constexpr std::size_t kWireChunk = 4096;  // elements of a wire chunk, or nearly so

/// No block crosses chunks: as many whole blocks as fit, or one that does not.
constexpr std::size_t chunk_elements(std::size_t block) {
  return block >= kWireChunk ? block : kWireChunk / block * block;
}

/// The last may be shorter.
constexpr std::size_t blocks_of(std::size_t elements, std::size_t block) {
  return (elements + block - 1) / block;
}

}  // namespace arlab

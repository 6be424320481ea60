// A stretch of a wire whose planes of codes lie together, with the metadata of its groups behind
// them: a wire chunk of a message, or a tile of one in a slot.
#pragma once

#include "kernels/codecs/groups.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The size of groups that are whole lanes of a tile: 8, 16, ... 2048. Nothing is divided by it
/// but by shifts: divisions of 64 bits take a hundred instructions.
struct LaneGroup {
  unsigned log2 = 0;

  ARLAB_HOST_DEVICE std::size_t size() const { return std::size_t{1} << log2; }
  ARLAB_HOST_DEVICE int lanes() const { return 1 << (log2 - 3); }
  ARLAB_HOST_DEVICE std::size_t groups_of(std::size_t elements) const {
    return (elements + size() - 1) >> log2;
  }
  ARLAB_HOST_DEVICE std::size_t group_of(std::size_t element) const { return element >> log2; }
  ARLAB_HOST_DEVICE std::size_t index_in_group(std::size_t element) const {
    return element & (size() - 1);
  }
};

struct WirePiece {
  std::uint8_t* planes;
  std::size_t codes;       ///< how many codes the piece has
  std::size_t first;       ///< this thread's first code, from the start of the piece
  std::size_t count;       ///< how many of this thread's eight codes are in the piece
  std::size_t groups;      ///< groups with an element in the piece
  std::size_t group;       ///< this thread's, from the first in the piece
  bool is_first_of_group;  ///< the first of its group in the piece; it writes the group's metadata
};

/// The arrays behind the planes of a piece, one entry per group, in wire order.
struct MetadataArrays {
  std::uint8_t* array;
  std::size_t groups;
  std::size_t group;  ///< this thread's

  ARLAB_DEVICE MetadataArrays(const WirePiece& piece, unsigned bits)
      : array(piece.planes + bytes_of_planes(piece.codes, bits)),
        groups(piece.groups),
        group(piece.group) {}

  /// This thread's entry of the next array.
  ARLAB_DEVICE std::uint8_t* next(std::size_t entry_bytes) {
    std::uint8_t* entry = array + group * entry_bytes;
    array += groups * entry_bytes;
    return entry;
  }
};

/// The same behind a message that is one whole tile, with offsets of 32 bits.
struct TileMetadata {
  unsigned array;
  unsigned groups;
  unsigned group;  ///< this thread's

  ARLAB_DEVICE TileMetadata(unsigned bits, LaneGroup size)
      : array(static_cast<unsigned>(kTile / 8) * bits),
        groups(static_cast<unsigned>(kTile) >> size.log2),
        group(thread_index() * static_cast<unsigned>(kPerThread) >> size.log2) {}

  ARLAB_DEVICE unsigned next(unsigned entry_bytes) {
    const unsigned at = array + group * entry_bytes;
    array += groups * entry_bytes;
    return at;
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

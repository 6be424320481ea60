// Scales that a GPU's kernel finds within a tile, and those that take a pass of their own.
#pragma once

#include <cstddef>

#include "reference/codecs/codec_info.h"

namespace arlab {

/// Elements that a block of threads encodes at once.
inline constexpr std::size_t kKernelTileElements = 2048;

/// Whether a kernel finds the scale of a group within one tile: then it need not be measured first.
constexpr bool is_group_of_a_tile(std::size_t group) {
  return group >= 8 && group <= kKernelTileElements && (group & (group - 1)) == 0;
}
/// The same within one wave, where elements are exchanged.
constexpr bool is_group_of_lanes(std::size_t group) {
  return group <= 256 && is_group_of_a_tile(group);
}

/// Whether a pass over all that is encoded must measure it before any of it is (kernels/PROGRAMS.md, "Two-pass codecs").
constexpr bool measures_first(const CodecCost& cost) {
  return (cost.scale_elements != 0 && !is_group_of_a_tile(cost.scale_elements)) ||
         (cost.exchange_elements != 0 && !is_group_of_lanes(cost.exchange_elements));
}

}  // namespace arlab

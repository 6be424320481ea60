// Which scales a wave of a GPU finds by itself, and which take a pass of their own.
#pragma once

#include <cstddef>

#include "reference/codecs/codec_info.h"

namespace arlab {

/// Whether a kernel finds the scale of a group within one wave: then it need not be measured first.
constexpr bool is_group_of_lanes(std::size_t group) {
  return group >= 8 && group <= 256 && (group & (group - 1)) == 0;
}

/// Whether a pass over all that is encoded must measure it before any of it is (kernels/PROTOCOL.md, "Two-pass codecs").
constexpr bool measures_first(const CodecCost& cost) {
  return cost.scale_elements != 0 && !is_group_of_lanes(cost.scale_elements);
}

}  // namespace arlab

// The parameters of a block-scaled codec, and its names.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace arlab {

enum class BlockFormat { mx_e4m3, mx_e5m2, mx_e2m3, mx_e3m2, mx_e2m1, nvfp4 };

/// How a microscaling block's exponent is found; nvfp4 has no choice.
enum class ExponentRule { floor, ceil, even, rceil };

struct MicroscalingKind {
  BlockFormat format = BlockFormat::mx_e4m3;
  ExponentRule rule = ExponentRule::floor;
};

/// What a codec name like `mxfp4-ceil` says; nothing when the name is not of this family.
std::optional<MicroscalingKind> parse_microscaling(std::string_view name);

}  // namespace arlab

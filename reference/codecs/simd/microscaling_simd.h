// What the vector code of the block-scaled codecs and its callers both know.
#pragma once

#include <cstdint>

namespace arlab {

enum class BlockFormat { mx_e4m3, mx_e5m2, mx_e2m3, mx_e3m2, mx_e2m1, nvfp4 };

/// How a microscaling block's exponent is found; nvfp4 has no choice.
enum class ExponentRule { floor, ceil, even };

struct MicroscalingKind {
  BlockFormat format = BlockFormat::mx_e4m3;
  ExponentRule rule = ExponentRule::floor;
};

}  // namespace arlab

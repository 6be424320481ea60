// Beside mini_codec.h, which includes it.
#pragma once

#include "reference/formats/fp4.h"

namespace arlab::tests {
inline constexpr Minifloat kMiniElement = kE2m1;
}  // namespace arlab::tests

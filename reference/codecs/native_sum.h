// Sums in the payload's dtype: SPEC.md, "Accumulation".
#pragma once

#include <cstddef>
#include <span>

#include "reference/dtype.h"

namespace arlab {

/// sum += addend, one fp32 addition and one rounding to dtype per element. With `clamp`, a finite
/// fp16 sum that overflows becomes +-65504.
void add_native(DType dtype, bool clamp, std::span<std::byte> sum,
                std::span<const std::byte> addend);

}  // namespace arlab

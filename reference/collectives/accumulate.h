// Sums in a defined order with defined roundings (spec section 4).
#pragma once

#include <span>

#include "reference/codecs/codec.h"

namespace arlab {

/// sum += addend, one fp32 addition and one rounding to dtype per element. With `clamp`, a finite
/// fp16 sum that overflows becomes +-65504.
void add_native(DType dtype, bool clamp, std::span<std::byte> sum,
                std::span<const std::byte> addend);

/// sum += addend in fp32.
void add_fp32(DType dtype, std::span<float> sum, std::span<const std::byte> addend);

/// Rounds fp32 sums to dtype.
void round_sum(DType dtype, bool clamp, std::span<const float> sum, std::span<std::byte> out);

}  // namespace arlab

// Sums in fp32, rounded once at the end: reference/codecs/SPEC.md, "Accumulation".
// codecs/native_sum.h has the others.
#pragma once

#include <cstddef>
#include <span>

#include "reference/dtype.h"

namespace arlab {

/// sum += addend in fp32.
void add_fp32(DType dtype, std::span<float> sum, std::span<const std::byte> addend);

/// Rounds fp32 sums to dtype.
void round_sum(DType dtype, bool clamp, std::span<const float> sum, std::span<std::byte> out);

}  // namespace arlab

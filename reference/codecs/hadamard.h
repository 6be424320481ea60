// Block Hadamard transform: SPEC.md, "Hadamard (had-*)".
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace arlab {

/// Transforms x in place, in Sylvester order; x.size() is a power of two: butterflies with strides
/// 1, 2, 4, ..., one rounding per addition, then one multiplication by RN(1 / sqrt(size), fp32).
/// Its own inverse, but for the roundings.
inline void hadamard(std::span<float> x) {
  for (std::size_t stride = 1; stride < x.size(); stride *= 2) {
    for (std::size_t first = 0; first < x.size(); first += 2 * stride) {
      for (std::size_t i = first; i < first + stride; ++i) {
        const float a = x[i];
        const float b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
    }
  }
  // fp64 holds 1 / sqrt(n) closely enough that rounding it to fp32 is rounding the exact value.
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(x.size())));
  for (float& value : x) value *= scale;
}

}  // namespace arlab

// The arithmetic of int8 layers: reference/layers/SPEC.md, "Scales and codes of int8" and "Products
// of int8". Written once, for the scalar reference, for vectors and for kernels on all platforms; one
// rounding per operation, nothing fused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "reference/codecs/scaled_format.h"

namespace arlab {

/// An element is about (code - zero) * scale.
struct Int8Scale {
  float scale = 0;  ///< NaN: of elements one of which is not finite
  std::int32_t zero = 0;

  constexpr bool operator==(const Int8Scale&) const = default;
};

/// The lowest and the highest of some elements and 0. `highest` is an infinity where one of them is
/// not finite.
struct Extremes {
  float lowest = 0;
  float highest = 0;

  constexpr bool finite() const { return highest <= std::numeric_limits<float>::max(); }
  constexpr void add(float x) {
    constexpr float kLargest = std::numeric_limits<float>::max();
    if (!(x >= -kLargest && x <= kLargest)) x = std::numeric_limits<float>::infinity();
    add(Extremes{x, x});
  }
  constexpr void add(const Extremes& other) {
    if (other.lowest < lowest) lowest = other.lowest;
    if (other.highest > highest) highest = other.highest;
  }
  constexpr float magnitude() const { return -lowest > highest ? -lowest : highest; }
};

constexpr Int8Scale int8_scale(const Extremes& of, bool asymmetric) {
  if (!of.finite()) return {std::numeric_limits<float>::quiet_NaN(), 0};
  if (!asymmetric) return {of.magnitude() / 127, 0};
  // Not their difference, which may be infinite.
  const float scale = of.highest / 255 - of.lowest / 255;
  if (scale == 0) return {0, 0};
  const float zero = round_to_even(-128 - of.lowest / scale);
  return {scale, zero > 127 ? 127 : static_cast<std::int32_t>(zero)};
}

constexpr std::int32_t int8_lowest_code(bool asymmetric) { return asymmetric ? -128 : -127; }

/// The code of a finite element. A scale of 0 or NaN has the code of 0 for all.
constexpr std::int8_t int8_code(float x, const Int8Scale& of, bool asymmetric) {
  if (!(of.scale > 0)) return static_cast<std::int8_t>(of.zero);
  const float code = round_to_even(x / of.scale) + static_cast<float>(of.zero);
  const std::int32_t lowest = int8_lowest_code(asymmetric);
  if (code < static_cast<float>(lowest)) return static_cast<std::int8_t>(lowest);
  return code > 127 ? 127 : static_cast<std::int8_t>(code);
}

constexpr float int8_value(std::int8_t code, const Int8Scale& of) {
  return static_cast<float>(code - of.zero) * of.scale;
}

/// Sum of (x - x_zero) * (w - w_zero), from the products of codes and the sums of codes: modulo 2^32,
/// which does not matter, because the sum itself fits (int8_inputs_limit).
constexpr std::int32_t int8_corrected(std::int32_t products, std::int32_t x_codes,
                                      std::int32_t w_codes, std::int32_t x_zero,
                                      std::int32_t w_zero, std::size_t inputs) {
  const auto word = [](std::int32_t value) { return static_cast<std::uint32_t>(value); };
  return static_cast<std::int32_t>(
      word(products) - word(w_zero) * word(x_codes) - word(x_zero) * word(w_codes) +
      static_cast<std::uint32_t>(inputs) * word(x_zero) * word(w_zero));
}

/// A NaN is the canonical one.
constexpr float int8_output(std::int32_t sum, float x_scale, float w_scale) {
  const float y = static_cast<float>(sum) * w_scale * x_scale;
  return y == y ? y : std::numeric_limits<float>::quiet_NaN();
}

/// So many inputs at most: sums then fit in 32 bits.
constexpr std::size_t int8_inputs_limit(bool x_asymmetric, bool w_asymmetric) {
  const std::size_t x = x_asymmetric ? 255 : 127;
  const std::size_t w = w_asymmetric ? 255 : 127;
  return 0x7FFFFFFF / (x * w);
}

}  // namespace arlab

// A codec written once: blocks that are scaled by their largest magnitude, element by element.
//
// A format says what its parameters are, what a block's scale is, and what becomes of an element:
// plain functions that C++ and GPU compilers take alike. scaled_reference.h makes the scalar reference of
// it, kernels/codecs/scaled.h the device code of all platforms. It looks so:
//
//   struct MyFormat {
//     static constexpr std::size_t kBlock = 64;   // a power of two, 8 to 256
//     using Scale = float;                        // of a block, on the wire: float or std::uint8_t
//     constexpr unsigned bits() const;            // of an element's code, 1 to 8
//
//     // Of a block whose elements are all finite: what travels, and the factor that quantize() is
//     // to know. A block with others has nan_scale() and codes of 0, so that all of it decodes to
//     // NaN.
//     constexpr ScaledBlock<Scale> scale_of(float largest_magnitude) const;
//     constexpr Scale nan_scale() const;
//     constexpr ScaledCode quantize(float x, float factor) const;
//     // Of any code and any scale: wires may be foreign.
//     constexpr float dequantize(std::uint32_t code, Scale scale) const;
//
//     // For the reference alone (NamedFormat in scaled_reference.h):
//     static CodecInfo info(const std::string& name);  // name, summary, source, cost
//     static std::vector<std::string> listed();
//     static std::optional<MyFormat> parse(std::string_view name);
//     static std::string pattern();  // of names, if they are not those that are listed
//   };
//
// A format that may round stochastically says so by `bool stochastic`, and has quantize(x, factor, random) with 24 random bits.
//
// A format whose codes are those of a Minifloat says so by element() and value_of(), and GPUs convert with the
// instructions that they have: quantize(x, factor) is then minifloat_code(element(), x * factor), and dequantize(code,
// scale) is minifloat_to_float(element(), code) * value_of(scale).
//
// A format of other products of an element and a scale says which by product_of(code, scale), for sums with add=fma; dequantize()
// is then the product of the two.
//
// Each operation in these functions is in fp32 and rounded once. The value that dequantize() gives
// is rounded once more, to the payload's dtype.
//
// Wire, per chunk of 4096 elements (the last may be shorter): codes as planes (bit_planes.h), then
// one scale per block.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/codecs/codec_info.h"
#include "reference/codecs/context.h"
#include "reference/formats/minifloat.h"

namespace arlab {

template <class Scale>
struct ScaledBlock {
  Scale scale = {};
  float factor = 0;  ///< 0: every code is 0
};

struct ScaledCode {
  std::uint32_t bits = 0;
  bool clamped = false;  ///< the rounded code lay outside the code range
};

/// Factors of a value by dequantize().
struct ScaledProduct {
  float element = 0;
  float scale = 0;
};

/// RN to an integer, ties to even, for |x| < 2^22; larger values stay as they are.
constexpr float round_to_even(float x) {
  constexpr float kMagic = 0x1.8p23f;
  return x > -0x1p22f && x < 0x1p22f ? (x + kMagic) - kMagic : x;
}

/// The nearest code of a small floating-point format; beyond its end, the largest finite one.
constexpr ScaledCode minifloat_code(const Minifloat& format, float value) {
  const std::uint32_t magnitude = minifloat_magnitude(format, value);
  const bool clamped = magnitude > format.max_finite();
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) >> 31 != 0 ? format.sign_bit() : 0;
  return {sign | (clamped ? format.max_finite() : magnitude), clamped};
}

/// The neighbour below |x| < 2^22, or above it: up if and only if the 24 random bits are below the fraction.
constexpr float round_stochastically(float x, std::uint32_t random) {
  if (!(x > -0x1p22f && x < 0x1p22f)) return x;
  const float nearest = round_to_even(x);
  const float below = nearest > x ? nearest - 1 : nearest;
  return static_cast<float>(random) < (x - below) * 0x1p24f ? below + 1 : below;
}

/// As minifloat_code(), but rounded stochastically between the two neighbours by magnitude.
constexpr ScaledCode minifloat_code(const Minifloat& format, float value, std::uint32_t random) {
  const std::uint32_t magnitude = minifloat_magnitude(format, value, random);
  const bool clamped = magnitude > format.max_finite();
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) >> 31 != 0 ? format.sign_bit() : 0;
  return {sign | (clamped ? format.max_finite() : magnitude), clamped};
}

template <class Format>
concept ScaledFormat =
    std::has_single_bit(Format::kBlock) && Format::kBlock >= 8 && Format::kBlock <= 256 &&
    (std::same_as<typename Format::Scale, float> ||
     std::same_as<typename Format::Scale, std::uint8_t>) &&
    requires(const Format& format, float x, std::uint32_t code, typename Format::Scale scale) {
      { format.bits() } -> std::same_as<unsigned>;
      { format.scale_of(x) } -> std::same_as<ScaledBlock<typename Format::Scale>>;
      { format.nan_scale() } -> std::same_as<typename Format::Scale>;
      { format.quantize(x, x) } -> std::same_as<ScaledCode>;
      { format.dequantize(code, scale) } -> std::same_as<float>;
    };

/// Bytes of a whole block: its codes, then its scale.
template <ScaledFormat Format>
constexpr std::size_t block_bytes(const Format& format) {
  return format.bits() * Format::kBlock / 8 + sizeof(typename Format::Scale);
}

template <class Format>
concept StochasticFormat = requires(const Format& format, float x, std::uint32_t random) {
  { format.stochastic } -> std::convertible_to<bool>;
  { format.quantize(x, x, random) } -> std::same_as<ScaledCode>;
};

template <class Format>
concept MinifloatFormat = requires(const Format& format, typename Format::Scale scale) {
  { format.element() } -> std::same_as<Minifloat>;
  { format.value_of(scale) } -> std::same_as<float>;
};

template <class Format>
concept ProductFormat =
    requires(const Format& format, std::uint32_t code, typename Format::Scale scale) {
      { format.product_of(code, scale) } -> std::same_as<ScaledProduct>;
    };

}  // namespace arlab

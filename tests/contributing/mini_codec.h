// A codec of a header that uses what the worked example does not: a parameter of its name, an element format, a scale of one byte,
// stochastic rounding, and another header beside it.
#pragma once

#include <limits>

#include "mini_element.h"
#include "reference/codecs/scaled_format.h"
#include "reference/formats/e8m0.h"

namespace arlab::tests {

struct MiniCodec {
  static constexpr std::size_t kBlock = 16;
  using Scale = std::uint8_t;

  bool stochastic = false;

  constexpr unsigned bits() const { return 4; }
  constexpr Minifloat element() const { return kMiniElement; }
  constexpr float value_of(Scale scale) const { return e8m0_to_float(scale); }

  constexpr ScaledBlock<Scale> scale_of(float largest) const {
    if (largest == 0) return {};
    const Scale scale = e8m0_from_exponent(floor_log2(largest) - 2);
    return {scale, e8m0_reciprocal(scale)};
  }
  constexpr Scale nan_scale() const { return kE8m0Nan; }
  constexpr ScaledCode quantize(float x, float factor) const {
    return minifloat_code(element(), x * factor);
  }
  constexpr ScaledCode quantize(float x, float factor, std::uint32_t random) const {
    return minifloat_code(element(), x * factor, random);
  }
  constexpr float dequantize(std::uint32_t code, Scale scale) const {
    return minifloat_to_float(element(), code) * value_of(scale);
  }

  static CodecInfo info(const std::string& name) {
    return {.name = name,
            .summary = "e2m1 elements, E8M0 scale per 16",
            .source = "tests",
            .dtypes = {},
            .saturating = {DType::bf16, DType::fp32},
            .cost = {.encode_ops_per_element = 9.5,
                     .decode_ops_per_element = 5,
                     .store_efficiency = 0.75,
                     .packed = true}};
  }
  static std::vector<std::string> listed() { return {"mini-g16", "mini-g16-stoch"}; }
  static std::optional<MiniCodec> parse(std::string_view name) {
    if (name == "mini-g16") return MiniCodec{};
    if (name == "mini-g16-stoch") return MiniCodec{.stochastic = true};
    return std::nullopt;
  }
};

}  // namespace arlab::tests

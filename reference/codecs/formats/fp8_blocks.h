// fp8-e4m3-g128: e4m3fn with an fp32 scale per 128 elements, as DeepEP dispatches and vLLM
// quantizes blocks. SPEC.md, "Scaled FP8 blocks (fp8-e4m3-g128)".
#pragma once

#include "reference/codecs/scaled_format.h"
#include "reference/formats/fp8.h"

namespace arlab {

struct Fp8Blocks {
  static constexpr std::size_t kBlock = 128;
  using Scale = float;

  constexpr unsigned bits() const { return 8; }
  // A value of its own: nvcc has no addresses of constants in device code.
  static constexpr Minifloat element() { return kE4m3fn; }

  constexpr ScaledBlock<Scale> scale_of(float largest) const {
    const float bounded = largest > 1e-4f ? largest : 1e-4f;
    return {bounded / 448.0f, 448.0f / bounded};
  }
  constexpr Scale nan_scale() const { return std::bit_cast<float>(0x7FC00000u); }

  constexpr ScaledCode quantize(float x, float factor) const {
    const std::uint32_t magnitude = minifloat_magnitude(element(), x * factor);
    const bool clamped = magnitude > element().max_finite();
    const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) >> 31 << 7;
    return {sign | (clamped ? element().max_finite() : magnitude), clamped};
  }
  constexpr float dequantize(std::uint32_t code, Scale scale) const {
    return minifloat_to_float(element(), code) * scale;
  }

  static CodecInfo info(const std::string& name) {
    return {.name = name,
            .summary = "e4m3 elements, fp32 scale per 128",
            .source = "DeepEP, vLLM",
            .dtypes = {},
            .cost = {.encode_ops_per_element = 7, .decode_ops_per_element = 5}};
  }
  static std::vector<std::string> listed() { return {"fp8-e4m3-g128"}; }
  static std::optional<Fp8Blocks> parse(std::string_view name) {
    return name == "fp8-e4m3-g128" ? std::optional(Fp8Blocks()) : std::nullopt;
  }
};

}  // namespace arlab

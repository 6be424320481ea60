// nvfp4-ts<g> and nvfp4-vllm-ts<g>, NVFP4 with a tensor scale that is given, once. nvfp4 and
// nvfp4-vllm find it of the message (nvfp4.cc, kernels/codecs/measured.h), and then are the same.
// SPEC.md, "NVFP4 (nvfp4)".
#pragma once

#include "reference/codecs/nvfp4.h"
#include "reference/codecs/scaled_format.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp8.h"

namespace arlab {

struct NvFp4Blocks {
  static constexpr std::size_t kBlock = 16;
  using Scale = std::uint8_t;  // e4m3

  float tensor_scale = 1;
  bool vllm = false;  ///< roundings in the order of vLLM's kernel

  /// The scale of a message from its largest magnitude; the bound keeps what is divided by a scale
  /// finite.
  static constexpr float tensor_scale_of(float largest) {
    if (largest == 0) return 1;
    const float wanted = 448.0f * 6.0f / largest;
    return wanted < NvFp4Format::kMostTensorScale ? wanted : NvFp4Format::kMostTensorScale;
  }

  constexpr unsigned bits() const { return 4; }

  constexpr ScaledBlock<Scale> scale_of(float largest) const {
    const float wanted =
        vllm ? tensor_scale * (largest * (1.0f / 6.0f)) : tensor_scale * largest / 6.0f;
    const std::uint32_t scale = minifloat_from_float(scale_format(), wanted, Overflow::saturate);
    if (scale == 0) return {};
    const float s = minifloat_to_float(scale_format(), scale);
    return {static_cast<Scale>(scale),
            vllm ? 1.0f / (s * (1.0f / tensor_scale)) : tensor_scale / s};
  }
  constexpr Scale nan_scale() const { return 0x7F; }

  constexpr ScaledCode quantize(float x, float factor) const {
    const float v = x * factor;
    // From halfway between 6 and 8 on.
    return {minifloat_from_float(element(), v, Overflow::saturate), !(v < 7.0f && v > -7.0f)};
  }
  constexpr float dequantize(std::uint32_t code, Scale scale) const {
    return minifloat_to_float(element(), code) *
           (minifloat_to_float(scale_format(), scale) / tensor_scale);
  }

  static CodecInfo info(const std::string& name) {
    const bool vllm = parse(name)->vllm;
    return {.name = name,
            .summary =
                fmt::format("e2m1 elements, blocks of 16, e4m3 block scale, given tensor scale{}",
                            vllm ? ", rounded as in vLLM" : ""),
            .source = vllm ? "vLLM csrc/quantization/fp4" : "NVIDIA NVFP4",
            .dtypes = {},
            .cost = {.encode_ops_per_element = 10, .decode_ops_per_element = 6}};
  }
  static std::string pattern() { return "nvfp4[-vllm]-ts<tensor scale>"; }
  static std::vector<std::string> listed() { return {}; }
  static std::optional<NvFp4Blocks> parse(std::string_view name) {
    const std::optional<NvFp4Format> format = parse_nvfp4(name);
    if (!format || !format->tensor_scale) return std::nullopt;
    return NvFp4Blocks{*format->tensor_scale, format->vllm};
  }

 private:
  // Values of their own: nvcc has no addresses of constants in device code.
  static constexpr Minifloat element() { return kE2m1; }
  static constexpr Minifloat scale_format() { return kE4m3fn; }
};

}  // namespace arlab

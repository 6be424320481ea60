// nvfp4-ts<g> and nvfp4-vllm-ts<g>, NVFP4 with a tensor scale that is given, once. nvfp4[-vllm] and nvfp4-te[-4over6] find a number
// of the message (nvfp4.cc, kernels/codecs/message_scale.h), and then have the same blocks.
// SPEC.md, "NVFP4 (nvfp4)".
//
//   4.5 bits per element, 9 bytes per block of 16; of a number that is found, 4 bytes per message
#pragma once

#include <cmath>
#include <span>

#include "reference/codecs/nvfp4.h"
#include "reference/codecs/scaled_format.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp8.h"

namespace arlab {

struct NvFp4Blocks {
  static constexpr std::size_t kBlock = 16;
  using Scale = std::uint8_t;  // e4m3

  /// The number of the message: its tensor scale; of -te its largest magnitude.
  float number = 1;
  NvFp4Rounding rounding = NvFp4Rounding::nvidia;

  /// Returns the tensor scale of a message with this largest magnitude. The bound keeps what is divided by a scale finite.
  constexpr float number_of(float largest) const {
    if (is_te()) return largest;
    if (largest == 0) return 1;
    const float wanted = kMostOfScale * 6.0f / largest;
    return wanted < NvFp4Format::kMostTensorScale ? wanted : NvFp4Format::kMostTensorScale;
  }

  constexpr unsigned bits() const { return 4; }

  constexpr ScaledBlock<Scale> scale_of(float largest) const {
    const float g = tensor_scale();
    switch (rounding) {
      case NvFp4Rounding::vllm:
        return block_of(g * (largest * (1.0f / 6.0f)));
      case NvFp4Rounding::te:
        return block_of(largest * (g * (1.0f / 6.0f)));
      case NvFp4Rounding::te_4over6:
        return block_of(largest / 6.0f * g);
      case NvFp4Rounding::nvidia:
        break;
    }
    return block_of(g * largest / 6.0f);
  }
  /// Four over six: the scale with which the largest element becomes 4, if that makes the smaller error.
  ScaledBlock<Scale> scale_of_block(float largest, std::span<const float> x) const {
    const ScaledBlock<Scale> six = scale_of(largest);
    if (rounding != NvFp4Rounding::te_4over6) return six;
    const ScaledBlock<Scale> four = block_of(largest / 6.0f * tensor_scale() * 1.5f);
    return error_of(four, x) < error_of(six, x) ? four : six;
  }
  constexpr Scale nan_scale() const { return 0x7F; }

  constexpr ScaledCode quantize(float x, float factor) const {
    const float v = x * factor;
    // From halfway between 6 and 8 on.
    return {minifloat_from_float(element(), v, Overflow::saturate), !(v < 7.0f && v > -7.0f)};
  }
  constexpr float dequantize(std::uint32_t code, Scale scale) const {
    return minifloat_to_float(element(), code) *
           whole_scale(minifloat_to_float(scale_format(), scale));
  }
  constexpr ScaledProduct product_of(std::uint32_t code, Scale scale) const {
    return {minifloat_to_float(element(), code),
            whole_scale(minifloat_to_float(scale_format(), scale))};
  }
  /// Returns the factor of elements for a value of the block's scale.
  constexpr float whole_scale(float scale) const {
    return is_te() ? scale * number * (1.0f / (6.0f * most_of_scale())) : scale / number;
  }

  static CodecInfo info(const std::string& name);
  static std::string pattern();
  static std::vector<std::string> listed();
  static std::optional<NvFp4Blocks> parse(std::string_view name);

 private:
  static constexpr float kMostOfScale = 448;
  static constexpr float kMostFloat = 0x1.fffffep127f;

  constexpr bool is_te() const {
    return rounding == NvFp4Rounding::te || rounding == NvFp4Rounding::te_4over6;
  }
  /// Returns the scale of the block with the largest magnitude. Four over six leaves room above.
  constexpr float most_of_scale() const {
    return rounding == NvFp4Rounding::te_4over6 ? 256 : kMostOfScale;
  }
  constexpr float tensor_scale() const {
    if (!is_te()) return number;
    if (number == 0) return 1;
    const float wanted = 6.0f * most_of_scale() / number;
    return wanted < kMostFloat ? wanted : kMostFloat;
  }
  constexpr ScaledBlock<Scale> block_of(float wanted) const {
    const std::uint32_t scale = minifloat_from_float(scale_format(), wanted, Overflow::saturate);
    const float s = minifloat_to_float(scale_format(), scale);
    if (is_te()) {
      const float factor = 1.0f / (s * (1.0f / tensor_scale()));
      return {static_cast<Scale>(scale), factor < kMostFloat ? factor : kMostFloat};
    }
    if (scale == 0) return {};
    return {static_cast<Scale>(scale), rounding == NvFp4Rounding::vllm
                                           ? 1.0f / (s * (1.0f / tensor_scale()))
                                           : tensor_scale() / s};
  }
  float error_of(const ScaledBlock<Scale>& block, std::span<const float> x) const {
    const float s = minifloat_to_float(scale_format(), block.scale);
    float error = 0;
    for (const float each : x) {
      const std::uint32_t code = quantize(each, block.factor).bits;
      const float value =
          minifloat_to_float(element(), code) * s * number / (6.0f * most_of_scale());
      error += std::abs(value - each);
    }
    return error;
  }

  // Values of their own: nvcc has no addresses of constants in device code.
  static constexpr Minifloat element() { return kE2m1; }
  static constexpr Minifloat scale_format() { return kE4m3fn; }
};

static_assert(block_bytes(NvFp4Blocks{}) == 9);

}  // namespace arlab

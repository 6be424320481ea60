// mxint8: 8-bit integers with a shared power of two, OCP Microscaling Formats v1.0, 5.3.4.
// SPEC.md, "MXINT8 (mxint8)".
//
//   8.25 bits per element, 33 bytes per block of 32
#pragma once

#include "reference/codecs/scaled_format.h"
#include "reference/formats/e8m0.h"

namespace arlab {

struct MxInt8 {
  static constexpr std::size_t kBlock = 32;
  using Scale = std::uint8_t;

  static constexpr std::string_view kStruct = "MxInt8";  ///< its name in kernels
  static constexpr unsigned kBits = 8;
  static constexpr int kLargestInteger = 127;
  static constexpr float kIntegersPerUnit = 64;
  constexpr unsigned bits() const { return kBits; }

  constexpr ScaledBlock<Scale> scale_of(float largest) const {
    if (largest == 0) return {};
    const Scale scale = e8m0_from_exponent(floor_log2(largest));
    return {scale, e8m0_reciprocal(scale)};
  }
  constexpr Scale nan_scale() const { return kE8m0Nan; }

  /// The code -128 is not used: it has no counterpart.
  constexpr ScaledCode quantize(float x, float factor) const {
    const float q = round_to_even(x * factor * 64);
    const float code = q > 127 ? 127 : q < -127 ? -127 : q;
    return {static_cast<std::uint32_t>(static_cast<int>(code)) & 0xFF, code != q};
  }
  constexpr float dequantize(std::uint32_t code, Scale scale) const {
    const int value = static_cast<int>(code) - (code >= 128 ? 256 : 0);
    return static_cast<float>(value) / 64 * e8m0_to_float(scale);
  }
  constexpr ScaledProduct product_of(std::uint32_t code, Scale scale) const {
    const int value = static_cast<int>(code) - (code >= 128 ? 256 : 0);
    return {static_cast<float>(value) / 64, e8m0_to_float(scale)};
  }

  static CodecInfo info(const std::string& name);
  static std::vector<std::string> listed();
  static std::optional<MxInt8> parse(std::string_view name);
};

static_assert(block_bytes(MxInt8{}) == 33);

}  // namespace arlab

// fp8-e4m3-g<G>[-torch][-stoch]: e4m3fn with an fp32 scale per G elements, rounded as DeepEP's kernels do,
// or as torch does; elements to the nearest, or stochastically. SPEC.md, "Scaled FP8 blocks (fp8-e4m3-g)".
//
//   -g64    8.5 bits per element, 68 bytes per block
//   -g128   8.25 bits per element, 132 bytes
//   -g256   8.125 bits per element, 260 bytes
#pragma once

#include "reference/codecs/scaled_format.h"
#include "reference/formats/fp8.h"

namespace arlab {

template <std::size_t kElements>
struct Fp8Blocks {
  static constexpr std::size_t kBlock = kElements;
  using Scale = float;

  bool torch = false;
  bool stochastic = false;

  static constexpr unsigned kBits = 8;
  constexpr unsigned bits() const { return kBits; }
  // A value of its own: nvcc has no addresses of constants in device code.
  static constexpr Minifloat element() { return kE4m3fn; }

  constexpr ScaledBlock<Scale> scale_of(float largest) const {
    const float bounded = largest > 1e-4f ? largest : 1e-4f;
    if (torch) return {bounded / 448.0f, 1.0f / bounded * 448.0f};
    return {bounded * (1.0f / 448.0f), 448.0f / bounded};
  }
  constexpr Scale nan_scale() const { return std::bit_cast<float>(0x7FC00000u); }

  constexpr ScaledCode quantize(float x, float factor) const {
    return minifloat_code(element(), x * factor);
  }
  constexpr ScaledCode quantize(float x, float factor, std::uint32_t random) const {
    return minifloat_code(element(), x * factor, random);
  }
  constexpr float value_of(Scale scale) const { return scale; }
  constexpr float dequantize(std::uint32_t code, Scale scale) const {
    return minifloat_to_float(element(), code) * scale;
  }

  static CodecInfo info(const std::string& name);
  static std::string pattern();
  static std::vector<std::string> listed();
  static std::optional<Fp8Blocks> parse(std::string_view name);
};

static_assert(block_bytes(Fp8Blocks<64>{}) == 68);
static_assert(block_bytes(Fp8Blocks<128>{}) == 132);
static_assert(block_bytes(Fp8Blocks<256>{}) == 260);

}  // namespace arlab

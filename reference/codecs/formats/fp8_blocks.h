// fp8-e4m3-g<G>[-torch][-stoch]: e4m3fn with an fp32 scale per G elements, rounded as DeepEP's kernels do,
// or as torch does; elements to the nearest, or stochastically. SPEC.md, "Scaled FP8 blocks (fp8-e4m3-g)".
#pragma once

#include "reference/codecs/name_parts.h"
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

  static CodecInfo info(const std::string& name) {
    const Fp8Blocks format = *parse(name);
    const bool as_torch = format.torch;
    return {.name = name,
            .summary = fmt::format("e4m3 elements, fp32 scale per {}{}{}", kElements,
                                   as_torch ? ", rounded as in torch" : "",
                                   format.stochastic ? ", stochastic rounding" : ""),
            .source = as_torch ? "DeepGEMM, torch" : "DeepEP",
            .dtypes = {},
            .cost = {.encode_ops_per_element = format.stochastic ? 7 + kPhiloxOps : 7,
                     .decode_ops_per_element = 5}};
  }
  static std::string pattern() { return own_name() + "[-torch][-stoch]"; }
  static std::vector<std::string> listed() {
    if (kElements != 128) return {};
    return {own_name()};
  }
  static std::optional<Fp8Blocks> parse(std::string_view name) {
    Fp8Blocks format;
    const std::string own = own_name();
    if (!take(name, own)) return std::nullopt;
    format.torch = take(name, "-torch");
    format.stochastic = take(name, "-stoch");
    if (!name.empty()) return std::nullopt;
    return format;
  }

 private:
  static std::string own_name() { return fmt::format("fp8-e4m3-g{}", kElements); }
};

}  // namespace arlab

// The device code of a codec of a user's header (reference/codecs/header_codec.h): a struct of scaled_format.h that only the
// compiler of its kernels sees.
#pragma once

#include "kernels/codecs/scaled.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The struct as a format of this tree. Kernels take no more of it than scaled_format.h promises: what else it has may be called
/// like something of theirs, and mean something else.
template <class Struct, unsigned kWidth, bool kClamps>
struct FormatOfHeader {
  static constexpr std::size_t kBlock = Struct::kBlock;
  static constexpr unsigned kBits = kWidth;
  static constexpr bool kClampsFp16Sums = kClamps;
  static constexpr bool stochastic = StochasticFormat<Struct>;
  using Scale = typename Struct::Scale;

  Struct of;

  constexpr unsigned bits() const { return kBits; }
  constexpr ScaledBlock<Scale> scale_of(float largest) const { return of.scale_of(largest); }
  constexpr Scale nan_scale() const { return of.nan_scale(); }
  constexpr ScaledCode quantize(float x, float factor) const { return of.quantize(x, factor); }
  constexpr ScaledCode quantize(float x, float factor, std::uint32_t random) const
    requires StochasticFormat<Struct>
  {
    return of.quantize(x, factor, random);
  }
  constexpr float dequantize(std::uint32_t code, Scale scale) const {
    return of.dequantize(code, scale);
  }
};

/// The struct that parse() has made, of its bytes.
template <class Struct, std::uint8_t... kBytes>
constexpr Struct struct_of() {
  constexpr Struct made =
      std::bit_cast<Struct>(std::array<std::uint8_t, sizeof(Struct)>{kBytes...});
  return made;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

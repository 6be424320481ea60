// wire-bf16, wire-fp16: fp32 elements as 16 bits on the wire, in order.
#pragma once

#include "kernels/codecs/plain.h"
#include "reference/codecs/formats/narrow.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Both formats store and load 16 bits.
template <class Element>
struct Narrow : private Plain<Bf16> {
  using Encoded = Pack8<Bf16>;
  using Plain<Bf16>::kClampsFp16Sums, Plain<Bf16>::kTileBytes;
  using Plain<Bf16>::load, Plain<Bf16>::store, Plain<Bf16>::wire_bytes;

  /// Elements take twice the registers of what travels.
  static constexpr Tuning kTuning = {.resident_blocks = kFastBlocks,
                                     .tuned = true,
                                     .batch = (kFastBatch + 1) / 2,
                                     .stores_directly = true,
                                     .pads_tiles = true};

  NarrowFormat format;

  ARLAB_HOST_DEVICE constexpr explicit Narrow(const NarrowFormat& of) : format(of) {}

  ARLAB_DEVICE Encoded encode(const Pack8<Element>& x, Position) const {
    const Float8 values = to_floats(x);
    return is_fp16() ? words_of(from_floats<Fp16>(values)) : from_floats<Bf16>(values);
  }
  ARLAB_DEVICE Pack8<Element> decode(const Encoded& e, Position) const {
    return from_floats<Element>(is_fp16() ? to_floats(__builtin_bit_cast(Pack8<Fp16>, e))
                                          : to_floats(e));
  }

 protected:
  ARLAB_DEVICE constexpr bool is_fp16() const { return format.wire == DType::fp16; }
  ARLAB_DEVICE static Encoded words_of(const Pack8<Fp16>& x) {
    return __builtin_bit_cast(Encoded, x);
  }
};

/// The same, rounded stochastically: always, or where the argument says so.
template <class Element, Rounding kRounding = Rounding::stochastic>
struct StochasticNarrow : Narrow<Element> {
  using typename Narrow<Element>::Encoded;
  using Narrow<Element>::Narrow;

  ARLAB_DEVICE Encoded encode(const Pack8<Element>& x, Position at,
                              const EncodeContext& context) const {
    if (kRounding == Rounding::argument && !this->format.stochastic) {
      return Narrow<Element>::encode(x, at);
    }
    const Float8 values = to_floats(x);
    const RandomBits random{context, at.first};
    return this->is_fp16() ? this->words_of(rounded<Fp16>(values, random))
                           : rounded<Bf16>(values, random);
  }

 private:
  template <class Wire>
  ARLAB_DEVICE static Pack8<Wire> rounded(const Float8& x, const RandomBits& random) {
    Pack8<Wire> result;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const std::uint32_t bits = narrow_stochastically<Wire>(x.value[i], random(i));
      result.word[i / 2] |= bits << (i % 2 * 16);
    }
    return result;
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

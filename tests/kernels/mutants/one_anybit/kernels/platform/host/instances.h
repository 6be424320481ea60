// Instead of kernels/platform/host/instances.h: int8-g128-sr, codebooks in groups of 64, int4-g32-stoch, int4-g1024 and int8-gtensor-static on fp16, wire-* on
// fp32, and nothing else.
#pragma once

#include "kernels/codecs/choice.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class F>
void with_instance(const CodecChoice& codec, DType, F&& f) {
  using Codes = CodebookInMemory<64, 0>;
  if (const auto* codebook = std::get_if<Codebook<64>>(&codec)) {
    return f(Scaled<Codes, Fp16>(Codes(*codebook)), Fp16());
  }
  if (const auto* format = std::get_if<NarrowFormat>(&codec)) {
    return f(StochasticNarrow<Fp32, Rounding::argument>(*format), Fp32());
  }
  const auto& p = std::get<AnyBitParameters>(codec);
  if (p.stochastic) return f(StochasticAnyBit<Fp16, AnyBitOf<AnyBitKind::plain, 4>>(p), Fp16());
  if (!p.has_spikes()) return f(AnyBit<Fp16, AnyBitOf<AnyBitKind::plain, 4>>(p), Fp16());
  f(AnyBit<Fp16, FixedAnyBit<8, 7, Spikes::exact>>(), Fp16());
}
template <class F>
void with_instance_of_message_scale(const CodecChoice& codec, DType, F&& f) {
  const auto& p = std::get<TwoPassAnyBitParameters>(codec);
  f(GivenAnyBit<Fp16, 0>(p.format, p.given_scale, p.given_zero), Fp16());
}
template <class F>
void with_two_pass_instance(const CodecChoice&, DType, F&&) {}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

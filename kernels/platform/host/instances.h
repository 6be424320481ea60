// Which kernels of emulated GPUs there are: all codecs with their parameters as arguments (codecs/choice.h), and here, of each
// family, codecs with constants, as kernels of GPUs have them. Each costs seconds of compiling.
#pragma once

#include "kernels/codecs/choice.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Calls f with the device codec, if it is here; whether it is.
template <class Parameters, class F>
bool with_constants(const Parameters&, DType, F&&) {
  return false;
}

template <template <class, class, auto...> class Codec, AnyBitKind kKind, unsigned kBits,
          class Element, class F>
bool with_width(const AnyBitParameters& p, Element element, F&& f) {
  const bool is = kind_of(p) == kKind && p.bits == kBits;
  if (is) f(Codec<Element, AnyBitOf<kKind, kBits>>(p), element);
  return is;
}
template <class F>
bool with_constants(const AnyBitParameters& p, DType dtype, F&& f) {
  using Fixed = FixedAnyBit<4, 5>;
  using Spiked = FixedAnyBit<2, 5, Spikes::exact>;
  if (dtype == DType::fp32) return false;
  const bool is_bf16 = dtype == DType::bf16;
  if (p.stochastic) {
    return is_bf16 && with_width<StochasticAnyBit, AnyBitKind::plain, 4>(p, Bf16(), f);
  }
  if (is_bf16 && Fixed::is(p)) return f(AnyBit<Bf16, Fixed>(), Bf16()), true;
  if (is_bf16) return with_width<AnyBit, AnyBitKind::hadamard, 4>(p, Bf16(), f);
  if (Spiked::is(p)) return f(AnyBit<Fp16, Spiked>(), Fp16()), true;
  return with_width<AnyBit, AnyBitKind::symmetric, 5>(p, Fp16(), f);
}

template <class F>
bool with_constants(const Fp8Blocks<128>& format, DType dtype, F&& f) {
  if (dtype != DType::bf16 || !format.stochastic) return false;
  return f(StochasticScaled<Fp8Blocks<128>, Bf16>(format), Bf16()), true;
}

template <class Fixed, class Element, class F>
bool with_fixed_mx(const Mx& format, Element element, F&& f) {
  const bool is = format.element().exponent_bits == Fixed::element().exponent_bits &&
                  format.element().mantissa_bits == Fixed::element().mantissa_bits;
  if (is) f(Scaled<MxOf<Fixed>, Element>(MxOf<Fixed>{{}, format.rule}), element);
  return is;
}
template <class F>
bool with_constants(const Mx& format, DType dtype, F&& f) {
  if (dtype == DType::fp16) return with_fixed_mx<FixedMinifloat<4, 3>>(format, Fp16(), f);
  return dtype == DType::bf16 && with_fixed_mx<FixedMinifloat<2, 1>>(format, Bf16(), f);
}

template <class F>
bool with_constants(const Codebook<64>& format, DType dtype, F&& f) {
  using Codes = CodebookInMemory<64, 4>;
  if (dtype != DType::bf16 || format.bits() != 4) return false;
  return f(Scaled<Codes, Bf16>(Codes(format)), Bf16()), true;
}

template <class F>
bool with_constants(const LogFmtParameters& p, DType dtype, F&& f) {
  if (dtype != DType::bf16 || p.bits != 4) return false;
  return f(LogFmtOf<Bf16, 4>(p), Bf16()), true;
}

template <class F>
bool with_constants(const TwoPassAnyBitParameters& p, DType dtype, F&& f) {
  if (dtype != DType::bf16 || p.format.bits != 8 || p.format.symmetric) return false;
  if (p.given) {
    return f(GivenAnyBit<Bf16, 8>(p.format, p.given_scale, p.given_zero), Bf16()), true;
  }
  return f(AnyBitOfMessage<Bf16, AnyBitKind::plain, 8>(p.format), Bf16()), true;
}

/// Calls `f` for a codec that needs no statistics.
template <class F>
void with_instance(const CodecChoice& codec, DType dtype, F&& f) {
  const bool is_here =
      std::visit([&](const auto& p) { return with_constants(p, dtype, f); }, codec);
  if (!is_here) with_codec(codec, dtype, f);
}

/// Calls `f` for a codec with a scale of the message, in kernels that measure it.
template <class F>
void with_instance_of_message_scale(const CodecChoice& codec, DType dtype, F&& f) {
  const auto* integers = std::get_if<TwoPassAnyBitParameters>(&codec);
  if (integers != nullptr && with_constants(*integers, dtype, f)) return;
  (void)with_message_scale(codec, dtype, f);
}

/// Calls `f` for a codec that needs statistics, in kernels that have them.
template <class F>
void with_two_pass_instance(const CodecChoice& codec, DType dtype, F&& f) {
  with_two_pass(codec, dtype, f);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

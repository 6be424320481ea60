// From a codec's name to its device code.
#pragma once

#include <concepts>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>

#include "kernels/codecs/anybit.h"
#include "kernels/codecs/codebooks.h"
#include "kernels/codecs/format_kernels.h"
#include "kernels/codecs/logfmt.h"
#include "kernels/codecs/message_scale.h"
#include "kernels/codecs/plain.h"
#include "kernels/codecs/quickreduce.h"
#include "kernels/codecs/scaled.h"
#include "kernels/codecs/two_pass.h"
#include "kernels/runtime/status.h"
#if defined(ARLAB_KERNELS_ON_DEMAND)
#include "kernels/compile/store.h"
#endif
#include "reference/codecs/formats/fp8_blocks.h"
#include "reference/codecs/formats/mx.h"
#include "reference/codecs/formats/mxint8.h"
#include "reference/codecs/header_codec.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct PlainChoice {};
enum class QuickReduceChoice { fp8, q8, q6, q4, q3, fp4 };

/// Parameters of a codec that there is device code for.
using CodecParameters =
    std::variant<PlainChoice, QuickReduceChoice, AnyBitParameters, Mx, MxInt8, Fp8Blocks<64>,
                 Fp8Blocks<128>, Fp8Blocks<256>, FastNvFp4Blocks, Codebook<32>, Codebook<64>,
                 Codebook<128>, LogFmtParameters, CodecOfHeader, FormatChoice,
                 TwoPassAnyBitParameters, TwoPassHadamardParameters, TwoPassLogFmtParameters,
                 NvFp4Blocks>;
#if defined(ARLAB_KERNELS_ON_DEMAND)
struct CodecChoice : CodecParameters {
  using CodecParameters::variant;
  /// Its kernels that calls have found so far, of all copies.
  std::shared_ptr<LoadedKernels> loaded = std::make_shared<LoadedKernels>();
};
#else
using CodecChoice = CodecParameters;
#endif

/// Codecs of two_pass.h, whose tiles can be encoded only when others have been measured: with_two_pass() has them, with_codec()
/// the others.
template <class Parameters>
concept NeedsStatistics =
    std::same_as<Parameters, TwoPassAnyBitParameters> ||
    std::same_as<Parameters, TwoPassHadamardParameters> ||
    std::same_as<Parameters, TwoPassLogFmtParameters> || std::same_as<Parameters, NvFp4Blocks>;
inline bool needs_statistics(const CodecChoice& choice) {
  return std::visit([]<class P>(const P&) { return NeedsStatistics<P>; }, choice);
}

/// Where a codec has these, they are all that there is: programs, and no tuned collectives.
inline const FormatKernels* format_kernels(const CodecChoice& choice) {
  const auto* format = std::get_if<FormatChoice>(&choice);
  return format != nullptr ? format->get() : nullptr;
}

/// The device code of a codec of the reference.
Result<CodecChoice> choose_codec(const std::string& name);

template <class F>
void with_choice(PlainChoice, DType dtype, F&& f) {
  if (dtype == DType::fp16) f(Plain<Fp16>(), Fp16());
  if (dtype == DType::bf16) f(Plain<Bf16>(), Bf16());
  if (dtype == DType::fp32) f(Plain<Fp32>(), Fp32());
}

template <template <class> class Format, class F>
void with_quickreduce(DType dtype, F&& f) {
  if (dtype == DType::fp16) f(QuickReduce<Format, Fp16>(), Fp16());
  if (dtype == DType::bf16) f(QuickReduce<Format, Bf16>(), Bf16());
}
template <class F>
void with_choice(QuickReduceChoice choice, DType dtype, F&& f) {
  switch (choice) {
    case QuickReduceChoice::fp8:
      return with_quickreduce<QFp8>(dtype, f);
    case QuickReduceChoice::q8:
      return with_quickreduce<Q8>(dtype, f);
    case QuickReduceChoice::q6:
      return with_quickreduce<Q6>(dtype, f);
    case QuickReduceChoice::q4:
      return with_quickreduce<Q4>(dtype, f);
    case QuickReduceChoice::q3:
      return with_quickreduce<Q3>(dtype, f);
    case QuickReduceChoice::fp4:
      return with_quickreduce<QFp4>(dtype, f);
  }
}

/// Any-bit formats whose kernels know everything about them, as on GPUs with kernels on demand. Each costs seconds of compiling per
/// collective and dtype; of other formats, kernels know the kind.
using FixedAnyBits = std::tuple<FixedAnyBit<8, 7>, FixedAnyBit<5, 7>, FixedAnyBit<4, 5>,
                                FixedAnyBit<2, 5, Spikes::exact>>;

template <class Element, class Format>
using AnyBitOfAnyRounding = StochasticAnyBit<Element, Format, Rounding::argument>;

/// Calls f with the format's kernel if it has parameters like these.
template <class Format, class F>
bool with_fixed_anybit(const AnyBitParameters& parameters, DType dtype, F&& f) {
  if (!Format::is(parameters)) return false;
  if (dtype == DType::fp16) f(AnyBit<Fp16, Format>(), Fp16());
  if (dtype == DType::bf16) f(AnyBit<Bf16, Format>(), Bf16());
  return true;
}
template <AnyBitKind kKind, class F>
void with_anybit_of(const AnyBitParameters& parameters, DType dtype, F&& f) {
  using Format = AnyBitOf<kKind>;
  if (dtype == DType::fp16) f(AnyBitOfAnyRounding<Fp16, Format>(parameters), Fp16());
  if (dtype == DType::bf16) f(AnyBitOfAnyRounding<Bf16, Format>(parameters), Bf16());
}
/// One that rounds stochastically, whose kernels know its kind and its width, as on GPUs with kernels on demand.
template <class F>
bool with_fixed_stochastic_anybit(const AnyBitParameters& parameters, DType dtype, F&& f) {
  using Format = AnyBitOf<AnyBitKind::plain, 4>;
  if (!parameters.stochastic || parameters.bits != 4 || kind_of(parameters) != AnyBitKind::plain)
    return false;
  if (dtype == DType::fp16) f(StochasticAnyBit<Fp16, Format>(parameters), Fp16());
  if (dtype == DType::bf16) f(StochasticAnyBit<Bf16, Format>(parameters), Bf16());
  return true;
}
template <class F>
void with_choice(const AnyBitParameters& parameters, DType dtype, F&& f) {
  if (dtype == DType::fp32) {
    return f(AnyBitOfAnyRounding<Fp32, AnyBitParameters>(parameters), Fp32());
  }
  if (with_fixed_stochastic_anybit(parameters, dtype, f)) return;
  const bool is_fixed = [&]<class... Formats>(std::type_identity<std::tuple<Formats...>>) {
    return (with_fixed_anybit<Formats>(parameters, dtype, f) || ...);
  }(std::type_identity<FixedAnyBits>());
  if (is_fixed) return;
  switch (kind_of(parameters)) {
    case AnyBitKind::plain:
      return with_anybit_of<AnyBitKind::plain>(parameters, dtype, f);
    case AnyBitKind::symmetric:
      return with_anybit_of<AnyBitKind::symmetric>(parameters, dtype, f);
    case AnyBitKind::spiked:
      return with_anybit_of<AnyBitKind::spiked>(parameters, dtype, f);
    case AnyBitKind::hadamard:
      return with_anybit_of<AnyBitKind::hadamard>(parameters, dtype, f);
  }
}
/// Whole formats, whose parameters are constants.
template <ScaledFormat Format, class F>
void with_choice(const Format& format, DType dtype, F&& f) {
  if (dtype == DType::fp16) f(Scaled<Format, Fp16>(format), Fp16());
  if (dtype == DType::bf16) f(Scaled<Format, Bf16>(format), Bf16());
  if (dtype == DType::fp32) f(Scaled<Format, Fp32>(format), Fp32());
}

template <std::size_t kGroup, class F>
void with_choice(const Fp8Blocks<kGroup>& format, DType dtype, F&& f) {
  const auto with = [&]<class Element>(Element element) {
    using Codec =
        StochasticScaled<Fp8Blocks<kGroup>, Element, kHasPairs<Element>, Rounding::argument>;
    f(Codec(format), element);
  };
  if (dtype == DType::fp16) with(Fp16());
  if (dtype == DType::bf16) with(Bf16());
  if (dtype == DType::fp32) with(Fp32());
}

template <class Element>
using ScaledMx = Scaled<Mx, Element>;

/// Microscaling of 16-bit elements: a kernel per element format, but on AMD, where nothing is measured.
using FixedMinifloats = std::tuple<FixedMinifloat<4, 3>, FixedMinifloat<5, 2>, FixedMinifloat<2, 3>,
                                   FixedMinifloat<3, 2>, FixedMinifloat<2, 1>>;
template <class Fixed, class F>
void with_fixed_mx(const Mx& format, DType dtype, F&& f) {
  if (format.element().exponent_bits != Fixed::element().exponent_bits ||
      format.element().mantissa_bits != Fixed::element().mantissa_bits)
    return;
  const MxOf<Fixed> fixed = {{}, format.rule};
  if (dtype == DType::fp16) f(Scaled<MxOf<Fixed>, Fp16>(fixed), Fp16());
  if (dtype == DType::bf16) f(Scaled<MxOf<Fixed>, Bf16>(fixed), Bf16());
}
template <class F>
void with_choice(const Mx& format, DType dtype, F&& f) {
  if constexpr (kFixesFormats) {
    if (dtype == DType::fp32) return f(ScaledMx<Fp32>(format), Fp32());
    [&]<class... Fixed>(std::type_identity<std::tuple<Fixed...>>) {
      (with_fixed_mx<Fixed>(format, dtype, f), ...);
    }(std::type_identity<FixedMinifloats>());
  } else {
    with_parameters<ScaledMx>(format, dtype, f);
  }
}
/// Codebooks: of 16 levels in groups of 64, kernels know the width, as on GPUs with kernels on demand.
template <std::size_t kGroup, class F>
void with_choice(const Codebook<kGroup>& format, DType dtype, F&& f) {
  if (kGroup == 64 && format.bits() == 4) {
    return with_choice(CodebookInMemory<64, 4>(Codebook<64>{format.levels}), dtype, f);
  }
  with_choice(CodebookInMemory<kGroup, 0>(format), dtype, f);
}
template <class F>
void with_choice(const LogFmtParameters& parameters, DType dtype, F&& f) {
  with_parameters<LogFmt>(parameters, dtype, f);
}

/// with_codec() leaves these to kernels of their own.
template <class F>
void with_choice(const FormatChoice&, DType, F&&) {}
/// And these to the compiler of their kernels, which alone knows them as types.
template <class F>
void with_choice(const CodecOfHeader&, DType, F&&) {}

/// Calls f with the device codec and with the dtype's arithmetic, to launch a kernel. The codec
/// must take the dtype, and not have kernels of its own (FormatKernels, or those of two_pass.h).
template <class F>
hipError_t with_codec(const CodecChoice& choice, DType dtype, F&& f) {
  if (format_kernels(choice) != nullptr) return hipErrorInvalidValue;
  std::visit(
      [&]<class Parameters>(const Parameters& chosen) {
        if constexpr (!NeedsStatistics<Parameters>) with_choice(chosen, dtype, f);
      },
      choice);
  return hipGetLastError();
}

/// Calls f with the device codec of one that needs statistics, and with the dtype's arithmetic; of others, not.
template <class F>
void with_two_pass(const CodecChoice& choice, DType dtype, F&& f) {
  if (const auto* p = std::get_if<TwoPassAnyBitParameters>(&choice)) {
    with_parameters<TwoPassAnyBit>(*p, dtype, f);
  } else if (const auto* p = std::get_if<TwoPassHadamardParameters>(&choice)) {
    with_parameters<TwoPassHadamard>(*p, dtype, f);
  } else if (const auto* p = std::get_if<TwoPassLogFmtParameters>(&choice)) {
    with_parameters<TwoPassLogFmt>(*p, dtype, f);
  } else if (const auto* p = std::get_if<NvFp4Blocks>(&choice)) {
    with_parameters<NvFp4>(*p, dtype, f);
  }
}

/// With the device code of message_scale.h, if there is some for the codec and the dtype; whether there is.
template <class F>
bool with_message_scale(const CodecChoice& choice, DType dtype, F&& f) {
  const auto of_dtype = [&](auto of) {
    if (dtype == DType::fp16) f(of(Fp16()), Fp16());
    if (dtype == DType::bf16) f(of(Bf16()), Bf16());
    return dtype != DType::fp32;
  };
  if (const auto* blocks = std::get_if<NvFp4Blocks>(&choice)) {
    return of_dtype([&]<class Element>(Element) { return NvFp4OfMessage<Element>(*blocks); });
  }
  const auto* integers = std::get_if<TwoPassAnyBitParameters>(&choice);
  if (integers == nullptr || integers->block != kWholeMessage || integers->given) {
    return false;
  }
  const auto of_kind = [&]<AnyBitKind kKind>(std::integral_constant<AnyBitKind, kKind>) {
    return of_dtype([&]<class Element>(Element) {
      return AnyBitOfMessage<Element, kKind, 0>(integers->format);
    });
  };
  if (integers->format.symmetric)
    return of_kind(std::integral_constant<AnyBitKind, AnyBitKind::symmetric>());
  return of_kind(std::integral_constant<AnyBitKind, AnyBitKind::plain>());
}

/// With the device code of a codec that has one, or with that of its scale of the message.
template <class F>
hipError_t with_codec_or_message_scale(const CodecChoice& choice, DType dtype, F&& f) {
  if (!needs_statistics(choice)) return with_codec(choice, dtype, f);
  (void)with_message_scale(choice, dtype, f);
  return hipGetLastError();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

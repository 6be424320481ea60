// From a codec's name to its device code.
#pragma once

#include <concepts>
#include <string>
#include <type_traits>
#include <variant>

#include "kernels/codecs/anybit.h"
#include "kernels/codecs/codebooks.h"
#include "kernels/codecs/format_kernels.h"
#include "kernels/codecs/given_scale.h"
#include "kernels/codecs/logfmt.h"
#include "kernels/codecs/message_scale.h"
#include "kernels/codecs/narrow.h"
#include "kernels/codecs/plain.h"
#include "kernels/codecs/quickreduce.h"
#include "kernels/codecs/scaled.h"
#include "kernels/codecs/two_pass.h"
#include "kernels/runtime/status.h"
#if defined(ARLAB_KERNELS_ON_DEMAND)
#include "kernels/compile/store.h"
#endif
#include "reference/codecs/formats/formats.h"
#include "reference/codecs/header_codec.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct PlainChoice {};
enum class QuickReduceChoice { fp8, q8, q6, q4, q3, fp4 };

template <class Formats>
struct ParametersWith;
template <class... Formats>
struct ParametersWith<FormatList<Formats...>> {
  using type =
      std::variant<PlainChoice, NarrowFormat, QuickReduceChoice, AnyBitParameters, FastNvFp4Blocks,
                   LogFmtParameters, CodecOfHeader, FormatChoice, TwoPassAnyBitParameters,
                   TwoPassHadamardParameters, TwoPassLogFmtParameters, NvFp4Blocks, Formats...>;
};
/// Parameters of a codec that there is device code for.
using CodecParameters = ParametersWith<TunedFormats>::type;
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
/// Whether the scale is given: kernels of an algorithm then encode its tiles without statistics, and programs measure what is not finite.
inline bool has_given_scale(const CodecChoice& choice) {
  const auto* integers = std::get_if<TwoPassAnyBitParameters>(&choice);
  return integers != nullptr && integers->given;
}

/// Where a codec has these, they are all that there is: programs, and no tuned collectives.
inline const FormatKernels* format_kernels(const CodecChoice& choice) {
  const auto* format = std::get_if<FormatChoice>(&choice);
  return format != nullptr ? format->get() : nullptr;
}

/// The device code of a codec of the reference.
Result<CodecChoice> choose_codec(const CodecPtr& codec);
Result<CodecChoice> choose_codec(const std::string& name);

// Device codecs whose parameters are arguments: what the host reads off types, and what kernels of emulated GPUs have but for
// those of platform/host/instances.h. Of real GPUs, kernels have constants (compile/codec_text.h).

template <class F>
void with_choice(PlainChoice, DType dtype, F&& f) {
  if (dtype == DType::fp16) f(Plain<Fp16>(), Fp16());
  if (dtype == DType::bf16) f(Plain<Bf16>(), Bf16());
  if (dtype == DType::fp32) f(Plain<Fp32>(), Fp32());
}

template <class F>
void with_choice(const NarrowFormat& format, DType dtype, F&& f) {
  if (dtype == DType::fp32) f(StochasticNarrow<Fp32, Rounding::argument>(format), Fp32());
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

template <class Element, class Format>
using AnyBitOfAnyRounding = StochasticAnyBit<Element, Format, Rounding::argument>;

template <AnyBitKind kKind, class F>
void with_anybit_of(const AnyBitParameters& parameters, DType dtype, F&& f) {
  using Format = AnyBitOf<kKind>;
  if (dtype == DType::fp16) f(AnyBitOfAnyRounding<Fp16, Format>(parameters), Fp16());
  if (dtype == DType::bf16) f(AnyBitOfAnyRounding<Bf16, Format>(parameters), Bf16());
}
template <class F>
void with_choice(const AnyBitParameters& parameters, DType dtype, F&& f) {
  if (dtype == DType::fp32) {
    return f(AnyBitOfAnyRounding<Fp32, AnyBitParameters>(parameters), Fp32());
  }
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

template <std::size_t kGroup, class F>
void with_choice(const Codebook<kGroup>& format, DType dtype, F&& f) {
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

/// Calls f with the device codec and with the dtype's arithmetic. The codec must take the dtype, and not have kernels of its own
/// (FormatKernels, or those of two_pass.h).
template <class F>
void with_codec(const CodecChoice& choice, DType dtype, F&& f) {
  std::visit(
      [&]<class Parameters>(const Parameters& chosen) {
        if constexpr (!NeedsStatistics<Parameters>) with_choice(chosen, dtype, f);
      },
      choice);
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

/// With the device code of message_scale.h or of given_scale.h, if there is some for the codec and the dtype; whether there is.
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
  if (has_given_scale(choice)) {
    return of_dtype([&]<class Element>(Element) {
      return GivenAnyBit<Element, 0>(integers->format, integers->given_scale, integers->given_zero);
    });
  }
  if (integers == nullptr || integers->block != kWholeMessage) return false;
  const auto of_kind = [&]<AnyBitKind kKind>(std::integral_constant<AnyBitKind, kKind>) {
    return of_dtype([&]<class Element>(Element) {
      return AnyBitOfMessage<Element, kKind, 0>(integers->format);
    });
  };
  if (integers->format.symmetric)
    return of_kind(std::integral_constant<AnyBitKind, AnyBitKind::symmetric>());
  return of_kind(std::integral_constant<AnyBitKind, AnyBitKind::plain>());
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

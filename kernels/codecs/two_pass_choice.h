// From a codec's name to its device code, for the codecs of two_pass.h.
#pragma once

#include <string>
#include <variant>

#include "kernels/codecs/message_scale.h"
#include "kernels/codecs/two_pass.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

using TwoPassChoice = std::variant<TwoPassAnyBitParameters, TwoPassHadamardParameters,
                                   TwoPassLogFmtParameters, NvFp4Blocks>;

/// The device code of a codec of the reference that choose_codec() does not have.
Result<TwoPassChoice> choose_two_pass(const std::string& name);

template <class F>
void with_two_pass_choice(const TwoPassAnyBitParameters& parameters, DType dtype, F&& f) {
  with_parameters<TwoPassAnyBit>(parameters, dtype, f);
}
template <class F>
void with_two_pass_choice(const TwoPassHadamardParameters& parameters, DType dtype, F&& f) {
  with_parameters<TwoPassHadamard>(parameters, dtype, f);
}
template <class F>
void with_two_pass_choice(const TwoPassLogFmtParameters& parameters, DType dtype, F&& f) {
  with_parameters<TwoPassLogFmt>(parameters, dtype, f);
}
template <class F>
void with_two_pass_choice(const NvFp4Blocks& parameters, DType dtype, F&& f) {
  with_parameters<NvFp4>(parameters, dtype, f);
}

/// Calls f with the device codec and with the dtype's arithmetic.
template <class F>
void with_two_pass(const TwoPassChoice& choice, DType dtype, F&& f) {
  std::visit([&](const auto& parameters) { with_two_pass_choice(parameters, dtype, f); }, choice);
}

/// With the device code of message_scale.h, if there is some for the codec and the dtype; whether there is.
template <class F>
bool with_message_scale(const TwoPassChoice& choice, DType dtype, F&& f) {
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
    if (kFixesWidths && integers->format.bits == 8) {
      return of_dtype([&]<class Element>(Element) {
        return AnyBitOfMessage<Element, kKind, kFixesWidths ? 8 : 0>(integers->format);
      });
    }
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

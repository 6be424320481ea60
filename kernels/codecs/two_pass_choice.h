// From a codec's name to its device code, for the codecs of two_pass.h.
#pragma once

#include <string>
#include <variant>

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

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// From a codec's name to its device code, for the codecs of measured.h.
#pragma once

#include <string>
#include <variant>

#include "kernels/codecs/measured.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

using MeasuredChoice = std::variant<MeasuredAnyBitParameters, MeasuredHadamardParameters,
                                    MeasuredLogFmtParameters, NvFp4Blocks>;

/// The device code of a codec of the reference that choose_codec() does not have.
Result<MeasuredChoice> choose_measured(const std::string& name);

template <class F>
void with_measured_choice(const MeasuredAnyBitParameters& parameters, DType dtype, F&& f) {
  with_parameters<MeasuredAnyBit>(parameters, dtype, f);
}
template <class F>
void with_measured_choice(const MeasuredHadamardParameters& parameters, DType dtype, F&& f) {
  with_parameters<MeasuredHadamard>(parameters, dtype, f);
}
template <class F>
void with_measured_choice(const MeasuredLogFmtParameters& parameters, DType dtype, F&& f) {
  with_parameters<MeasuredLogFmt>(parameters, dtype, f);
}
template <class F>
void with_measured_choice(const NvFp4Blocks& parameters, DType dtype, F&& f) {
  with_parameters<NvFp4>(parameters, dtype, f);
}

/// Calls f with the device codec and with the dtype's arithmetic.
template <class F>
void with_measured(const MeasuredChoice& choice, DType dtype, F&& f) {
  std::visit([&](const auto& parameters) { with_measured_choice(parameters, dtype, f); }, choice);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

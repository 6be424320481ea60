// From a codec's name and a rule (reference/codecs/kernel_rules.h) to device code.
#pragma once

#include <functional>
#include <string>
#include <variant>

#include "kernels/codecs/two_pass_choice.h"
#include "kernels/collectives/launch.h"
#include "kernels/runtime/status.h"
#include "reference/codecs/kernel_rules.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The device code of a codec, whether or not it measures first.
using AnyChoice = std::variant<CodecChoice, TwoPassChoice>;
Result<AnyChoice> choose(const std::string& codec);

/// What kernels know of a codec, read off its device code.
struct CodecTraits : CodecInKernels {
  Tuning tuning = {};
};
CodecTraits traits_of(const CodecChoice& codec, DType dtype);
/// Of those with a scale of the message; others of the kind have no kernels of an algorithm.
CodecTraits traits_of(const TwoPassChoice& codec, DType dtype);

/// Starts the rule's kernel.
using Launch = std::function<hipError_t(const Call&, DType, hipStream_t)>;
Launch launch_of(const KernelRule& rule, const AnyChoice& codec);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

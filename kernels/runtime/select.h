// From a codec's name and a rule (reference/device_facts/kernel_rules.h) to device code.
#pragma once

#include "kernels/collectives/launch.h"
#include "kernels/runtime/status.h"
#include "reference/device_facts/kernel_rules.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Properties of a codec in kernels, read off its device code.
struct CodecTraits : CodecInKernels {
  Tuning tuning = {};
};
CodecTraits traits_of(const CodecChoice& codec, DType dtype);

/// The form of the rule's kernel.
const KernelForm& form_of(const KernelRule& rule);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// A codec that there is device code for, as a kernel's translation unit spells it: everything that is known of it is a constant.
#pragma once

#include "kernels/codecs/choice.h"
#include "kernels/compile/unit.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Text of a codec that needs no statistics, and of one that does in the kernels of two_pass.h.
CodecText text_of(const CodecChoice& codec, DType dtype);

/// Text of a codec with a scale of the message, in kernels that measure it (message_scale.h).
CodecText text_of_message_scale(const CodecChoice& codec);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

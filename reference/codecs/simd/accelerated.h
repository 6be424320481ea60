// Codecs by vector instructions, with the bits of the scalar ones.
#pragma once

#include <string>

#include "reference/codecs/codec.h"

namespace arlab {

/// The codec with the same info() that encodes and decodes with the widest vectors of this
/// processor, bit for bit as the given one; the given codec itself where there is none. Only
/// codecs that find_codec() returned are replaced: another class of the same name is another codec.
///
/// Rare cases (blocks that are not finite, say) are left to the scalar codec, so the result keeps a pointer to it.
CodecPtr accelerated(CodecPtr scalar);

/// Highway's name of the instructions that a codec of accelerated() runs on this processor, "AVX2"
/// or "NEON"; empty where it runs the scalar codec. It is the dispatched code that says so, because a
/// processor may have vectors that the codecs do not use.
std::string vector_target(const Codec& codec);

}  // namespace arlab

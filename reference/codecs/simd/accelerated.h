// Codecs by vector instructions, with the bits of the scalar ones.
#pragma once

#include "reference/codecs/codec.h"

namespace arlab {

/// The codec with the same info() that encodes and decodes with the widest vectors of this
/// processor, bit for bit as the given one; the given codec itself where there is none. Only
/// codecs that find_codec() returned are replaced: another class of the same name is another codec.
///
/// What is rare enough (blocks that are not finite, say) is left to the scalar codec, so the result
/// keeps a pointer to it.
CodecPtr accelerated(CodecPtr scalar);

}  // namespace arlab

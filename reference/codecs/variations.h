// The codecs of this repository step by step, with one step that is another: statistics of other elements, a scale of another range
// or dtype, a quotient that is rounded elsewhere. A row of a table is a variation; mistakes.h tries all of them.
#pragma once

#include <vector>

#include "reference/codecs/mistakes.h"

namespace arlab {

/// The variations of a codec: of int*, mx*, fp8-*, nvfp4*, codebooks, qr-* and logfmt*; none of others, nor of stochastic ones. A
/// name says what is different. Their wires are none that the codec could read.
std::vector<MistakenCodec> variations(const CodecPtr& codec);

/// How the wire's bytes would lie if it had this payload's codes and scales in another order, each with a name: planes or arrays
/// exchanged, other bits first, a block's scale beside its codes. Nothing for codecs without planes.
struct WireLayout {
  std::string name;
  std::vector<std::byte> wire;
};
std::vector<WireLayout> other_layouts(const CodecPtr& codec, DType dtype, std::size_t elements,
                                      std::span<const std::byte> wire);

/// The wire whose 16-bit scales, zeros and the like are those of this one, read as numbers of another dtype. Empty for codecs whose
/// scales are no 16-bit numbers, or have this dtype.
std::vector<std::byte> with_scales_of(const CodecPtr& codec, DType dtype, std::size_t elements,
                                      std::span<const std::byte> wire, DType of);

}  // namespace arlab

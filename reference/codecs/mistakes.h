// Codecs with one of the usual mistakes in them: a user's codec is compared with each, so that a mistake can be called by its
// name. They are made of any codec, from its wire alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/codecs/codec.h"

namespace arlab {

/// The bits of a wire by what they say, found by turning each over and decoding: a bit that changes one element belongs to its
/// code, one that changes several to what they share.
struct WireMap {
  struct Shared {
    std::size_t first = 0;  ///< among the elements that it changes
    std::size_t last = 0;
    std::size_t bit = 0;
    bool shifts = false;  ///< all by the same: a zero; else a scale
  };
  std::vector<std::vector<std::size_t>> codes = {};  ///< bits of every element's code
  std::vector<Shared> shared = {};                   ///< in the order of the wire
};
WireMap map_wire(const Codec& codec, DType dtype, std::size_t elements);

/// "byte 70 of the wire: the scale of elements 32 to 63", or of the code of an element; what a byte says in this wire.
std::string place_in_wire(const Codec& codec, DType dtype, std::size_t elements,
                          std::span<const std::byte> wire, std::size_t byte);

struct MistakenCodec {
  std::string mistake;  ///< "codes are cut off toward zero"
  CodecPtr codec;
};
/// Describes a codec with this mistake: it is named after both, and is not to be cut, since a block may depend on others of its message.
CodecInfo info_with(const Codec& codec, const std::string& mistake);
/// A codec with each mistake that can be made in it; none for codecs with a context, a state or wires of variable length. Their
/// wires are none that the codec could read: they carry pieces of a message by themselves.
std::vector<MistakenCodec> mistaken(const CodecPtr& codec);

/// Codecs like this one: other sizes of groups, widths, symmetric or not, with integer scales or not.
std::vector<CodecPtr> neighbours(const CodecPtr& codec);

/// Describes errors of a wire that a user's codec has made of a payload: where it differs first, in values; the mistake that it
/// would come from, or how the differences lie; another codec whose wire it is. In words, empty if nothing differs.
std::string explain_wire(const CodecPtr& codec, DType dtype, std::span<const std::byte> payload,
                         std::span<const std::byte> wire);
/// The same for values that a user's codec decodes from a wire.
std::string explain_values(const CodecPtr& codec, DType dtype, std::span<const std::byte> wire,
                           std::span<const std::byte> values);

}  // namespace arlab

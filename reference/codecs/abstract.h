// Codecs that are not there, for questions about them: "bits=4.5,encode_ops=9,decode_ops=4" has a
// size and a cost, and no values. They can be simulated; encode and decode refuse.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reference/codecs/codec.h"

namespace arlab {

inline constexpr std::string_view kAbstractCodecPattern =
    "bits=<wire bits per element>[,encode_ops=<n>][,decode_ops=<n>][,store_efficiency=<share>]"
    "[,packed=<0 or 1>][,measures=<0 or 1>]";

inline bool is_abstract(std::string_view name) { return name.starts_with("bits="); }

/// Null when the name does not begin with "bits=". Throws InvalidInput that says which key is wrong
/// and what is allowed.
CodecPtr find_abstract_codec(std::string_view name);

/// The codec with wires of so many bits per element, as they were measured to be sent; to simulate it. Throws InvalidInput for
/// more than its wires may have.
CodecPtr with_measured_wires(const CodecPtr& codec, double bits_per_element);

/// Abstract codecs have commas in their names, and so have codecs by place (split_codecs()): this puts their parts together
/// again in a list that was cut at its commas.
void join_codecs(std::vector<std::string>& names);

}  // namespace arlab

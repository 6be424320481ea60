// Does one codec write and read exactly the bits of another?
#pragma once

#include <optional>
#include <string>

#include "reference/codecs/codec.h"

namespace arlab::testing {

/// The first difference between a candidate and the reference, or nothing: sizes, wire bytes,
/// counts, and decoded and accumulated bits of the reference's wires and of random bytes. Edge
/// cases and random payloads of many lengths; every call draws others, and the text names the one
/// that told.
std::optional<std::string> nonconforming(const Codec& candidate, const Codec& reference,
                                         DType dtype);

}  // namespace arlab::testing

// Properties that hold for every codec, checked on a given one: for tests, and for authors of codecs (`arlab check-codec`).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "reference/codecs/codec.h"

namespace arlab {

struct CodecProperty {
  std::string_view name;     ///< for example `tails`
  std::string_view summary;  ///< the property in one line
};

std::span<const CodecProperty> codec_properties();

enum class Verdict {
  holds,
  violated,
  not_promised,  ///< CodecInfo says that it need not hold
};
std::string_view name_of(Verdict verdict);

struct PropertyResult {
  Verdict verdict = Verdict::holds;
  std::uint64_t cases = 0;  ///< checked ones; 0 where nothing is promised
  /// Where it does not hold, and what is there instead; or why it is not promised.
  std::string detail = {};
};

/// Checks one property in one of the codec's dtypes; the same cases each time. Throws InvalidInput
/// for a property that there is not.
PropertyResult check_property(std::string_view property, const Codec& codec, DType dtype);

}  // namespace arlab

#include "reference/codecs/simd/accelerated.h"

#include <typeinfo>

#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated_codec.h"

namespace arlab {

// Each family in its own file: the accelerated codec of that name, or null when the name is not of
// this family.
CodecPtr accelerated_quickreduce(const CodecPtr& scalar);
CodecPtr accelerated_anybit(const CodecPtr& scalar);
CodecPtr accelerated_microscaling(const CodecPtr& scalar);
CodecPtr accelerated_logfmt(const CodecPtr& scalar);

namespace {

/// Whether the registry's codec of that name is the same class. A codec under test may have the
/// name of another and must run as it is.
bool is_from_registry(const Codec& codec) {
  try {
    const CodecPtr known = find_codec(codec.name());
    const Codec& found = *known;
    return typeid(found) == typeid(codec);
  } catch (const InvalidInput&) {
    return false;
  }
}

}  // namespace

CodecPtr accelerated(CodecPtr scalar) {
  // Vectors know of no context.
  if (scalar->info().needs_context()) return scalar;
  for (const auto family : {accelerated_quickreduce, accelerated_anybit, accelerated_microscaling,
                            accelerated_logfmt}) {
    const CodecPtr result = family(scalar);
    if (result) return is_from_registry(*scalar) ? result : scalar;
  }
  return scalar;
}

std::string vector_target(const Codec& codec) {
  const auto* const vectors = dynamic_cast<const VectorCodec*>(&codec);
  return vectors != nullptr ? vectors->target() : "";
}

}  // namespace arlab

#include "reference/codecs/simd/accelerated.h"

#include <typeinfo>

#include "reference/codecs/registry.h"

// The families that have vector code: one line each. FAMILY is a function in the file of that
// family, `CodecPtr FAMILY(const CodecPtr& scalar)`, in namespace arlab: the accelerated codec of
// that name, or null when the name is not of this family.
#define ARLAB_ACCELERATED_FAMILIES(X) \
  X(accelerated_quickreduce)          \
  X(accelerated_anybit)               \
  X(accelerated_microscaling)         \
  X(accelerated_logfmt)

namespace arlab {

#define ARLAB_DECLARE(family) CodecPtr family(const CodecPtr& scalar);
ARLAB_ACCELERATED_FAMILIES(ARLAB_DECLARE)
#undef ARLAB_DECLARE

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
  CodecPtr result;
#define ARLAB_TRY(family) \
  if (!result) result = family(scalar);
  ARLAB_ACCELERATED_FAMILIES(ARLAB_TRY)
#undef ARLAB_TRY
  return result && is_from_registry(*scalar) ? result : scalar;
}

}  // namespace arlab

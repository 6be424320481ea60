// Facts of a call that all ranks must have alike. Its hash travels with the first exchange of
// every call; ranks whose hashes differ tell each other the rest.
#pragma once

#include <cstdint>

#include "kernels/platform/platform.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

struct CallDescription {
  static constexpr unsigned kWords = 10;

  char algorithm[24];  ///< ends with 0; as much of the name as there is room for
  char codec[28];      ///< likewise
  std::uint32_t dtype;
  std::uint64_t elements;
  std::uint64_t rest;       ///< a hash of names, definitions, options, a schedule of one's own
  std::uint32_t hash;       ///< hash_of() everything above
  std::uint32_t announced;  ///< 1: where a rank writes it, it is there

  ARLAB_HOST_DEVICE std::uint64_t word(unsigned number) const {
    return reinterpret_cast<const std::uint64_t*>(this)[number];
  }
};
static_assert(sizeof(CallDescription) == CallDescription::kWords * sizeof(std::uint64_t));

/// The hash of a description, of all of it but its last word.
inline std::uint32_t hash_of(const CallDescription& call) {
  std::uint64_t hash = 0;
  for (unsigned i = 0; i + 1 < CallDescription::kWords; ++i) {
    hash = (hash ^ call.word(i)) * 0x9E3779B97F4A7C15u + 1;
    hash ^= hash >> 32;
  }
  return static_cast<std::uint32_t>(hash);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

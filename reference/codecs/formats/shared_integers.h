// shared-int<w>-g<G>, once: the limits of its codes, and their scale. SPEC.md, "Shared scales (shared-int)".
// Plain functions, for the reference (shared_scale.cc) and for kernels (kernels/codecs/sums_of_codes.h).
//
//   shared-int8-g32   8.5 bits per element, 34 bytes per block
//   shared-int4-g32   4.5 bits per element, 18 bytes
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace arlab {

struct SharedIntegers {
  unsigned bits = 0;
  std::size_t group = 0;  ///< 0: the whole message

  constexpr std::int32_t largest_code() const { return (1 << (bits - 1)) - 1; }
  /// The largest code of a rank's own element: below it, sums of so many ranks have room.
  constexpr std::int32_t limit(std::uint32_t ranks) const {
    const auto most = static_cast<std::uint32_t>(largest_code());
    return static_cast<std::int32_t>(most / (ranks < most ? ranks : most));
  }
  /// The low eight bits of all codes are planes, then those above.
  constexpr unsigned low_bits() const { return bits < 8 ? bits : 8; }
  constexpr unsigned high_bits() const { return bits - low_bits(); }
  /// Bytes of a whole block: its codes, then its scale.
  constexpr std::size_t block_bytes() const { return bits * group / 8 + sizeof(std::uint16_t); }

  /// The scale of a block whose largest magnitude is `largest`, in bf16, rounded up, so that no code is above the limit; a NaN
  /// where the magnitude is not finite.
  static constexpr std::uint16_t scale_bits(float largest, std::int32_t limit) {
    constexpr std::uint32_t kInfinity = 0x7F800000;
    if ((std::bit_cast<std::uint32_t>(largest) & kInfinity) == kInfinity) return 0x7FC0;
    const auto bits = std::bit_cast<std::uint32_t>(largest / static_cast<float>(limit));
    return static_cast<std::uint16_t>((bits >> 16) + ((bits & 0xFFFF) != 0 ? 1 : 0));
  }
};

static_assert(SharedIntegers{8, 32}.block_bytes() == 34);
static_assert(SharedIntegers{4, 32}.block_bytes() == 18);

/// None if the name is of another family. Throws InvalidInput.
std::optional<SharedIntegers> parse_shared_integers(std::string_view name);

}  // namespace arlab

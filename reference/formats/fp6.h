// The two 6-bit element formats of OCP Microscaling (MX) v1.0: e2m3 and e3m2.
//
// A code is the low 6 bits of a byte. There is no infinity and no NaN, so conversion always
// saturates; a NaN becomes a zero (Minifloat::nan).
#pragma once

#include <cstdint>

#include "reference/formats/minifloat.h"

namespace arlab {

/// Largest 7.5, smallest normal 1, smallest subnormal 0.125.
inline constexpr Minifloat kE2m3{2, 3, 1, SpecialCodes::none};

/// Largest 28, smallest normal 0.25, smallest subnormal 0.0625.
inline constexpr Minifloat kE3m2{3, 2, 3, SpecialCodes::none};

constexpr float e2m3_to_float(std::uint8_t code) { return minifloat_to_float<kE2m3>(code); }
constexpr std::uint8_t e2m3_from_float(float value) {
  return static_cast<std::uint8_t>(minifloat_from_float<kE2m3>(value, Overflow::saturate));
}

constexpr float e3m2_to_float(std::uint8_t code) { return minifloat_to_float<kE3m2>(code); }
constexpr std::uint8_t e3m2_from_float(float value) {
  return static_cast<std::uint8_t>(minifloat_from_float<kE3m2>(value, Overflow::saturate));
}

static_assert(e2m3_to_float(0x1F) == 7.5f && e2m3_to_float(0x08) == 1.0f);
static_assert(e2m3_to_float(0x21) == -0.125f);
static_assert(e2m3_from_float(100.0f) == 0x1F && e2m3_from_float(0.0625f) == 0);

static_assert(e3m2_to_float(0x1F) == 28.0f && e3m2_to_float(0x04) == 0.25f);
static_assert(e3m2_to_float(0x21) == -0.0625f);
static_assert(e3m2_from_float(-100.0f) == 0x3F && e3m2_from_float(0.03125f) == 0);

}  // namespace arlab

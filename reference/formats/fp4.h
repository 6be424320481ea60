// The 4-bit element format e2m1 of OCP Microscaling (MX) v1.0: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and sign.
//
// A code is the low 4 bits of a byte. There is no infinity and no NaN, so conversion always
// saturates; a NaN becomes a zero (Minifloat::nan).
#pragma once

#include <cstdint>

#include "reference/formats/minifloat.h"

namespace arlab {

/// Largest 6, smallest normal 1, smallest subnormal 0.5.
inline constexpr Minifloat kE2m1{2, 1, 1, SpecialCodes::none};

constexpr float e2m1_to_float(std::uint8_t code) { return minifloat_to_float<kE2m1>(code); }
constexpr std::uint8_t e2m1_from_float(float value) {
  return static_cast<std::uint8_t>(minifloat_from_float<kE2m1>(value, Overflow::saturate));
}

static_assert(e2m1_to_float(0x7) == 6.0f && e2m1_to_float(0x2) == 1.0f);
static_assert(e2m1_to_float(0x9) == -0.5f);
static_assert(e2m1_from_float(100.0f) == 0x7 && e2m1_from_float(0.25f) == 0);
static_assert(e2m1_from_float(5.0f) == 0x6 && e2m1_from_float(-2.5f) == 0xC);

}  // namespace arlab

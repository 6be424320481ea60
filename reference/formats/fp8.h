// The three 8-bit formats: e4m3fn, e4m3fnuz, e5m2.
//
// e4m3fn and e5m2: "OCP 8-bit Floating Point Specification (OFP8)", revision 1.0, where e4m3fn is
// called E4M3. e4m3fnuz: Noune et al., "8-bit Numerical Formats for Deep Neural Networks"
// (Graphcore and AMD, arXiv:2206.02915); the fp8 of AMD CDNA 3. NaN and names as in ml_dtypes.
// Saturation is the default, because every codec here asks for it.
#pragma once

#include <cstdint>

#include "reference/formats/minifloat.h"

namespace arlab {

/// Largest 448, smallest normal 2^-6, smallest subnormal 2^-9; NaN 0x7F and 0xFF, no infinity.
inline constexpr Minifloat kE4m3fn{4, 3, 7, SpecialCodes::largest_is_nan};

/// Largest 240, smallest normal 2^-7, smallest subnormal 2^-10; NaN 0x80, no infinity, no -0.
inline constexpr Minifloat kE4m3fnuz{4, 3, 8, SpecialCodes::minus_zero_is_nan};

/// Largest 57344, smallest normal 2^-14, smallest subnormal 2^-16; infinities 0x7C and 0xFC,
/// NaN above them.
inline constexpr Minifloat kE5m2{5, 2, 15, SpecialCodes::infinity_and_nan};

constexpr float e4m3fn_to_float(std::uint8_t code) { return minifloat_to_float<kE4m3fn>(code); }
constexpr std::uint8_t e4m3fn_from_float(float value, Overflow overflow = Overflow::saturate) {
  return static_cast<std::uint8_t>(minifloat_from_float<kE4m3fn>(value, overflow));
}

constexpr float e4m3fnuz_to_float(std::uint8_t code) { return minifloat_to_float<kE4m3fnuz>(code); }
constexpr std::uint8_t e4m3fnuz_from_float(float value, Overflow overflow = Overflow::saturate) {
  return static_cast<std::uint8_t>(minifloat_from_float<kE4m3fnuz>(value, overflow));
}

constexpr float e5m2_to_float(std::uint8_t code) { return minifloat_to_float<kE5m2>(code); }
constexpr std::uint8_t e5m2_from_float(float value, Overflow overflow = Overflow::saturate) {
  return static_cast<std::uint8_t>(minifloat_from_float<kE5m2>(value, overflow));
}

static_assert(e4m3fn_to_float(0x7E) == 448.0f && e4m3fn_to_float(0x08) == 0x1p-6f);
static_assert(e4m3fn_to_float(0x81) == -0x1p-9f);
static_assert(e4m3fn_from_float(464.0f, Overflow::ieee) == 0x7E);  // the tie is even
static_assert(e4m3fn_from_float(-465.0f, Overflow::ieee) == 0xFF);
static_assert(e4m3fn_from_float(465.0f) == 0x7E);

static_assert(e4m3fnuz_to_float(0x7F) == 240.0f && e4m3fnuz_to_float(0x08) == 0x1p-7f);
static_assert(e4m3fnuz_to_float(0x81) == -0x1p-10f);
static_assert(e4m3fnuz_from_float(248.0f, Overflow::ieee) == 0x80);  // the tie is odd
static_assert(e4m3fnuz_from_float(-248.0f) == 0xFF && e4m3fnuz_from_float(-0.0f) == 0);

static_assert(e5m2_to_float(0x7B) == 57344.0f && e5m2_to_float(0x04) == 0x1p-14f);
static_assert(e5m2_to_float(0x81) == -0x1p-16f);
static_assert(e5m2_from_float(61440.0f, Overflow::ieee) == 0x7C);
static_assert(e5m2_from_float(61440.0f) == 0x7B);

}  // namespace arlab

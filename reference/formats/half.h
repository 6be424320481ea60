// fp16, the binary16 of IEEE 754-2008: 1 sign, 5 exponent, 10 mantissa bits, bias 15.
//
// Largest 65504, smallest normal 2^-14, smallest subnormal 2^-24; exponent 31 is infinity and NaN.
// Both conversions are hot. They compute every case and combine with masks and sums, for GCC moves
// float operations under a conditional into a branch, and then no loop over them vectorises.
// Every float operation in them has an exact result, so neither the rounding mode nor flushing of
// fp32 subnormals nor contraction can change a bit.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "reference/formats/minifloat.h"

namespace arlab {

/// The exact value. A NaN is made quiet and keeps sign and payload, as x86's VCVTPH2PS does.
constexpr float half_to_float(std::uint16_t bits) {
  constexpr std::int32_t kMinNormal = 0x0400;
  constexpr std::int32_t kInfinity = 0x7C00;
  const std::int32_t magnitude = bits & 0x7FFF;

  // Subnormals count units of 2^-24; above them only the bias changes.
  const float below = static_cast<float>(std::min(magnitude, kMinNormal)) * 0x1p-24f;
  const std::int32_t above = (std::max(magnitude, kMinNormal) - kMinNormal) << 13;
  const std::int32_t to_top_exponent = magnitude >= kInfinity ? 112 << 23 : 0;
  const std::int32_t quiet = magnitude > kInfinity ? 0x400000 : 0;
  const std::int32_t result =
      (std::bit_cast<std::int32_t>(below) + above + to_top_exponent) | quiet;

  const std::uint32_t sign = (bits & 0x8000u) << 16;
  return std::bit_cast<float>(sign | static_cast<std::uint32_t>(result));
}

/// The nearest fp16, ties to even. A NaN is made quiet and keeps sign and the upper 10 bits of its
/// payload, as x86's VCVTPS2PH does.
constexpr std::uint16_t half_from_float(float value, Overflow overflow = Overflow::ieee) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::int32_t magnitude = static_cast<std::int32_t>(bits & 0x7FFFFFFF);
  const std::int32_t small_mask = -static_cast<std::int32_t>(magnitude < 0x38800000);  // 2^-14

  // Units of 2^-24, and a rest that rounds up when above a half, or equal to it if they are odd.
  const float units = std::bit_cast<float>(magnitude & small_mask) * 0x1p24f;
  const std::int32_t whole = static_cast<std::int32_t>(units);
  const float rest = units - static_cast<float>(whole);
  const bool round_up = std::bit_cast<std::int32_t>(rest) + (whole & 1) > 0x3F000000;
  const std::int32_t small = whole + static_cast<std::int32_t>(round_up);

  // Larger magnitudes become 65504, or 65536, which gets the code of infinity.
  const bool saturate = overflow == Overflow::saturate;
  const std::int32_t limited = std::min(magnitude, saturate ? 0x477FE000 : 0x47800000);
  const std::int32_t is_odd = (limited >> 13) & 1;
  const std::int32_t large = (limited - (112 << 23) + 0xFFF + is_odd) >> 13;

  const std::int32_t nan = 0x7E00 | ((magnitude >> 13) & 0x3FF);
  const std::int32_t result = small | ((magnitude > 0x7F800000 ? nan : large) & ~small_mask);
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000) | static_cast<std::uint32_t>(result));
}

static_assert(half_to_float(0x7BFF) == 65504.0f && half_to_float(0x0400) == 0x1p-14f);
static_assert(half_to_float(0x0001) == 0x1p-24f && half_to_float(0x83FF) == -0x1.FF8p-15f);
static_assert(half_from_float(65520.0f) == 0x7C00 && half_from_float(0x1.FFDFFEp15f) == 0x7BFF);
static_assert(half_from_float(1e9f, Overflow::saturate) == 0x7BFF);
static_assert(half_from_float(0x1p-25f) == 0 && half_from_float(0x1.8p-24f) == 2);

}  // namespace arlab

// bfloat16: the upper half of an fp32. 1 sign, 8 exponent, 7 mantissa bits, bias 127.
//
// Source: "BFLOAT16 - Hardware Numerics Definition", Intel 338302-001, without its flushing of
// subnormals. Largest 0x1.FEp127, smallest normal 2^-126, smallest subnormal 2^-133.
#pragma once

#include <bit>
#include <cstdint>

#include "reference/formats/minifloat.h"

namespace arlab {

/// The exact value; all bits of a NaN stay as they are.
constexpr float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// The nearest bfloat16, ties to even. A NaN is made quiet and keeps sign and the upper 7 bits of
/// its payload, as x86's VCVTNEPS2BF16 does.
constexpr std::uint16_t bfloat16_from_float(float value, Overflow overflow = Overflow::ieee) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;

  const std::uint32_t is_odd = (magnitude >> 16) & 1;
  const std::uint32_t rounded = (magnitude + 0x7FFF + is_odd) >> 16;  // carries into infinity
  const std::uint32_t largest = overflow == Overflow::ieee ? 0x7F80 : 0x7F7F;
  const std::uint32_t nan = (magnitude >> 16) | 0x0040;

  std::uint32_t result = rounded < largest ? rounded : largest;
  result = magnitude <= 0x7F800000 ? result : nan;
  return static_cast<std::uint16_t>(sign | result);
}

static_assert(bfloat16_to_float(0x7F7F) == 0x1.FEp127f && bfloat16_to_float(0x0080) == 0x1p-126f);
static_assert(bfloat16_to_float(0x8001) == -0x1p-133f);
static_assert(bfloat16_from_float(0x1.FFp127f) == 0x7F80);  // the tie above the largest
static_assert(bfloat16_from_float(0x1.FEFFFEp127f) == 0x7F7F);
static_assert(bfloat16_from_float(0x1.FFp127f, Overflow::saturate) == 0x7F7F);
static_assert(bfloat16_from_float(0x1p-134f) == 0 && bfloat16_from_float(0x1.8p-133f) == 2);

}  // namespace arlab

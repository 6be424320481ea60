// All signed formats with their conversions, for tests that hold for every one.
#pragma once

#include <cstdint>

#include "reference/formats/bfloat16.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp6.h"
#include "reference/formats/fp8.h"
#include "reference/formats/half.h"
#include "tests/formats/oracle.h"

namespace arlab::testing {

/// Calls visit(format, to_float(code), from_float(value, overflow)) for each format.
template <typename Visit>
void for_each_format(Visit visit) {
  using Code8 = std::uint8_t;
  using Code16 = std::uint16_t;
  visit(
      kOracleHalf, [](std::uint32_t code) { return half_to_float(static_cast<Code16>(code)); },
      [](float value, Overflow overflow) { return half_from_float(value, overflow); });
  visit(
      kOracleBfloat16,
      [](std::uint32_t code) { return bfloat16_to_float(static_cast<Code16>(code)); },
      [](float value, Overflow overflow) { return bfloat16_from_float(value, overflow); });
  visit(
      kOracleE4m3fn, [](std::uint32_t code) { return e4m3fn_to_float(static_cast<Code8>(code)); },
      [](float value, Overflow overflow) { return e4m3fn_from_float(value, overflow); });
  visit(
      kOracleE4m3fnuz,
      [](std::uint32_t code) { return e4m3fnuz_to_float(static_cast<Code8>(code)); },
      [](float value, Overflow overflow) { return e4m3fnuz_from_float(value, overflow); });
  visit(
      kOracleE5m2, [](std::uint32_t code) { return e5m2_to_float(static_cast<Code8>(code)); },
      [](float value, Overflow overflow) { return e5m2_from_float(value, overflow); });
  // These have one overflow variant only, and their oracle has the same answer for both.
  visit(
      kOracleE2m3, [](std::uint32_t code) { return e2m3_to_float(static_cast<Code8>(code)); },
      [](float value, Overflow) { return e2m3_from_float(value); });
  visit(
      kOracleE3m2, [](std::uint32_t code) { return e3m2_to_float(static_cast<Code8>(code)); },
      [](float value, Overflow) { return e3m2_from_float(value); });
  visit(
      kOracleE2m1, [](std::uint32_t code) { return e2m1_to_float(static_cast<Code8>(code)); },
      [](float value, Overflow) { return e2m1_from_float(value); });
}

}  // namespace arlab::testing

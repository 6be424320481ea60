// All formats with their conversions, for what holds for every one.
#pragma once

#include <cstdint>

#include "reference/formats/bfloat16.h"
#include "reference/formats/e8m0.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp6.h"
#include "reference/formats/fp8.h"
#include "reference/formats/half.h"

namespace arlab::testing {

/// Calls visit(name, to_float(code), from_float(value, overflow)) for each format.
template <typename Visit>
void for_each_format(Visit visit) {
#define ARLAB_FORMAT(Code, name, ...)                               \
  visit(                                                            \
      #name, [](Code code) { return name##_to_float(code); },       \
      [](float value, [[maybe_unused]] Overflow overflow) {         \
        return name##_from_float(value __VA_OPT__(, ) __VA_ARGS__); \
      })
  ARLAB_FORMAT(std::uint16_t, half, overflow);
  ARLAB_FORMAT(std::uint16_t, bfloat16, overflow);
  ARLAB_FORMAT(std::uint8_t, e4m3fn, overflow);
  ARLAB_FORMAT(std::uint8_t, e4m3fnuz, overflow);
  ARLAB_FORMAT(std::uint8_t, e5m2, overflow);
  ARLAB_FORMAT(std::uint8_t, e2m3);
  ARLAB_FORMAT(std::uint8_t, e3m2);
  ARLAB_FORMAT(std::uint8_t, e2m1);
  ARLAB_FORMAT(std::uint8_t, e8m0);
#undef ARLAB_FORMAT
}

}  // namespace arlab::testing

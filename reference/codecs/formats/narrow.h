// wire-bf16, wire-fp16, each also with -stoch: fp32 elements as 16 bits on the wire. SPEC.md, "16 bits for fp32 (wire-)". Plain
// functions, for the reference (plain.cc) and for kernels (kernels/codecs/narrow.h).
//
//   16 bits and 2 bytes per element
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "reference/formats/minifloat.h"
#include "reference/formats/payload_arithmetic.h"

namespace arlab {

struct NarrowFormat {
  DType wire = DType::bf16;  ///< or fp16
  bool stochastic = false;

  static constexpr std::size_t kBytes = sizeof(std::uint16_t);  ///< an element has so many
};

static_assert(NarrowFormat::kBytes == 2);

/// None if the name is of another family.
std::optional<NarrowFormat> parse_narrow(std::string_view name);

/// The code of one of the two neighbours by magnitude, of the one above if and only if the 24 random bits are below the fraction of
/// the way; beyond the largest number, infinity.
template <class Arithmetic>
constexpr std::uint16_t narrow_stochastically(float value, std::uint32_t random) {
  constexpr bool kIsBf16 = Arithmetic::kDType == DType::bf16;
  constexpr Minifloat kFormat = {kIsBf16 ? 8 : 5, kIsBf16 ? 7 : 10, kIsBf16 ? 127 : 15,
                                 SpecialCodes::infinity_and_nan};
  if (value != value) return Arithmetic::kNaN;
  const std::uint32_t magnitude = minifloat_magnitude(kFormat, value, random);
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) >> 16 & 0x8000;
  constexpr std::uint32_t kInfinity = Arithmetic::kInfinity;
  return static_cast<std::uint16_t>(sign | (magnitude < kInfinity ? magnitude : kInfinity));
}

}  // namespace arlab

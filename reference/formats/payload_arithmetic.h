// Arithmetic in a payload's dtype: one fp32 operation, then one rounding. reference/codecs/SPEC.md,
// "QuickReduce (qr-*)" and "Accumulation", asks for it.
//
// fp32 has enough bits (24 >= 2 * 11 + 2) that rounding the fp32 sum, product or quotient of two
// fp16 values to fp16 equals one correct rounding. For bf16 the two roundings are the definition.
//
// A NaN that an operation produces is always the canonical quiet one, because processors disagree: x86 makes the NaN of inf -
// inf negative, NVIDIA sets all its bits, AMD keeps an operand's payload.
#pragma once

#include <bit>
#include <cstdint>

#include "reference/formats/bfloat16.h"
#include "reference/formats/dtypes.h"
#include "reference/formats/half.h"

namespace arlab {

struct Fp16Arithmetic {
  using Bits = std::uint16_t;
  static constexpr DType kDType = DType::fp16;
  static constexpr Bits kNaN = 0x7E00;
  static constexpr Bits kInfinity = 0x7C00;
  static constexpr Bits kMagnitude = 0x7FFF;

  static constexpr float to_float(Bits bits) { return half_to_float(bits); }
  static constexpr Bits from_float(float value) {
    // The test is on the code, not on the value, so that GCC vectorises the loops around it.
    const Bits bits = half_from_float(value);
    return (bits & kMagnitude) > kInfinity ? kNaN : bits;
  }
  /// As from_float, but a finite value that overflows becomes +-65504.
  static constexpr Bits from_float_clamped(float value) {
    const Bits bits = from_float(value);
    const bool overflowed = (bits & kMagnitude) == kInfinity &&
                            (std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFu) != 0x7F800000u;
    return static_cast<Bits>(bits - (overflowed ? 1 : 0));
  }
};

struct Bf16Arithmetic {
  using Bits = std::uint16_t;
  static constexpr DType kDType = DType::bf16;
  static constexpr Bits kNaN = 0x7FC0;
  static constexpr Bits kInfinity = 0x7F80;
  static constexpr Bits kMagnitude = 0x7FFF;

  static constexpr float to_float(Bits bits) { return bfloat16_to_float(bits); }
  static constexpr Bits from_float(float value) {
    const Bits bits = bfloat16_from_float(value);
    return (bits & kMagnitude) > kInfinity ? kNaN : bits;
  }
};

struct Fp32Arithmetic {
  using Bits = float;
  static constexpr DType kDType = DType::fp32;

  static constexpr float to_float(Bits value) { return value; }
  static constexpr Bits from_float(float value) {
    return value == value ? value : std::bit_cast<float>(0x7FC00000u);
  }
};

/// True for NaN and infinities, given a 16-bit pattern of the arithmetic's dtype.
template <class Arithmetic>
constexpr bool is_non_finite(std::uint16_t bits) {
  return (bits & Arithmetic::kMagnitude) >= Arithmetic::kInfinity;
}

}  // namespace arlab

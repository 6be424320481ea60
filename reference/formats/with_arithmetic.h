// A function for the arithmetic of a dtype that is known at run time.
#pragma once

#include <cstddef>
#include <span>

#include "reference/formats/payload_arithmetic.h"

namespace arlab {

/// fp16 as QuickReduce adds it, with the hardware's overflow clamp.
struct ClampedFp16 : Fp16Arithmetic {
  static constexpr Bits from_float(float value) { return from_float_clamped(value); }
};

/// Calls f with the arithmetic of the dtype.
template <class F>
void with_arithmetic(DType dtype, bool clamp, F&& f) {
  switch (dtype) {
    case DType::fp16:
      return clamp ? f(ClampedFp16{}) : f(Fp16Arithmetic{});
    case DType::bf16:
      return f(Bf16Arithmetic{});
    case DType::fp32:
      return f(Fp32Arithmetic{});
  }
}

/// Typed views of a payload.
template <class Bits>
std::span<const Bits> elements_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const Bits*>(bytes.data()), bytes.size() / sizeof(Bits)};
}
template <class Bits>
std::span<Bits> elements_of(std::span<std::byte> bytes) {
  return {reinterpret_cast<Bits*>(bytes.data()), bytes.size() / sizeof(Bits)};
}

}  // namespace arlab

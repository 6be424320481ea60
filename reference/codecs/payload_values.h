// Elements of any payload dtype as fp32 and back, for codecs whose arithmetic is in fp32.
#pragma once

#include <cstring>
#include <limits>
#include <span>

#include "reference/codecs/payload_views.h"
#include "reference/formats/dtypes.h"
#include "reference/formats/payload_arithmetic.h"

namespace arlab {

/// Element i as fp32; exact.
inline float load_value(DType dtype, std::span<const std::byte> payload, std::size_t i) {
  switch (dtype) {
    case DType::fp16:
      return half_to_float(as_u16(payload)[i]);
    case DType::bf16:
      return bfloat16_to_float(as_u16(payload)[i]);
    case DType::fp32:
      break;
  }
  return as_f32(payload)[i];
}

/// RN(value, dtype) as element i; a NaN becomes the canonical one.
inline void store_value(DType dtype, float value, std::span<std::byte> payload, std::size_t i) {
  switch (dtype) {
    case DType::fp16:
      as_u16(payload)[i] = Fp16Arithmetic::from_float(value);
      return;
    case DType::bf16:
      as_u16(payload)[i] = Bf16Arithmetic::from_float(value);
      return;
    case DType::fp32:
      as_f32(payload)[i] = Fp32Arithmetic::from_float(value);
      return;
  }
}

/// The largest finite number of the dtype.
constexpr float largest_finite(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return half_to_float(Fp16Arithmetic::kInfinity - 1);
    case DType::bf16:
      return bfloat16_to_float(Bf16Arithmetic::kInfinity - 1);
    case DType::fp32:
      break;
  }
  return std::numeric_limits<float>::max();
}

/// Returns the value, limited to +-limit, infinities too; a NaN stays.
constexpr float limited(float value, float limit) {
  const float below = value > limit ? limit : value;
  return below < -limit ? -limit : below;
}

/// Writes the bits of a value to the wire, or reads them, and moves on.
template <class T>
void put(std::byte*& out, T value) {
  std::memcpy(out, &value, sizeof(T));
  out += sizeof(T);
}
template <class T>
T take(const std::byte*& in) {
  T value;
  std::memcpy(&value, in, sizeof(T));
  in += sizeof(T);
  return value;
}

}  // namespace arlab

// Names of the element types of a payload.
#pragma once

#include <string_view>

#include "reference/error.h"
#include "reference/formats/dtypes.h"

namespace arlab {

/// The name as the command line spells it.
constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return "fp16";
    case DType::bf16:
      return "bf16";
    case DType::fp32:
      return "fp32";
  }
  return "?";
}

/// Throws InvalidInput for any other spelling.
inline DType parse_dtype(std::string_view name) {
  for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
    if (name == name_of(dtype)) return dtype;
  }
  // As NumPy and PyTorch call them.
  if (name == "float16") return DType::fp16;
  if (name == "bfloat16") return DType::bf16;
  if (name == "float32") return DType::fp32;
  fail("unknown dtype '{}': allowed are fp16, bf16, fp32", name);
}

}  // namespace arlab

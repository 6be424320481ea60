// Element types of a payload: what a rank holds before encoding and after decoding. Their names are in reference/dtype.h.
#pragma once

#include <cstddef>

namespace arlab {

enum class DType { fp16, bf16, fp32 };

/// Bytes per element.
constexpr std::size_t size_of(DType dtype) { return dtype == DType::fp32 ? 4 : 2; }

}  // namespace arlab

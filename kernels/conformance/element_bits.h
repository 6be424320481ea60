// Elements of a tensor as bits, and as people read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "reference/dtype.h"

namespace arlab::kernels {

/// The bits of one element, in the low bits of the result.
std::uint32_t bits_at(DType dtype, std::span<const std::byte> tensor, std::size_t index);

/// The value that the bits stand for, in as many digits as tell it from every other: "0.1", "nan".
std::string value_text(DType dtype, std::uint32_t bits);

/// The bits in hex, "0x3c00".
std::string bits_text(DType dtype, std::uint32_t bits);

/// Value and bits of an element: "1 (0x3c00)".
std::string element_text(DType dtype, std::uint32_t bits);

}  // namespace arlab::kernels

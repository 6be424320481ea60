#include "kernels/conformance/element_bits.h"

#include <fmt/format.h>

#include <cstring>

#include "reference/formats/with_arithmetic.h"

namespace arlab::kernels {

std::uint32_t bits_at(DType dtype, std::span<const std::byte> tensor, std::size_t index) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &tensor[index * size_of(dtype)], size_of(dtype));
  return bits;
}

std::string value_text(DType dtype, std::uint32_t bits) {
  std::string text;
  with_arithmetic(dtype, false, [&]<class Arithmetic>(Arithmetic) {
    typename Arithmetic::Bits element;
    std::memcpy(&element, &bits, sizeof(element));
    text = fmt::format("{:.9g}", Arithmetic::to_float(element));
  });
  return text;
}

std::string bits_text(DType dtype, std::uint32_t bits) {
  return fmt::format("0x{:0{}x}", bits, 2 * size_of(dtype));
}

std::string element_text(DType dtype, std::uint32_t bits) {
  return value_text(dtype, bits) + " (" + bits_text(dtype, bits) + ")";
}

}  // namespace arlab::kernels

// The types that tensors of .gguf files have: sizes of their blocks, and the values that blocks stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace arlab::models {

/// A type of tensors, whose rows consist of blocks.
struct GgufType {
  std::uint32_t number;
  std::string_view name;
  std::size_t elements;  ///< elements of a block
  std::size_t bytes;     ///< bytes of a block
  /// Writes the elements of a block in fp32; null where nothing here decodes the type.
  void (*decode)(const std::byte* block, float* out) = nullptr;
};

/// Null for a number that no type has.
const GgufType* find_gguf_type(std::uint32_t number);

/// Names of the types that are decoded, for messages.
std::string decoded_gguf_types();

}  // namespace arlab::models

// Payload bytes as elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace arlab {

/// Typed views of a payload span; the element size is the caller's to know.
inline std::span<const std::uint16_t> as_u16(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const std::uint16_t*>(bytes.data()), bytes.size() / 2};
}
inline std::span<std::uint16_t> as_u16(std::span<std::byte> bytes) {
  return {reinterpret_cast<std::uint16_t*>(bytes.data()), bytes.size() / 2};
}
inline std::span<const float> as_f32(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / 4};
}
inline std::span<float> as_f32(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / 4};
}

}  // namespace arlab

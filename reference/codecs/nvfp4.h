// The parameters of an NVFP4 codec, and its names.
#pragma once

#include <optional>
#include <string_view>

namespace arlab {

struct NvFp4Format {
  /// Roundings in the order of vLLM's kernel.
  bool vllm = false;
  /// Given, and not on the wire; else found of the message.
  std::optional<float> tensor_scale = {};

  /// Between them everything that is divided by a scale is finite.
  static constexpr float kLeastTensorScale = 0x1p-118f;
  static constexpr float kMostTensorScale = 0x1p118f;
};

/// What a codec name like `nvfp4-vllm-ts448` says; nothing when the name is not of this family.
/// Throws InvalidInput when the tensor scale is out of range, or not spelt in the shortest way.
std::optional<NvFp4Format> parse_nvfp4(std::string_view name);

}  // namespace arlab

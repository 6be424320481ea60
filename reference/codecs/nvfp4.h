// The parameters of an NVFP4 codec, and its names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace arlab {

/// Order of the rounding operations: our own, or that of a known kernel.
enum class NvFp4Rounding : std::uint8_t { nvidia, vllm, te, te_4over6 };

/// For a summary: ", rounded as in ...", or nothing.
std::string_view words_of(NvFp4Rounding rounding);
std::string source_of(NvFp4Rounding rounding);

struct NvFp4Format {
  NvFp4Rounding rounding = NvFp4Rounding::nvidia;
  /// Given, and not on the wire; else found of the message.
  std::optional<float> tensor_scale = {};

  /// Between them everything that is divided by a scale is finite.
  static constexpr float kLeastTensorScale = 0x1p-118f;
  static constexpr float kMostTensorScale = 0x1p118f;
};

/// Returns the format that a name like `nvfp4-vllm-ts448` means; nothing when the name is not of this family. Throws
/// InvalidInput when the tensor scale is out of range, or not spelt in the shortest way.
std::optional<NvFp4Format> parse_nvfp4(std::string_view name);

}  // namespace arlab

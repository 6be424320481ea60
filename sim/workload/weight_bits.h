// How many bits the weights of a model take, scales included: what its config.json says of them.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace arlab {

/// Purpose of a matrix.
enum class WeightKind : std::uint8_t {
  attention,
  dense,
  experts,
  shared,
  router,
  head,
  embedding,
  vision
};
inline constexpr std::size_t kWeightKinds = 8;
std::string_view name_of(WeightKind kind);

/// A matrix of a model, under the name that transformers give it; of experts, all of a layer.
struct WeightMatrix {
  std::string name;  ///< model.layers.3.self_attn.q_proj
  WeightKind kind = WeightKind::dense;
  double inputs = 0;
  double outputs = 0;
  double count = 1;         ///< matrices of this shape
  double used = 1;          ///< share of these that one token uses
  bool is_whole = false;    ///< on every rank; else each has a share
  std::uint32_t parts = 0;  ///< with more ranks than these, ranks have copies; 0: never

  double weights() const { return count * inputs * outputs; }
};

/// Bits of a weight on average, by kind: of a model whose values have 16.
struct WeightBits {
  std::array<double, kWeightKinds> bits = {16, 16, 16, 16, 16, 16, 16, 16};
  std::string source = "16-bit values: the model has no quantization_config";

  double of(WeightKind kind) const { return bits[static_cast<std::size_t>(kind)]; }
  double& of(WeightKind kind) { return bits[static_cast<std::size_t>(kind)]; }
  bool operator==(const WeightBits&) const = default;
};

/// Returns the bits that a config.json says: its quantization_config (compression_config, or MLX's quantization), and its dtype
/// where that has 8 bits. Where the method is not known, the source says so and weights have 16 bits. `origin` names the file
/// in messages. Throws InvalidInput: which key is wrong, and what is allowed.
WeightBits weight_bits_of(const nlohmann::ordered_json& config,
                          std::span<const WeightMatrix> matrices, std::string_view origin);

/// Returns the bits with a user's changes: of every matrix of the layers but the router ("4.25"), or of kinds
/// ("experts=4.25,head=8"). Throws InvalidInput, also where that changes nothing, or the model has no such matrices.
WeightBits changed(WeightBits bits, std::string_view text, std::span<const WeightMatrix> matrices);

/// A mean over all matrices.
double mean_bits(const WeightBits& bits, std::span<const WeightMatrix> matrices);

/// "attention, dense 8.002; head, embedding 16", of kinds that the model has.
std::string describe(const WeightBits& bits, std::span<const WeightMatrix> matrices);

}  // namespace arlab

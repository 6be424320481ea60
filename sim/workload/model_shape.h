// The shapes of a transformer, and how many bits its weights have: what decides how long its layers
// take.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/workload/weight_bits.h"

namespace arlab {

/// Attention whose keys and values are made of one small vector per token, which is what is kept
/// (DeepSeek's multi-head latent attention).
struct LatentAttention {
  std::uint32_t kv_rank = 0;  ///< elements of that vector; 0: keys and values are kept themselves
  std::uint32_t q_rank = 0;   ///< the same for queries; 0: they are made of the token itself
  std::uint32_t rope_size =
      0;  ///< elements of a head that know positions; all heads share the key's
  std::uint32_t value_size = 0;  ///< elements of a value's head
  bool operator==(const LatentAttention&) const = default;
};

/// Layers that are made of the same operations.
struct LayerKind {
  std::uint32_t count = 0;
  bool has_experts = false;
  std::uint32_t window = 0;  ///< tokens that a token looks at, itself among them; 0: all before it
};

/// A decoder: RMSNorm, attention with grouped heads or latent, a gated feed-forward part (gate, up,
/// down), which may be a mixture of experts.
struct ModelShape {
  std::string name;
  std::string source;  ///< where the figures are from
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;  ///< elements of a token between layers
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;   ///< heads of keys and of values
  std::uint32_t head_size = 0;  ///< of queries and keys
  std::uint32_t ffn = 0;        ///< width of the feed-forward part, or of one expert
  std::uint32_t vocabulary = 0;
  std::uint32_t experts = 0;            ///< 0: no mixture of experts
  std::uint32_t experts_per_token = 0;  ///< that a token is sent to
  std::uint32_t shared_ffn = 0;         ///< width of what all tokens go through beside the experts
  std::uint32_t dense_layers = 0;       ///< first ones, which have no experts
  std::uint32_t dense_ffn = 0;          ///< width of their feed-forward part
  std::uint32_t window = 0;             ///< tokens that windowed layers look at
  std::uint32_t windowed_layers = 0;
  LatentAttention latent = {};
  bool tied = false;  ///< one matrix for embedding and head
  WeightBits weights = {};
  bool operator==(const ModelShape&) const = default;

  bool is_latent() const { return latent.kv_rank > 0; }
  std::uint64_t attention_width() const { return std::uint64_t{heads} * head_size; }
  std::uint64_t kv_width() const { return std::uint64_t{kv_heads} * head_size; }
  /// In the order of the layers, but that windowed ones stand together.
  std::vector<LayerKind> kinds() const;
  /// Weights of the whole model: matrices, without biases and norms.
  double parameters() const;
  /// Those of them that a token is multiplied with: without the embedding, of which it takes a row,
  /// and the experts that it is not sent to.
  double active_parameters() const;
  /// Matrices of all layers, then the embedding and the head, by the names that models of this
  /// model_type have. Where the two are one, the head alone.
  std::vector<WeightMatrix> matrices(std::string_view type = {}) const;

 private:
  double parameters_of_layers(double experts_each) const;
};

/// Names that find_model() knows, in the order of the list.
std::vector<std::string> listed_models();

/// A model by name, or by the path of a config.json as Hugging Face's transformers write it, or of
/// a .toml with the same keys; a hf_quant_config.json beside it counts. Throws InvalidInput: what is wrong, where, what is allowed.
ModelShape find_model(std::string_view name_or_path);

/// Reads the text of such a file. `origin` names it in messages. `quantization`: the text of a
/// hf_quant_config.json, for a file without quantization_config.
ModelShape parse_model(std::string_view text, bool toml, std::string_view origin,
                       std::string_view quantization = {});

}  // namespace arlab

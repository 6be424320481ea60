// The shapes of a transformer, and how many bits its weights have: what decides how long its layers
// take.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/workload/weight_bits.h"

namespace arlab {

/// Attention with keys and values made of one small vector per token, which is cached (DeepSeek's multi-head latent attention).
struct LatentAttention {
  std::uint32_t kv_rank = 0;  ///< elements of that vector; 0: keys and values are kept themselves
  std::uint32_t q_rank = 0;   ///< the same for queries; 0: they are made of the token itself
  std::uint32_t rope_size =
      0;  ///< elements of a head that know positions; all heads share the key's
  bool operator==(const LatentAttention&) const = default;
};

/// A matrix of a layer that every token is multiplied with, under its name in the layer.
struct Product {
  std::string name;
  double inputs = 0;
  double outputs = 0;
  bool is_whole = false;  ///< on every rank; else each has a share
  bool operator==(const Product&) const = default;
};

/// Attention with an index, which finds the tokens that are looked at (DeepSeek's sparse attention).
struct AttentionIndex {
  std::uint32_t heads = 0;
  std::uint32_t size = 0;    ///< elements of a head, and of what is kept of a token
  std::uint32_t tokens = 0;  ///< tokens in view
  bool operator==(const AttentionIndex&) const = default;
};

/// Mixing of tokens with each other: attention, a state (linear attention, Mamba), both, or nothing.
struct Mixer {
  std::uint32_t heads = 0;  ///< 0: no attention
  std::uint32_t kv_heads = 0;
  std::uint32_t head_size = 0;   ///< size of queries and keys
  std::uint32_t value_size = 0;  ///< size of values
  std::uint32_t window = 0;  ///< tokens that a token looks at, itself among them; 0: all before it
  std::uint32_t compression =
      0;                         ///< tokens beyond the window that become one; 0: they are not kept
  bool is_gated = false;         ///< queries come with a gate of their size
  bool has_keys = true;          ///< false: they are those of a layer before
  bool has_values = true;        ///< false: keys are the values
  std::uint32_t out_rank = 0;    ///< rank of the low-rank output projection; 0: none
  std::uint32_t out_groups = 1;  ///< groups of heads, each with its share of out_rank
  LatentAttention latent = {};
  AttentionIndex index = {};
  std::vector<Product> products = {};  ///< beside those of attention
  double state = 0;             ///< elements of a sequence that are kept and change with each token
  std::string state_kind = {};  ///< its maker in words: Mamba 2
  std::string state_name = {};  ///< its module: mamba
  bool operator==(const Mixer&) const = default;

  bool is_latent() const { return latent.kv_rank > 0; }
  std::uint64_t attention_width() const { return std::uint64_t{heads} * head_size; }
  std::uint64_t key_width() const { return std::uint64_t{kv_heads} * head_size; }
  std::uint64_t value_width() const { return std::uint64_t{kv_heads} * value_size; }
  std::uint64_t out_width() const { return std::uint64_t{heads} * value_size; }
};

/// The part of a layer that every token goes through by itself, which may have experts.
struct FeedForward {
  std::uint32_t width = 0;    ///< the part without experts, or the one beside them; 0: none
  std::uint32_t experts = 0;  ///< 0: no mixture of experts
  std::uint32_t experts_per_token = 0;  ///< chosen experts
  std::uint32_t expert_width = 0;
  std::uint32_t expert_inputs = 0;  ///< elements of a token that is sent to them; 0: all
  std::uint32_t shared_width = 0;   ///< the part beside the experts, for all tokens
  bool is_gated = true;             ///< gate, up and down; else up and down
  bool operator==(const FeedForward&) const = default;
};

struct Layer {
  Mixer mixer = {};
  FeedForward feed_forward = {};
  bool operator==(const Layer&) const = default;
};

/// Layers that are made of the same operations.
struct LayerKind {
  std::uint32_t count = 0;
  Layer layer = {};
};

/// By what names a model calls its modules: what quantization_config names them by.
struct ModuleNames {
  std::string layers = "model.layers";
  std::string attention = "self_attn";
  std::string state = "linear_attn";
  std::string feed_forward = "mlp";
  std::string router = "mlp.gate";
  std::string experts = "mlp.experts";
  std::string shared = "mlp.shared_experts";
  std::vector<std::string> gated = {"gate_proj", "up_proj", "down_proj"};
  bool operator==(const ModuleNames&) const = default;
};

/// A decoder, layer by layer.
struct ModelShape {
  std::string name;
  std::string source;        ///< where the figures are from
  std::uint32_t hidden = 0;  ///< elements of a token between layers
  std::uint32_t vocabulary = 0;
  bool tied = false;  ///< one matrix for embedding and head
  std::vector<Layer> layers = {};
  ModuleNames names = {};
  double more_embedding = 0;  ///< weights of embeddings of which a token takes rows in every layer
  double vision = 0;          ///< weights of what reads pictures, which text does not go through
  double predicting = 0;  ///< weights of layers that predict further tokens: counted nowhere else
  std::string left_out = {};  ///< parts of the file that are not modelled, in words
  WeightBits weights = {};
  bool operator==(const ModelShape&) const = default;

  /// In the order of their first layers.
  std::vector<LayerKind> kinds() const;
  /// Weights of the whole model: matrices, without biases and norms.
  double parameters() const;
  /// Those of them that a token is multiplied with: without the embedding, of which it takes a row,
  /// and the experts that it is not sent to.
  double active_parameters() const;
  /// Matrices of all layers, then the embedding and the head, by the names that such models have.
  /// Where the two are one, the head alone.
  std::vector<WeightMatrix> matrices() const;
};

/// A layer in words: "latent attention, 256 experts".
std::string describe(const Layer& layer);

/// Weights of one layer.
double parameters_of(const ModelShape& model, const Layer& layer);

/// Names that find_model() knows, in the order of the list.
std::vector<std::string> listed_models();

/// A model by name, or by the path of a config.json as Hugging Face's transformers write it, or of
/// a .toml with the same keys; a hf_quant_config.json beside it counts. Throws InvalidInput: what is
/// wrong, where, what is allowed.
ModelShape find_model(std::string_view name_or_path);

/// Reads the text of such a file. `origin` names it in messages. `quantization`: the text of a
/// hf_quant_config.json, for a file without quantization_config.
ModelShape parse_model(std::string_view text, bool toml, std::string_view origin,
                       std::string_view quantization = {});

}  // namespace arlab

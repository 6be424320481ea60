// The shapes of a transformer: what decides how long its layers take. Weights play no part.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace arlab {

/// A decoder of the Llama family: RMSNorm, attention with grouped heads, a gated feed-forward part
/// (gate, up, down), which may be a mixture of experts.
struct ModelShape {
  std::string name;
  std::string source;  ///< where the figures are from
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;  ///< elements of a token between layers
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;  ///< heads of keys and of values
  std::uint32_t head_size = 0;
  std::uint32_t ffn = 0;  ///< width of the feed-forward part, or of one expert
  std::uint32_t vocabulary = 0;
  std::uint32_t experts = 0;            ///< 0: no mixture of experts
  std::uint32_t experts_per_token = 0;  ///< that a token is sent to
  std::uint32_t shared_ffn = 0;         ///< width of what all tokens go through beside the experts

  std::uint64_t attention_width() const { return std::uint64_t{heads} * head_size; }
  std::uint64_t kv_width() const { return std::uint64_t{kv_heads} * head_size; }
  /// Weights of one layer and of the whole model: matrices, embedding and head counted once each.
  double parameters_of_layer() const;
  double parameters() const;
};

/// Names that find_model() knows, in the order of the list.
std::vector<std::string> listed_models();

/// A model by name, or by the path of a config.json as Hugging Face's transformers write it, or of
/// a .toml with the same keys. Throws InvalidInput: what is wrong, where, what is allowed.
ModelShape find_model(std::string_view name_or_path);

/// Reads the text of such a file. `origin` names it in messages.
ModelShape parse_model(std::string_view text, bool toml, std::string_view origin);

}  // namespace arlab

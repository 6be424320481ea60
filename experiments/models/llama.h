// A network of the Llama type in fp32, whose row-parallel projections may be split over ranks.
//
// RMSNorm, rotary positions, grouped query heads, SwiGLU; no biases. Rank r of N holds the r-th of N
// equal parts of the contraction dimension of the attention's output projection and of the FFN's
// down projection; an all-reduce adds their partial sums.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "experiments/models/linear.h"
#include "experiments/models/tokenizer.h"

namespace arlab::models {

struct LlamaShape {
  std::size_t layers = 0;
  std::size_t hidden = 0;
  std::size_t heads = 0;            ///< heads of queries
  std::size_t key_value_heads = 0;  ///< divides heads
  std::size_t head_size = 0;        ///< even
  std::size_t ffn = 0;
  std::size_t vocabulary = 0;
  std::size_t context = 0;  ///< tokens that it was made for
  double norm_epsilon = 0;
  /// Radians that the pair of numbers i of a head turns from a token to the next.
  std::vector<double> frequencies;

  /// Inputs of the attention's output projection.
  std::size_t attended() const { return heads * head_size; }
};

struct LlamaLayer {
  std::vector<float> attention_norm;
  std::vector<float> ffn_norm;
  // The two numbers of each rotation lie side by side in queries and keys, as GGUF has them.
  Matrix query, key, value, attention_output, gate, up, ffn_down;
};

/// The two projections of a layer that are split by their contraction dimension.
enum class Projection { attention_output, ffn_down };
constexpr const char* name_of(Projection projection) {
  return projection == Projection::ffn_down ? "ffn_down" : "attention_output";
}

/// Adds what ranks hold.
class TensorParallel {
 public:
  virtual ~TensorParallel() = default;
  virtual std::size_t ranks() const = 0;
  /// False: this layer is computed as one rank would, in fp32 without any all-reduce.
  virtual bool splits(std::size_t layer) const = 0;
  /// `partial_sums` [ranks, tokens, hidden], `sum` [tokens, hidden].
  virtual void all_reduce(std::size_t layer, Projection projection,
                          std::span<const float> partial_sums, std::span<float> sum) = 0;
};

/// The products of a layer with its weights.
enum class Linear { query, key, value, attention_output, gate, up, ffn_down };
inline constexpr std::size_t kLinears = 7;

/// Computes them in another way than in fp32.
class LinearLayers {
 public:
  virtual ~LinearLayers() = default;
  /// As models::multiply with the weights of the network.
  virtual void multiply(std::size_t layer, Linear which, ConstRows x, std::size_t rows,
                        Range inputs, Rows y) = 0;
};

class TailedState;

class Llama {
 public:
  LlamaShape shape;
  Matrix embedding;  ///< [vocabulary, hidden]
  std::vector<LlamaLayer> layers;
  std::vector<float> output_norm;
  Matrix output;  ///< [vocabulary, hidden]; empty where the embedding serves for it

  const Matrix& weights(std::size_t layer, Linear which) const;
  const Matrix& head() const { return output.out() == 0 ? embedding : output; }

  /// [tokens, hidden]. Throws InvalidInput for ids that are not there.
  std::vector<float> embedded(std::span<const TokenId> ids) const;

  /// cos and sin of each rotation, [tokens, head_size / 2, 2].
  std::vector<float> rotations(std::size_t tokens) const;

  /// `hidden` [tokens, hidden] of consecutive tokens from position 0 on becomes what the layer makes
  /// of it. `split`, `linears` and `tailed` may be null. With `tailed`, the last sum is added by what normalizes next.
  void run_layer(std::size_t layer, std::span<float> hidden, std::span<const float> rotations,
                 TensorParallel* split, unsigned threads, LinearLayers* linears = nullptr,
                 TailedState* tailed = nullptr) const;

  /// The last layer's output, normalized: what logits are computed from.
  std::vector<float> normalized(std::span<const float> hidden) const;

  /// All of it: [tokens, hidden], normalized.
  std::vector<float> run(std::span<const TokenId> ids, TensorParallel* split, unsigned threads,
                         LinearLayers* linears = nullptr, TailedState* tailed = nullptr) const;

  /// Throws InvalidInput unless the ranks get equal parts.
  void require_splits(std::size_t ranks) const;
};

}  // namespace arlab::models

// A network whose layers multiply quantized weights, activations or both: reference/layers/SPEC.md,
// "Names".
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "experiments/models/llama.h"
#include "reference/layers/linear.h"

namespace arlab::models {

/// The extremes of the inputs of every product, by layer and Linear, over these chunks, in fp32 and
/// not split.
std::vector<Extremes> input_extremes(const Llama& network,
                                     const std::vector<std::vector<TokenId>>& chunks,
                                     unsigned threads, const std::function<void()>& of_chunk);

/// All products but that of the head. A rank quantizes the part of the activations that it has; its
/// weights are a part of the whole, quantized.
class QuantizedLayers : public LinearLayers {
 public:
  /// `extremes`: where the activations' scales are static. The network must outlive this. Throws
  /// InvalidInput for products with too many inputs, and where memory does not suffice.
  QuantizedLayers(const Llama& network, const OperandFormat& weights,
                  const OperandFormat& activations, const std::vector<Extremes>& extremes,
                  unsigned threads);

  void multiply(std::size_t layer, Linear which, ConstRows x, std::size_t rows, Range inputs,
                Rows y) override;

 private:
  /// One of the two, or neither where weights stay as they are.
  struct Weights {
    Int8Matrix codes = {};
    std::optional<Matrix> values = {};
    std::vector<float> scales = {};  ///< scales of fp8 codes' values
    std::optional<Int8Scale> input_scale = {};
  };

  const Llama& network_;
  OperandFormat activations_;
  bool codes_;  ///< products of codes
  unsigned threads_;
  std::vector<Weights> weights_;  // by layer and Linear
};

}  // namespace arlab::models

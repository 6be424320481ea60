// Finds the layers of a network that compression hurts, and a codec that suffices for each.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "experiments/models/compressed.h"
#include "experiments/models/perplexity.h"

namespace arlab::models {

/// How far two networks' states are apart after a layer: the sums that the residual stream holds.
struct StateError {
  double signal = 0;
  double error = 0;
  std::vector<float> token_sqnr_db;
};

/// For every layer: the network with only this layer's sums compressed, in place of the whole.
/// `compressed` has all layers; `of_chunk` is called after each chunk.
std::vector<TokenFigures> one_layer_at_a_time(const Llama& network,
                                              const std::vector<std::vector<TokenId>>& chunks,
                                              CompressedAllReduce& compressed, unsigned threads,
                                              const std::function<void()>& of_chunk);

/// For every layer: the state behind it with all sums compressed, against that without.
std::vector<StateError> error_growth(const Llama& network,
                                     const std::vector<std::vector<TokenId>>& chunks,
                                     CompressedAllReduce& compressed, unsigned threads);

/// A codec for every layer, by its index among the candidates.
struct Assignment {
  std::vector<std::size_t> codec_of_layer;
  double wire_bits = 0;             ///< mean over the layers
  double predicted_divergence = 0;  ///< the sum of what each layer does alone
};

/// From every layer with its least divergence to every layer with the fewest bits: in each step the
/// change that costs the least divergence per bit that it saves. `divergence` [layers][codecs] of one
/// layer alone; `wire_bits` [codecs]. A NaN is no candidate.
std::vector<Assignment> greedy_assignments(const std::vector<std::vector<double>>& divergence,
                                           const std::vector<double>& wire_bits);

}  // namespace arlab::models

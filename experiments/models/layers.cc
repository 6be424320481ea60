#include "experiments/models/layers.h"

#include <cmath>
#include <limits>

namespace arlab::models {
namespace {

/// All but one layer are as one rank would compute them.
class OnlyLayer : public TensorParallel {
 public:
  OnlyLayer(CompressedAllReduce& all, std::size_t layer) : all_(all), layer_(layer) {}
  std::size_t ranks() const override { return all_.ranks(); }
  bool splits(std::size_t layer) const override { return layer == layer_; }
  void all_reduce(std::size_t layer, Projection projection, std::span<const float> partial_sums,
                  std::span<float> sum) override {
    all_.all_reduce(layer, projection, partial_sums, sum);
  }

 private:
  CompressedAllReduce& all_;
  std::size_t layer_;
};

/// Returns the input of each layer, and behind these the output of the last one: layers + 1 states.
std::vector<std::vector<float>> states_of(const Llama& network, std::span<const TokenId> ids,
                                          std::span<const float> rotations, TensorParallel* split,
                                          unsigned threads) {
  std::vector<std::vector<float>> states = {network.embedded(ids)};
  for (std::size_t layer = 0; layer < network.layers.size(); ++layer) {
    states.push_back(states.back());
    network.run_layer(layer, states.back(), rotations, split, threads);
  }
  return states;
}

}  // namespace

std::vector<TokenFigures> one_layer_at_a_time(const Llama& network,
                                              const std::vector<std::vector<TokenId>>& chunks,
                                              CompressedAllReduce& compressed, unsigned threads,
                                              const std::function<void()>& of_chunk) {
  const std::size_t layers = network.layers.size();
  std::vector<TokenFigures> figures(layers);
  for (const auto& chunk : chunks) {
    const std::vector<float> rotations = network.rotations(chunk.size());
    const auto states = states_of(network, chunk, rotations, nullptr, threads);
    const std::vector<float> baseline = network.normalized(states.back());
    for (std::size_t only = 0; only < layers; ++only) {
      OnlyLayer split(compressed, only);
      std::vector<float> hidden = states[only];
      for (std::size_t layer = only; layer < layers; ++layer) {
        network.run_layer(layer, hidden, rotations, &split, threads);
      }
      add_chunk(network, chunk, baseline, network.normalized(hidden), threads, figures[only]);
      of_chunk();
    }
  }
  return figures;
}

std::vector<StateError> error_growth(const Llama& network,
                                     const std::vector<std::vector<TokenId>>& chunks,
                                     CompressedAllReduce& compressed, unsigned threads) {
  std::vector<StateError> errors(network.layers.size());
  const std::size_t width = network.shape.hidden;
  for (const auto& chunk : chunks) {
    const std::vector<float> rotations = network.rotations(chunk.size());
    const auto exact = states_of(network, chunk, rotations, nullptr, threads);
    const auto states = states_of(network, chunk, rotations, &compressed, threads);
    for (std::size_t layer = 0; layer < errors.size(); ++layer) {
      for (std::size_t at = 0; at < exact[layer + 1].size(); at += width) {
        double signal = 0;
        double error = 0;
        for (std::size_t i = at; i < at + width; ++i) {
          const double value = exact[layer + 1][i];
          const double difference = double{states[layer + 1][i]} - value;
          signal += value * value;
          error += difference * difference;
        }
        errors[layer].signal += signal;
        errors[layer].error += error;
        errors[layer].token_sqnr_db.push_back(static_cast<float>(10 * std::log10(signal / error)));
      }
    }
  }
  return errors;
}

std::vector<Assignment> greedy_assignments(const std::vector<std::vector<double>>& divergence,
                                           const std::vector<double>& wire_bits) {
  const std::size_t layers = divergence.size();
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto cost = [&](std::size_t layer, std::size_t codec) {
    const double value = divergence[layer][codec];
    return std::isnan(value) ? kNever : value;
  };
  Assignment now;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    std::size_t best = 0;
    for (std::size_t codec = 1; codec < wire_bits.size(); ++codec) {
      const bool less = cost(layer, codec) < cost(layer, best);
      const bool same = cost(layer, codec) == cost(layer, best);
      if (less || (same && wire_bits[codec] < wire_bits[best])) best = codec;
    }
    now.codec_of_layer.push_back(best);
  }
  const auto sum_up = [&] {
    now.wire_bits = now.predicted_divergence = 0;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const std::size_t codec = now.codec_of_layer[layer];
      now.wire_bits += wire_bits[codec] / static_cast<double>(layers);
      now.predicted_divergence += cost(layer, codec);
    }
  };
  sum_up();
  std::vector<Assignment> all = {now};
  while (true) {
    double least = kNever;
    std::size_t at = 0;
    std::size_t to = 0;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const std::size_t from = now.codec_of_layer[layer];
      for (std::size_t codec = 0; codec < wire_bits.size(); ++codec) {
        const double saved = wire_bits[from] - wire_bits[codec];
        if (!(saved > 0)) continue;
        const double rate = (cost(layer, codec) - cost(layer, from)) / saved;
        if (rate < least) {
          least = rate;
          at = layer;
          to = codec;
        }
      }
    }
    if (least == kNever) return all;
    now.codec_of_layer[at] = to;
    sum_up();
    all.push_back(now);
  }
}

}  // namespace arlab::models

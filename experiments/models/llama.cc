#include "experiments/models/llama.h"

#include <algorithm>
#include <cmath>

#include "experiments/models/tailed.h"
#include "reference/error.h"
#include "reference/parallel.h"

namespace arlab::models {
namespace {

/// Rows of the attention that are worked through together.
constexpr std::size_t kQueryTile = 48;
/// Rows of a simple loop that are one piece of work.
constexpr std::size_t kRowTile = 64;

/// Calls body(first, last) for tiles of the rows.
template <class Body>
void for_row_tiles(std::size_t rows, unsigned threads, Body body) {
  parallel_for((rows + kRowTile - 1) / kRowTile, threads, [&](unsigned, std::size_t tile) {
    body(tile * kRowTile, std::min((tile + 1) * kRowTile, rows));
  });
}

void rms_norm(const float* x, std::span<const float> weight, double epsilon, float* to) {
  double squares = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) squares += double{x[i]} * double{x[i]};
  const double count = static_cast<double>(weight.size());
  const auto factor = static_cast<float>(1 / std::sqrt(squares / count + epsilon));
  for (std::size_t i = 0; i < weight.size(); ++i) to[i] = x[i] * factor * weight[i];
}

/// Turns all heads of one token.
void rotate(std::span<float> x, std::span<const float> rotation) {
  for (std::size_t at = 0; at < x.size(); at += rotation.size()) {
    for (std::size_t i = 0; i < rotation.size(); i += 2) {
      const float even = x[at + i];
      const float odd = x[at + i + 1];
      x[at + i] = even * rotation[i] - odd * rotation[i + 1];
      x[at + i + 1] = even * rotation[i + 1] + odd * rotation[i];
    }
  }
}

}  // namespace

const Matrix& Llama::weights(std::size_t layer, Linear which) const {
  const LlamaLayer& l = layers[layer];
  const Matrix* const all[kLinears] = {&l.query, &l.key, &l.value,   &l.attention_output,
                                       &l.gate,  &l.up,  &l.ffn_down};
  return *all[static_cast<std::size_t>(which)];
}

std::vector<float> Llama::embedded(std::span<const TokenId> ids) const {
  std::vector<float> rows;
  rows.reserve(ids.size() * shape.hidden);
  for (const TokenId id : ids) {
    if (id >= shape.vocabulary) fail("token {}: there are {}", id, shape.vocabulary);
    for (std::size_t i = 0; i < shape.hidden; ++i) rows.push_back(embedding.at(id, i));
  }
  return rows;
}

std::vector<float> Llama::rotations(std::size_t tokens) const {
  std::vector<float> table;
  table.reserve(tokens * shape.head_size);
  for (std::size_t token = 0; token < tokens; ++token) {
    for (const double frequency : shape.frequencies) {
      const double angle = static_cast<double>(token) * frequency;
      table.push_back(static_cast<float>(std::cos(angle)));
      table.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

void Llama::run_layer(std::size_t index, std::span<float> hidden, std::span<const float> rotations,
                      TensorParallel* split, unsigned threads, LinearLayers* linears,
                      TailedState* tailed) const {
  const LlamaLayer& layer = layers[index];
  const std::size_t width = shape.hidden;
  const std::size_t tokens = hidden.size() / width;
  const std::size_t size = shape.head_size;
  const std::size_t attended = shape.attended();
  const std::size_t narrow = shape.key_value_heads * size;

  std::vector<float> normal(hidden.size());
  const auto normalize = [&](std::span<const float> weight) {
    if (tailed != nullptr) return tailed->normalize(hidden, weight, normal);
    for_row_tiles(tokens, threads, [&](std::size_t first, std::size_t last) {
      for (std::size_t row = first; row < last; ++row) {
        rms_norm(&hidden[row * width], weight, shape.norm_epsilon, &normal[row * width]);
      }
    });
  };
  const auto product = [&](const std::vector<float>& x, Linear which, Range inputs, Rows y) {
    const Matrix& w = weights(index, which);
    if (linears != nullptr)
      return linears->multiply(index, which, {x.data(), w.in()}, tokens, inputs, y);
    multiply({x.data(), w.in()}, tokens, w, inputs, y, threads);
  };
  const auto times = [&](const std::vector<float>& x, Linear which) {
    const Matrix& w = weights(index, which);
    std::vector<float> y(tokens * w.out());
    product(x, which, {0, w.in()}, {y.data(), w.out()});
    return y;
  };
  /// hidden += x W, by way of the ranks where there are some.
  const auto add_projected = [&](const std::vector<float>& x, Linear linear, Projection which) {
    std::vector<float> sum;
    if (split == nullptr || !split->splits(index)) {
      sum = times(x, linear);
    } else {
      const std::size_t ranks = split->ranks();
      const std::size_t part = weights(index, linear).in() / ranks;
      std::vector<float> partial_sums(ranks * hidden.size());
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        product(x, linear, {rank * part, (rank + 1) * part},
                {&partial_sums[rank * hidden.size()], width});
      }
      sum.resize(hidden.size());
      split->all_reduce(index, which, partial_sums, sum);
    }
    if (tailed != nullptr) return tailed->add(std::move(sum));
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] += sum[i];
  };

  normalize(layer.attention_norm);
  std::vector<float> query = times(normal, Linear::query);
  std::vector<float> key = times(normal, Linear::key);
  const std::vector<float> value = times(normal, Linear::value);
  for_row_tiles(tokens, threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t row = first; row < last; ++row) {
      const auto rotation = rotations.subspan(row * size, size);
      rotate({&query[row * attended], attended}, rotation);
      rotate({&key[row * narrow], narrow}, rotation);
    }
  });

  std::vector<Matrix> keys(shape.key_value_heads);    // [tokens, head_size]
  std::vector<Matrix> values(shape.key_value_heads);  // [head_size, tokens]
  parallel_for(keys.size(), threads, [&](unsigned, std::size_t head) {
    keys[head] = Matrix(&key[head * size], tokens, size, narrow, 1);
    values[head] = Matrix(&value[head * size], size, tokens, 1, narrow);
  });
  const bool finite =
      std::all_of(value.begin(), value.end(), [](float v) { return std::isfinite(v); });
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
  for (float& q : query) q *= scale;
  std::vector<float> context(tokens * attended);
  const std::size_t tiles = (tokens + kQueryTile - 1) / kQueryTile;
  parallel_for(tiles * shape.heads, threads, [&](unsigned, std::size_t piece) {
    const std::size_t head = piece % shape.heads;
    // Those with the most to do first.
    const std::size_t first = (tiles - 1 - piece / shape.heads) * kQueryTile;
    const std::size_t last = std::min(first + kQueryTile, tokens);
    const std::size_t shared = head / (shape.heads / shape.key_value_heads);
    std::vector<float> scores((last - first) * last);
    const Range panels = {0, (last + Matrix::kPanel - 1) / Matrix::kPanel};
    // Keys of the last panel that are behind the last query are not asked for.
    std::vector<float> wide((last - first) * panels.end * Matrix::kPanel);
    const std::size_t wide_row = panels.end * Matrix::kPanel;
    multiply_tile({&query[first * attended + head * size], attended}, last - first, keys[shared],
                  {0, size}, panels, {wide.data(), wide_row});
    for (std::size_t row = first; row < last; ++row) {
      float* const weights = &scores[(row - first) * last];
      std::copy_n(&wide[(row - first) * wide_row], row + 1, weights);
      softmax({weights, row + 1});  // later tokens keep the weight 0
    }
    const Range all = {0, values[shared].panels()};
    float* const to = &context[first * attended + head * size];
    if (finite) {
      multiply_tile({scores.data(), last}, last - first, values[shared], {0, last}, all,
                    {to, attended});
      return;
    }
    // 0 times a value of a later token that is not finite would be no 0.
    for (std::size_t row = 0; row < last - first; ++row) {
      multiply_tile({&scores[row * last], last}, 1, values[shared], {0, first + row + 1}, all,
                    {to + row * attended, attended});
    }
  });
  add_projected(context, Linear::attention_output, Projection::attention_output);

  normalize(layer.ffn_norm);
  std::vector<float> gate = times(normal, Linear::gate);
  const std::vector<float> up = times(normal, Linear::up);
  for_row_tiles(tokens, threads, [&](std::size_t first, std::size_t last) {
    const std::size_t begin = first * shape.ffn;
    const std::size_t count = (last - first) * shape.ffn;
    swiglu({&gate[begin], count}, {&up[begin], count});
  });
  add_projected(gate, Linear::ffn_down, Projection::ffn_down);
}

std::vector<float> Llama::normalized(std::span<const float> hidden) const {
  std::vector<float> normal(hidden.size());
  for (std::size_t at = 0; at < hidden.size(); at += shape.hidden) {
    rms_norm(&hidden[at], output_norm, shape.norm_epsilon, &normal[at]);
  }
  return normal;
}

std::vector<float> Llama::run(std::span<const TokenId> ids, TensorParallel* split, unsigned threads,
                              LinearLayers* linears, TailedState* tailed) const {
  std::vector<float> hidden = embedded(ids);
  const std::vector<float> table = rotations(ids.size());
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    run_layer(layer, hidden, table, split, threads, linears, tailed);
  }
  if (tailed == nullptr) return normalized(hidden);
  std::vector<float> normal(hidden.size());
  tailed->normalize(hidden, output_norm, normal);
  return normal;
}

void Llama::require_splits(std::size_t ranks) const {
  for (const std::size_t inputs : {shape.attended(), shape.ffn}) {
    if (inputs % ranks != 0) {
      fail(
          "{} ranks cannot hold equal parts of the {} inputs of a projection: allowed are divisors "
          "of {} and {}",
          ranks, inputs, shape.attended(), shape.ffn);
    }
  }
}

}  // namespace arlab::models

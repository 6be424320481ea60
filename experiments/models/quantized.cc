#include "experiments/models/quantized.h"

#include <algorithm>
#include <limits>

#include "reference/error.h"
#include "reference/memory.h"
#include "reference/parallel.h"

namespace arlab::models {
namespace {

using Kind = OperandFormat::Kind;

/// Rows that are quantized together.
constexpr std::size_t kTile = 32;

std::size_t index_of(std::size_t layer, Linear which) {
  return layer * kLinears + static_cast<std::size_t>(which);
}

std::vector<float> rows_of(const Matrix& w) {
  std::vector<float> rows;
  rows.reserve(w.out() * w.in());
  for (std::size_t o = 0; o < w.out(); ++o) {
    for (std::size_t i = 0; i < w.in(); ++i) rows.push_back(w.at(o, i));
  }
  return rows;
}

/// Multiplies in fp32, and looks at what is multiplied.
class WatchedLayers : public LinearLayers {
 public:
  WatchedLayers(const Llama& network, unsigned threads)
      : network_(network), threads_(threads), extremes_(network.layers.size() * kLinears) {}

  void multiply(std::size_t layer, Linear which, ConstRows x, std::size_t rows, Range inputs,
                Rows y) override {
    const std::size_t count = inputs.end - inputs.begin;
    extremes_[index_of(layer, which)].add(
        extremes_of({x.data + inputs.begin, rows, count, x.stride}));
    models::multiply(x, rows, network_.weights(layer, which), inputs, y, threads_);
  }
  std::vector<Extremes> extremes() && { return std::move(extremes_); }

 private:
  const Llama& network_;
  unsigned threads_;
  std::vector<Extremes> extremes_;
};

}  // namespace

std::vector<Extremes> input_extremes(const Llama& network,
                                     const std::vector<std::vector<TokenId>>& chunks,
                                     unsigned threads, const std::function<void()>& of_chunk) {
  WatchedLayers watched(network, threads);
  for (const auto& chunk : chunks) {
    network.run(chunk, nullptr, threads, &watched);
    of_chunk();
  }
  return std::move(watched).extremes();
}

QuantizedLayers::QuantizedLayers(const Llama& network, const OperandFormat& weights,
                                 const OperandFormat& activations,
                                 const std::vector<Extremes>& extremes, unsigned threads)
    : network_(network),
      activations_(activations),
      codes_(multiplies_codes(activations, weights)),
      threads_(threads),
      weights_(network.layers.size() * kLinears) {
  const bool integers = codes_ && weights.kind == Kind::int8;
  std::size_t elements = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const Matrix& w = network.weights(i / kLinears, static_cast<Linear>(i % kLinears));
    elements += w.out() * w.in();
    const std::size_t limit = int8_inputs_limit(activations.asymmetric, weights.asymmetric);
    if (integers && w.in() > limit) {
      fail("{} inputs: sums of such int8 layers fit in 32 bits with at most {}", w.in(), limit);
    }
    if (activations.given) {
      if (!extremes.at(i).finite()) fail("calibration: inputs of layer {} are not finite", i / 7);
      weights_[i].input_scale = scale_of(extremes[i], activations);
    }
  }
  if (weights.kind == Kind::none) return;
  require_memory(elements * (integers ? 1 : sizeof(float)), "the quantized weights");
  parallel_for(weights_.size(), threads, [&](unsigned, std::size_t i) {
    const Matrix& w = network.weights(i / kLinears, static_cast<Linear>(i % kLinears));
    const std::vector<float> rows = rows_of(w);
    const FloatRows view = {rows.data(), w.out(), w.in(), w.in()};
    Weights& to = weights_[i];
    if (integers) {
      to.codes = quantize_int8(view, weights, std::nullopt, 1);
      return;
    }
    FloatOperand q = codes_ ? quantize_fp8(view, weights) : decoded(view, weights);
    to.values = Matrix(q.values, q.rows, q.columns);
    to.scales = std::move(q.scales);
  });
}

void QuantizedLayers::multiply(std::size_t layer, Linear which, ConstRows x, std::size_t rows,
                               Range inputs, Rows y) {
  const Weights& w = weights_[index_of(layer, which)];
  const std::size_t count = inputs.end - inputs.begin;
  const FloatRows part = {x.data + inputs.begin, rows, count, x.stride};
  if (w.codes.rows != 0) {
    const Int8Matrix q = quantize_int8(part, activations_, w.input_scale, threads_);
    const bool whole = count == w.codes.columns;
    const Int8Panels panels(whole ? w.codes : w.codes.part(inputs.begin, inputs.end));
    panels.multiply(q, y.data, y.stride, threads_);
    return;
  }
  const Matrix& values = w.values ? *w.values : network_.weights(layer, which);
  if (activations_.kind == Kind::none) {
    return models::multiply(x, rows, values, inputs, y, threads_);
  }
  // Tokens by themselves, so that threads share the work: a scale of all of them is found before.
  OperandFormat format = activations_;
  std::optional<Int8Scale> given = w.input_scale;
  if (format.per_tensor && !format.given) {
    given = scale_of(extremes_of(part), format);
    format.given = true;
    if (!(given->scale <= std::numeric_limits<float>::max())) {
      for (std::size_t r = 0; r < rows; ++r) {
        std::fill_n(y.data + r * y.stride, values.out(), given->scale);
      }
      return;
    }
  }
  // Behind as many places as inputs come before these, for multiply() counts from the first of all.
  std::vector<float> quantized(inputs.begin + rows * count);
  std::vector<float> scales(codes_ ? rows : 0);
  parallel_for((rows + kTile - 1) / kTile, threads_, [&](unsigned, std::size_t tile) {
    const std::size_t first = tile * kTile;
    const FloatRows some = {part.data + first * part.stride, std::min(kTile, rows - first), count,
                            part.stride};
    const FloatOperand q =
        codes_ ? quantize_fp8(some, format, given ? std::optional(given->scale) : std::nullopt)
               : decoded(some, format, given);
    std::copy(q.values.begin(), q.values.end(), &quantized[inputs.begin + first * count]);
    std::copy(q.scales.begin(), q.scales.end(),
              scales.begin() + static_cast<std::ptrdiff_t>(first));
  });
  models::multiply({quantized.data(), count}, rows, values, inputs, y, threads_);
  if (!codes_) return;
  parallel_for(rows, threads_, [&](unsigned, std::size_t r) {
    float* const row = y.data + r * y.stride;
    for (std::size_t o = 0; o < values.out(); ++o) {
      row[o] = scaled_output(row[o], scales[r], w.scales[o]);
    }
  });
}

}  // namespace arlab::models

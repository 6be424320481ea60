#include "experiments/models/perplexity.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/parallel.h"

namespace arlab::models {
namespace {

/// Tokens whose logits are computed together.
constexpr std::size_t kTile = 48;

struct Moments {
  double mean = 0;
  std::optional<double> standard_error;  ///< standard error of the mean
};
/// By batch means: how far the sums of blocks are from what the mean makes of them. The last block may
/// be shorter, and then weighs less.
Moments moments_of(std::span<const double> values) {
  Moments m;
  const double count = static_cast<double>(values.size());
  for (const double value : values) m.mean += value;
  m.mean /= count;
  double squares = 0;
  double blocks = 0;
  for (std::size_t at = 0; at < values.size(); at += kErrorBlock, ++blocks) {
    double off = 0;
    for (const double value : values.subspan(at, std::min(kErrorBlock, values.size() - at))) {
      off += value - m.mean;
    }
    squares += off * off;
  }
  if (blocks > 1) m.standard_error = std::sqrt(squares * blocks / (blocks - 1)) / count;
  return m;
}

std::size_t likeliest(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

std::vector<std::vector<TokenId>> chunks_of(std::span<const TokenId> ids, std::size_t context) {
  std::vector<std::vector<TokenId>> chunks;
  for (std::size_t at = 0; at < ids.size(); at += context) {
    const auto chunk = ids.subspan(at, std::min(context, ids.size() - at));
    if (chunk.size() == context || chunk.size() >= kShortestRest) {
      chunks.emplace_back(chunk.begin(), chunk.end());
    }
  }
  return chunks;
}

void add_chunk(const Llama& network, std::span<const TokenId> ids, std::span<const float> baseline,
               std::span<const float> hidden, unsigned threads, TokenFigures& figures) {
  const std::size_t scored = ids.size() - 1;
  const std::size_t width = network.shape.hidden;
  const Matrix& head = network.head();
  const std::size_t start = figures.loss.size();
  for (auto* list : {&figures.loss, &figures.baseline_loss, &figures.divergence}) {
    list->resize(start + scored);
  }
  std::vector<char> agrees(scored);
  parallel_for((scored + kTile - 1) / kTile, threads, [&](unsigned, std::size_t tile) {
    const std::size_t first = tile * kTile;
    const std::size_t rows = std::min(kTile, scored - first);
    const std::size_t count = head.out();
    std::vector<float> logits(2 * rows * count);
    const Range inputs = {0, width};
    const Range panels = {0, head.panels()};
    multiply_tile({&baseline[first * width], width}, rows, head, inputs, panels,
                  {logits.data(), count});
    multiply_tile({&hidden[first * width], width}, rows, head, inputs, panels,
                  {&logits[rows * count], count});
    for (std::size_t row = 0; row < rows; ++row) {
      const std::span<const float> p(&logits[row * count], count);
      const std::span<const float> q(&logits[(rows + row) * count], count);
      const std::size_t at = start + first + row;
      const TokenId next = ids[first + row + 1];
      const double p_log_sum = log_sum_exp(p);
      figures.baseline_loss[at] = p_log_sum - double{p[next]};
      const auto own = hidden.subspan((first + row) * width, width);
      if (!std::all_of(own.begin(), own.end(), [](float x) { return std::isfinite(x); })) {
        figures.loss[at] = figures.divergence[at] = std::numeric_limits<double>::quiet_NaN();
        continue;
      }
      const double q_log_sum = log_sum_exp(q);
      figures.loss[at] = q_log_sum - double{q[next]};
      figures.divergence[at] = divergence(p, p_log_sum, q, q_log_sum);
      agrees[first + row] = likeliest(p) == likeliest(q) ? 1 : 0;
    }
  });
  for (std::size_t i = 0; i < scored; ++i) {
    figures.agreed += static_cast<std::size_t>(agrees[i]);
    figures.non_finite += std::isfinite(figures.loss[start + i]) ? 0 : 1;
  }
}

PerplexitySummary summary_of(const TokenFigures& figures) {
  PerplexitySummary s;
  s.scored = figures.loss.size();
  s.baseline_perplexity = std::exp(moments_of(figures.baseline_loss).mean);
  s.agreement_percent = 100 * static_cast<double>(figures.agreed) / static_cast<double>(s.scored);
  if (figures.non_finite > 0) return s;
  const Moments loss = moments_of(figures.loss);
  s.perplexity = std::exp(loss.mean);
  // The error of e^x, where x is off by its standard error.
  if (loss.standard_error) s.perplexity_standard_error = *s.perplexity * *loss.standard_error;
  std::vector<double> change = figures.loss;
  for (std::size_t i = 0; i < change.size(); ++i) change[i] -= figures.baseline_loss[i];
  const Moments ratio = moments_of(change);
  s.log_ratio = ratio.mean;
  s.log_ratio_standard_error = ratio.standard_error;
  const Moments divergence = moments_of(figures.divergence);
  s.mean_divergence = divergence.mean;
  s.divergence_standard_error = divergence.standard_error;
  std::vector<double> sorted = figures.divergence;
  const std::size_t rank = (99 * sorted.size() + 99) / 100 - 1;  // the least with 99 % up to it
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(rank),
                   sorted.end());
  s.p99_divergence = sorted[rank];
  return s;
}

}  // namespace arlab::models

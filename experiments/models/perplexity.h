// How well a network predicts a text, and how far it is from itself uncompressed.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "experiments/models/llama.h"

namespace arlab::models {

/// Shorter rests of a text are left out.
inline constexpr std::size_t kShortestRest = 64;

/// Consecutive parts of `context` tokens; the rest, if it has kShortestRest or more.
std::vector<std::vector<TokenId>> chunks_of(std::span<const TokenId> ids, std::size_t context);

/// The model's prediction of every token of a text but each chunk's first, given those before it.
struct TokenFigures {
  std::vector<double> loss;           ///< -ln of its probability, nats
  std::vector<double> baseline_loss;  ///< without compression
  std::vector<double> divergence;     ///< KL of all next tokens' probabilities, nats
  std::size_t agreed = 0;             ///< the likeliest next token is the same

  /// Values that are not finite anywhere in the network make NaNs of these.
  std::size_t non_finite = 0;
};

/// Adds a chunk: `hidden` and `baseline` are results of Llama::run for its tokens.
void add_chunk(const Llama& network, std::span<const TokenId> ids, std::span<const float> baseline,
               std::span<const float> hidden, unsigned threads, TokenFigures& figures);

/// Losses of tokens that follow each other depend on each other, so standard errors take blocks of so
/// many tokens as what is independent.
inline constexpr std::size_t kErrorBlock = 64;

/// Figures do not exist where anything was not finite, standard errors also where there is only one
/// block.
struct PerplexitySummary {
  std::size_t scored = 0;  ///< tokens that were predicted
  std::optional<double> perplexity;
  std::optional<double> perplexity_standard_error;
  double baseline_perplexity = 0;
  /// ln(perplexity / baseline): the mean of what each token's loss has changed by. Difficult text is in both, so its error is
  /// far smaller than that of either.
  std::optional<double> log_ratio;
  std::optional<double> log_ratio_standard_error;
  std::optional<double> mean_divergence;
  std::optional<double> divergence_standard_error;
  std::optional<double> p99_divergence;  ///< 1 % of the tokens have more
  double agreement_percent = 0;
};
PerplexitySummary summary_of(const TokenFigures& figures);

}  // namespace arlab::models

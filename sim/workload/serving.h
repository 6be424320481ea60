// Requests that arrive at a model while it is busy: a queue, and batches that sequences join and
// leave between steps (continuous batching).
//
// One step at a time. If requests wait and there is room, the next step is a prefill of as many of
// their prompts as fit, in the order in which they came; it ends with the first token of each. Else
// it is one more token for every sequence. A sequence leaves with its last token. No request waits for
// memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/workload/layer.h"

namespace arlab {

struct ServedRequest {
  double arrival_us = 0;
  std::uint32_t prompt_tokens = 1;
  std::uint32_t output_tokens = 1;
};

struct BatchLimits {
  std::uint32_t sequences = 64;  ///< at once
  std::uint32_t tokens = 8192;   ///< most tokens of the prompts of one prefill
};

/// Returns a step's time in us for sequences with so many tokens each: of the prompt, or already present.
using StepTime = std::function<double(Phase, const std::vector<std::uint64_t>&)>;

/// Waiting times of requests, in us.
struct ServingTimes {
  std::vector<double> first_token;     ///< by request, from its arrival
  std::vector<double> per_token;       ///< mean time between tokens, of requests of several
  std::vector<double> between_tokens;  ///< each time from a token to the next one of its request
  double end = 0;                      ///< end of the last step
  double mean_batch = 0;               ///< sequences of a step that makes one more token for each
  std::size_t most_waiting = 0;        ///< requests that were not begun, at most
};

/// Most tokens of all outputs: so many take up to a minute.
inline constexpr std::uint64_t kMostServedTokens = 2'000'000;

/// Serves requests, which are in the order of their arrivals. Throws InvalidInput when a prompt is
/// longer than a prefill may be, or there are too many tokens; so does capacity_per_s().
ServingTimes serve(std::span<const ServedRequest> requests, const BatchLimits& limits,
                   const StepTime& step_us);

/// Requests per second that are served while others always wait, of such requests: of a full batch
/// whose sequences are at all stages.
double capacity_per_s(const ServedRequest& each, const BatchLimits& limits,
                      const StepTime& step_us);

/// Requests alike that arrive independently of each other, so many per second on average (a Poisson
/// process). They follow from the seed, with the same bits everywhere.
std::vector<ServedRequest> poisson_arrivals(const ServedRequest& each, double per_s,
                                            std::uint32_t requests, std::uint64_t seed);

/// Reads a CSV file with the columns arrival_s, prompt_tokens and output_tokens; in the order of the
/// arrivals, whatever that of the rows. Throws InvalidInput: file, line, what is allowed.
std::vector<ServedRequest> read_arrivals(const std::filesystem::path& path);

}  // namespace arlab

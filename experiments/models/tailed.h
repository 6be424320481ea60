// The state of a network whose all-reduces have a tail: the sum is added to it and normalized where a fused kernel would.
#pragma once

#include <span>
#include <vector>

#include "reference/dtype.h"
#include "reference/tails/tail.h"

namespace arlab::models {

/// The state of one chunk's tokens, rounded to the dtype. Products take what comes out of the tail, decoded where it
/// is quantized.
class TailedState {
 public:
  /// `tail` adds a residual, normalizes, and has `hidden` and the network's eps.
  TailedState(const Tail& tail, DType dtype, unsigned threads)
      : tail_(tail), dtype_(dtype), threads_(threads) {}

  /// The sum that an all-reduce has given: added when the state is normalized next.
  void add(std::vector<float> sum) { sum_ = std::move(sum); }
  /// `state` [tokens, hidden] becomes the next one, and `normal` what products take.
  void normalize(std::span<float> state, std::span<const float> weight, std::span<float> normal);

 private:
  std::vector<std::byte> rounded(std::span<const float> values) const;

  const Tail tail_;
  const DType dtype_;
  const unsigned threads_;
  std::vector<float> sum_;
};

}  // namespace arlab::models

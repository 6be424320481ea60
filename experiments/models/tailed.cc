#include "experiments/models/tailed.h"

#include <algorithm>

#include "reference/tensors/tensor.h"

namespace arlab::models {

std::vector<std::byte> TailedState::rounded(std::span<const float> values) const {
  return tensor_from_floats(dtype_, {values.size()}, values).data;
}

void TailedState::normalize(std::span<float> state, std::span<const float> weight,
                            std::span<float> normal) {
  const auto put = [&](const std::vector<std::byte>& made, std::span<float> to) {
    std::ranges::copy(to_floats({dtype_, {to.size()}, made}), to.begin());
  };
  const std::vector<std::byte> before = rounded(state);
  Tail tail = tail_;
  TailResult made;
  if (sum_.empty()) {  // the embedding's state, which is no sum
    tail.adds_residual = false;
    tail.rounding.keeps_sum = tail.rounding.keeps_residual = false;
    made = run_tail(tail, dtype_, state, {}, rounded(weight), threads_);
    put(before, state);
  } else {
    made = run_tail(tail, dtype_, sum_, before, rounded(weight), threads_);
    put(made.residual, state);
    sum_.clear();
  }
  put(made.quantized.empty() ? made.normalized : made.quantized, normal);
}

}  // namespace arlab::models

// A schedule run on a tensor, and the world sizes of tests about all of them.
#pragma once

#include <algorithm>
#include <vector>

#include "reference/collectives/executor.h"
#include "reference/tensors/tensor.h"
#include "tests/collectives/variants.h"

namespace arlab::testing {

/// 1 to 17, and 64.
inline std::vector<Rank> world_sizes() {
  std::vector<Rank> sizes;
  for (Rank n = 1; n <= 17; ++n) sizes.push_back(n);
  sizes.push_back(64);
  return sizes;
}

/// The outputs; what a schedule does not write to is 0xA5.
inline Tensor run(const Schedule& schedule, const Codec& codec, const Tensor& inputs,
                  const ExecuteOptions& options = {}) {
  Tensor outputs = make_tensor(inputs.dtype, inputs.shape);
  std::ranges::fill(outputs.bytes(), std::byte{0xA5});
  execute(schedule, codec, inputs.dtype, inputs.bytes(), outputs.bytes(), options);
  return outputs;
}

/// With chunks as the codec wants them.
inline Tensor run(const Variant& variant, const Codec& codec, const Tensor& inputs,
                  const ExecuteOptions& options = {}) {
  const Schedule schedule = schedule_of(variant, static_cast<Rank>(inputs.ranks()),
                                        inputs.elements_per_rank(), codec.info().alignment);
  return run(schedule, codec, inputs, options);
}

}  // namespace arlab::testing

// Is this all-reduce the one that it claims to be, bit for bit?
//
// The candidate may be anything that takes the inputs of all ranks and writes the outputs of all
// ranks. It is called once per input, in order, with outputs full of rubbish. Every input differs
// on every rank and from all others, so that old results and the results of other ranks are seen.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reference/collectives/executor.h"
#include "reference/tensors/synthetic.h"
#include "tests/collectives/oracle.h"
#include "tests/collectives/variants.h"

namespace arlab::testing {

using AllReduce =
    std::function<void(std::span<const std::byte> inputs, std::span<std::byte> outputs)>;

/// What a candidate claims to compute.
struct Claim {
  Variant variant;
  CodecPtr codec;
  DType dtype;
  Rank world_size;
  std::size_t elements;
  Accumulate accumulate = Accumulate::native;
};

struct ConformanceInput {
  std::string name;
  Tensor tensor;
};

/// Calls visit(rank, element, pattern) for every element, to read or change it.
template <class Visit>
void for_each_element(Tensor& tensor, Visit&& visit) {
  for (std::size_t rank = 0; rank < tensor.ranks(); ++rank) {
    Patterns patterns = patterns_of(tensor.dtype, tensor.rank_bytes(rank));
    for (std::size_t i = 0; i < patterns.size(); ++i) visit(rank, i, patterns[i]);
    std::ranges::copy(bytes_of(tensor.dtype, patterns), tensor.rank_bytes(rank).begin());
  }
}

inline std::vector<ConformanceInput> conformance_inputs(const Claim& claim) {
  const DType dtype = claim.dtype;
  const auto synthetic = [&](const std::string& spec) {
    return make_synthetic(spec, dtype, claim.world_size, claim.elements);
  };
  std::vector<ConformanceInput> inputs = {
      {"gaussian", synthetic("gaussian:seed=21")},
      {"adversarial", synthetic("adversarial:non_finite=0,seed=22")},
      {"non-finite", synthetic("adversarial:non_finite=0.5,seed=23")}};

  // Small integers: sums are exact in any order, so that only blunders show.
  Tensor integers = synthetic("gaussian:seed=24");
  for_each_element(integers, [&](std::size_t rank, std::size_t i, std::uint32_t& pattern) {
    pattern = pattern_of(dtype, static_cast<double>((i * 5 + rank * 2 + i / 7) % 9) - 4);
  });
  inputs.push_back({"integers", integers});

  // Whole blocks in which every rank has -0, then blocks in which every rank has +0: what a sum
  // starts from shows in the sign of its zeros.
  Tensor zeros = synthetic("gaussian:seed=25");
  for_each_element(zeros, [&](std::size_t, std::size_t i, std::uint32_t& pattern) {
    if (i / 64 % 3 == 0) pattern = pattern_of(dtype, -0.0);
    if (i / 64 % 3 == 1) pattern = pattern_of(dtype, 0.0);
  });
  inputs.push_back({"zeros", zeros});

  // Close to the largest finite value: sums overflow, and where they clamp the last rank brings
  // half of them back.
  const double largest = dtype == DType::fp16 ? 65504 : 3e38;
  Tensor huge = synthetic("uniform:low=0.5,high=1,seed=26");
  for_each_element(huge, [&](std::size_t rank, std::size_t i, std::uint32_t& pattern) {
    const double sign = rank + 1 == claim.world_size && i % 2 == 1 ? -1 : 1;
    pattern = pattern_of(dtype, nearest(dtype, sign * largest * value_of(dtype, pattern)));
  });
  inputs.push_back({"huge", huge});

  // One rank at a time is large; the others vanish beside it, and all on the same side.
  Tensor uneven = synthetic("uniform:low=0.5,high=1,seed=27");
  for_each_element(uneven, [&](std::size_t rank, std::size_t i, std::uint32_t& pattern) {
    const double scale = i % claim.world_size == rank ? 1024 : 0.25;
    pattern = pattern_of(dtype, scale * value_of(dtype, pattern));
  });
  inputs.push_back({"uneven", uneven});

  // Subnormals of fp16, whose sums stay subnormal. QuickReduce flushes most of them to zero.
  inputs.push_back({"tiny", synthetic("uniform:low=-3e-6,high=3e-6,seed=28")});
  return inputs;
}

struct Mismatch {
  std::string input;
  std::string where;  ///< the first element that differs, in words
};

/// Every input for which the candidate's bits are not the reference's; empty when it conforms.
inline std::vector<Mismatch> mismatches(const Claim& claim, const AllReduce& candidate) {
  const Schedule schedule =
      schedule_of(claim.variant, claim.world_size, claim.elements, claim.codec->info().alignment);
  std::vector<Mismatch> mismatches;
  for (const auto& [name, inputs] : conformance_inputs(claim)) {
    Tensor expected = make_tensor(claim.dtype, inputs.shape);
    execute(schedule, *claim.codec, claim.dtype, inputs.bytes(), expected.bytes(),
            {.accumulate = claim.accumulate});
    Tensor outputs = make_tensor(claim.dtype, inputs.shape);
    std::ranges::fill(outputs.bytes(), std::byte{0xA5});
    candidate(inputs.bytes(), outputs.bytes());

    const auto at = std::ranges::mismatch(outputs.data, expected.data).in1;
    if (at == outputs.data.end()) continue;
    const auto element = static_cast<std::size_t>(at - outputs.data.begin()) / size_of(claim.dtype);
    mismatches.push_back({name, fmt::format("{}: rank {}, element {}: {:#x}, not {:#x}", name,
                                            element / claim.elements, element % claim.elements,
                                            patterns_of(claim.dtype, outputs.bytes())[element],
                                            patterns_of(claim.dtype, expected.bytes())[element])});
  }
  return mismatches;
}

}  // namespace arlab::testing

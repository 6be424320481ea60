// Calls of which no two are the same, and what ranks say that make different ones.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/runtime/collective_request.h"

namespace arlab::kernels {

/// Kernels with flags and with sentinels, for small tensors and for others, and in stages.
inline std::vector<CollectiveRequest> differing_requests() {
  return {{"two_shot", "qr-q4", DType::fp16, 5000},
          {"two_shot", "qr-q4", DType::fp16, 4999},
          {"two_shot", "qr-q4", DType::bf16, 5000},
          {"two_shot", "qr-q8", DType::fp16, 5000},
          {"two_shot", "fp16", DType::fp16, 60000},
          {"two_shot", "fp32", DType::fp32, 5000},
          {"one_shot", "qr-q4", DType::fp16, 5000},
          {"ring", "qr-q4", DType::fp16, 5000},
          {"two_shot", "nvfp4", DType::fp16, 5000},
          {"all_to_all", "fp16", DType::fp16, 12},
          {"hierarchical", "qr-q4", DType::fp16, 5000, {{"inner_codec", "fp16"}}},
          {"hierarchical", "qr-q4", DType::fp16, 5000, {{"inner_codec", "qr-q8"}}},
          {"two_shot", "qr-q4", DType::fp16, 5000, {}, nullptr, 0, {.add = Accumulate::fp32}}};
}

/// All pairs of them, each way round once or the other.
inline std::vector<std::pair<CollectiveRequest, CollectiveRequest>> differing_pairs() {
  const std::vector<CollectiveRequest> requests = differing_requests();
  std::vector<std::pair<CollectiveRequest, CollectiveRequest>> pairs;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (std::size_t j = i + 1; j < requests.size(); ++j) {
      const bool turned = (i + j) % 2 == 0;
      pairs.emplace_back(requests[turned ? j : i], requests[turned ? i : j]);
    }
  }
  return pairs;
}

/// The error of all ranks that two of them are the cause of.
inline std::string differing_calls_error(int rank, const CollectiveRequest& call, int other,
                                         const CollectiveRequest& other_call) {
  const auto text = [](const CollectiveRequest& r) {
    return fmt::format("called {} of {} {} elements with codec {}{}", r.algorithm, r.elements,
                       name_of(r.dtype),
                       r.codec + (r.options.inner_codec() ? "+" + *r.options.inner_codec() : ""),
                       r.sum == Sum{} ? "" : ", sum " + name_of(r.sum));
  };
  return fmt::format(
      "the ranks' calls differ: rank {} {}, rank {} {}{}", rank, text(call), other,
      text(other_call),
      text(call) == text(other_call)
          ? ": what stands behind these names differs, or seeds, options or schedules do"
          : "");
}

}  // namespace arlab::kernels

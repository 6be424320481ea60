// Behind a collective with a given scale (codecs/given_scale.h): all of a block is NaN where its first or its second tile has one.
#pragma once

#include "kernels/codecs/given_scale.h"
#include "kernels/collectives/call.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Elements that a block of threads looks at. Chunks are rows of the launch's blocks.
inline constexpr std::size_t kSpreadElements = kThreads * kNanElements;

template <class Element>
ARLAB_DEVICE void spread_nans(const Call& call) {
  pdl_wait();
  auto* const output = global_pointer(static_cast<typename Element::Bits*>(call.output));
  const ElementRange& chunk = call.chunk[blockIdx.y];
  const std::size_t begin =
      chunk.begin + blockIdx.x * kSpreadElements + thread_index() * kNanElements;
  const bool is_there = begin < chunk.end;
  const bool has_nan = is_there && (output[begin] & 0x7FFFu) > Element::kInfinity;
  constexpr int kLanes = WireChunk::kElements / kNanElements;
  const std::uint32_t block_has_nan =
      group_reduce(has_nan ? 1u : 0u, kLanes,
                   [](std::uint32_t a, std::uint32_t b) ARLAB_INLINED_LAMBDA { return a | b; });
  if (!is_there || block_has_nan == 0) return;
  const std::size_t rest = chunk.end - begin;
  for (std::size_t i = 0; i < (rest < kNanElements ? rest : kNanElements); ++i) {
    output[begin + i] = static_cast<typename Element::Bits>(Element::kNaN);
  }
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

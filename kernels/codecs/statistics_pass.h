// Measures the groups of messages (statistics.h), ahead of what encodes them.
#pragma once

#include "kernels/codecs/two_pass_tile.h"
#include "kernels/transport/team.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Messages whose groups are to be measured.
struct StatisticsPass {
  const void* tensor[kMaxMessages] = {};  ///< the message's tensor
  ElementRange message[kMaxMessages] = {};
  int messages = 0;
  Statistics* statistics = nullptr;  ///< [message][group]; what is behind them is overwritten, too
  std::size_t groups = 0;            ///< the largest message's: entries from message to message
};

/// lanes = 1: a thread per group. lanes = kThreads: a block per part of a group.
template <class Codec, class Element>
ARLAB_DEVICE void measure_groups(const Codec& codec, const StatisticsPass& m, Statistics* results,
                                 std::size_t parts, std::size_t part_elements, unsigned lanes) {
  ARLAB_SHARED_ARRAY(Statistics, shared, kThreads);
  const ElementRange range = m.message[blockIdx.y];
  if (range.size() == 0) return;
  const MessageElements<Codec, Element> message{
      global_pointer(static_cast<const typename Element::Bits*>(m.tensor[blockIdx.y])) +
          range.begin,
      range.size()};
  const std::size_t codes = codes_of(codec, message.elements);
  const std::size_t size = codec.group(message.elements);
  const std::size_t unit =
      lanes == 1 ? static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x : blockIdx.x;
  const std::size_t group = unit / parts;
  if (group * size >= codes) return;
  const std::size_t group_begin = group * size;
  const std::size_t group_end = codes - group_begin < size ? codes : group_begin + size;
  const std::size_t part_begin = group_begin + unit % parts * part_elements;
  const std::size_t part_end =
      group_end < part_begin + part_elements ? group_end : part_begin + part_elements;

  Statistics mine = Statistics::none();
  const std::size_t lane = lanes == 1 ? 0 : threadIdx.x;
  if constexpr (Codec::kTransforms) {
    // The same memory: its use for the transform is over before statistics are merged.
    const Float8 x = message.values(codec, part_begin, reinterpret_cast<float*>(shared));
    __syncthreads();
    const std::size_t first = part_begin + lane * kPerThread;
    if (first < part_end) codec.include(mine, x, {first - group_begin, size, kPerThread});
  } else {
#pragma unroll 1
    for (std::size_t first = part_begin + lane * kPerThread; first < part_end;
         first += lanes * kPerThread) {
      codec.include(
          mine, message.load(first),
          {first - group_begin, group_end - group_begin, Position{part_end, first}.count()});
    }
  }
  Statistics* result = global_pointer(results) + blockIdx.y * m.groups * parts + unit;
  if (lanes == 1) return store_statistics(result, mine);
  mine = merge_block(mine, shared);
  if (threadIdx.x == 0) store_statistics(result, mine);
}

/// The statistics of a group from those of its parts.
ARLAB_DEVICE void merge_parts(const StatisticsPass& m, const Statistics* parts_at,
                              std::size_t parts) {
  ARLAB_SHARED_ARRAY(Statistics, shared, kThreads);
  const std::size_t index = blockIdx.y * m.groups + blockIdx.x;
  Statistics mine = Statistics::none();
#pragma unroll 1
  for (std::size_t part = threadIdx.x; part < parts; part += kThreads) {
    mine = merge(mine, load_statistics(global_pointer(parts_at) + index * parts + part));
  }
  mine = merge_block(mine, shared);
  if (threadIdx.x == 0) store_statistics(global_pointer(m.statistics) + index, mine);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

#include <algorithm>

#include "kernels/codecs/two_pass_kernels.h"
#include "kernels/codecs/two_pass_tile.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

/// A group of at most so many elements is measured by one thread.
constexpr std::size_t kMostOfAThread = 256;
/// Elements of a group that one block measures, so that a message of one group keeps a device busy.
constexpr std::size_t kPartElements = 16 * kTile;
constexpr std::size_t kMostParts = 256;

/// How a group is cut into parts, each measured by a block of its own.
struct Parts {
  std::size_t count;
  std::size_t elements;  ///< of a part; the last may have less
};

template <class Codec>
Parts parts_of(const Codec& codec, std::size_t elements) {
  // What is transformed is measured tile by tile.
  if (codec.transform() != 0) return {(codec.transform() + kTile - 1) / kTile, kTile};
  const std::size_t size = std::min(codec.group(elements), elements);
  const std::size_t wanted = std::clamp<std::size_t>(size / kPartElements, 1, kMostParts);
  const std::size_t part = (size / wanted / kTile + 1) * kTile;
  return {(size + part - 1) / part, part};
}

dim3 blocks_for(std::size_t codes) {
  return dim3(static_cast<unsigned>((codes + kTile - 1) / kTile));
}

}  // namespace

/// lanes = 1: a thread per group. lanes = kThreads: a block per part of a group.
template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads)
    statistics_kernel(ARLAB_KERNEL_PARAMETER Codec codec, ARLAB_KERNEL_PARAMETER StatisticsPass m,
                      Statistics* results, std::size_t parts, std::size_t part_elements,
                      unsigned lanes) {
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
__global__ void __launch_bounds__(kThreads)
    merge_kernel(ARLAB_KERNEL_PARAMETER StatisticsPass m, const Statistics* parts_at,
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

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads)
    encode_two_pass_kernel(ARLAB_KERNEL_PARAMETER Codec codec,
                           const typename Element::Bits* payload, std::size_t elements,
                           const Statistics* statistics, std::uint8_t* wire) {
  ARLAB_SHARED_ARRAY(float, shared, kTile);
  const std::size_t begin = blockIdx.x * kTile;
  const MessageElements<Codec, Element> message{payload, elements};
  const auto e = encode_tile(codec, message, statistics, begin, shared);
  store_encoded(codec, e, MessageWire<Codec>{codec, wire, elements},
                begin + threadIdx.x * kPerThread);
}

template <class Codec, class Element, bool Add>
__global__ void __launch_bounds__(kThreads)
    decode_two_pass_kernel(ARLAB_KERNEL_PARAMETER Codec codec, const std::uint8_t* wire,
                           std::size_t elements, typename Element::Bits* payload) {
  ARLAB_SHARED_ARRAY(float, shared, kTile);
  const std::size_t begin = blockIdx.x * kTile;
  Pack8<Element> x = decode_tile<Element>(codec, elements, begin, shared, [&](std::size_t) {
    return MessageWire<Codec>{codec, const_cast<std::uint8_t*>(wire), elements};
  });
  const Position at{elements, begin + threadIdx.x * kPerThread};
  if constexpr (Add) {
    const Pack8<Element> before = load_elements<Element>(payload + at.first, at.count());
    x = add<Element, Codec::kClampsFp16Sums>(before, x);
  }
  store_elements<Element>(payload + at.first, x, at.count());
}

std::size_t groups_of_message(const CodecChoice& codec, std::size_t elements) {
  std::size_t groups = 0;
  with_two_pass(codec, DType::fp32, [&](const auto& c, auto) {
    groups = elements == 0 ? 0 : blocks_of(codes_of(c, elements), c.group(elements));
  });
  return groups;
}

std::size_t two_pass_block(const CodecChoice& codec) {
  std::size_t block = 0;
  with_two_pass(codec, DType::fp32, [&](const auto& c, auto) { block = c.group(kWholeMessage); });
  return block;
}

std::size_t statistics_of(const CodecChoice& codec, std::size_t elements, std::size_t groups) {
  std::size_t parts = 0;
  with_two_pass(codec, DType::fp32,
                [&](const auto& c, auto) { parts = parts_of(c, elements).count; });
  return parts == 1 ? groups : groups * (1 + parts);
}

hipError_t launch_statistics(const StatisticsPass& m, const CodecChoice& codec, DType dtype,
                             hipStream_t stream) {
  std::size_t elements = 0;
  for (int i = 0; i < m.messages; ++i) elements = std::max(elements, m.message[i].size());
  if (elements == 0) return hipSuccess;
  const auto messages = static_cast<unsigned>(m.messages);
  with_two_pass(codec, dtype, [&]<class Codec, class Element>(const Codec& c, Element) {
    const Parts parts = parts_of(c, elements);
    const bool by_thread = c.transform() == 0 && c.group(elements) <= kMostOfAThread;
    const std::size_t units = m.groups * parts.count;
    const std::size_t blocks = by_thread ? (units + kThreads - 1) / kThreads : units;
    Statistics* results = parts.count == 1 ? m.statistics : m.statistics + m.groups * messages;
    launch_blocks(statistics_kernel<Codec, Element>, dim3(static_cast<unsigned>(blocks), messages),
                  stream, c, m, results, parts.count, parts.elements,
                  by_thread ? 1U : static_cast<unsigned>(kThreads));
    if (parts.count == 1) return;
    launch_blocks(merge_kernel, dim3(static_cast<unsigned>(m.groups), messages), stream, m, results,
                  parts.count);
  });
  return hipGetLastError();
}

hipError_t encode_in_two_passes(const CodecChoice& codec, DType dtype, const void* payload,
                                std::size_t elements, std::uint8_t* wire, Statistics* statistics,
                                hipStream_t stream) {
  if (elements == 0) return hipSuccess;
  StatisticsPass m;
  m.tensor[0] = payload;
  m.message[0] = {0, elements};
  m.messages = 1;
  m.statistics = statistics;
  m.groups = groups_of_message(codec, elements);
  const hipError_t error = launch_statistics(m, codec, dtype, stream);
  if (error != hipSuccess) return error;
  with_two_pass(codec, dtype, [&]<class Codec, class Element>(const Codec& c, Element) {
    hipLaunchKernelGGL(HIP_KERNEL_NAME(encode_two_pass_kernel<Codec, Element>),
                       blocks_for(codes_of(c, elements)), dim3(kThreads), 0, stream, c,
                       static_cast<const typename Element::Bits*>(payload), elements,
                       static_cast<const Statistics*>(statistics), wire);
  });
  return hipGetLastError();
}

hipError_t decode_two_pass(const CodecChoice& codec, DType dtype, const std::uint8_t* wire,
                           std::size_t elements, void* payload, bool add, hipStream_t stream) {
  if (elements == 0) return hipSuccess;
  with_two_pass(codec, dtype, [&]<class Codec, class Element>(const Codec& c, Element) {
    auto* const kernel = add ? decode_two_pass_kernel<Codec, Element, true>
                             : decode_two_pass_kernel<Codec, Element, false>;
    hipLaunchKernelGGL(kernel, blocks_for(codes_of(c, elements)), dim3(kThreads), 0, stream, c,
                       wire, elements, static_cast<typename Element::Bits*>(payload));
  });
  return hipGetLastError();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

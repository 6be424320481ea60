#include <algorithm>

#include "kernels/codecs/two_pass_kernels.h"
#include "kernels/platform/launch.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

/// A group of at most so many elements is measured by one thread.
constexpr std::size_t kMostOfAThread = 256;

dim3 blocks_for(std::size_t codes) {
  return dim3(static_cast<unsigned>((codes + kTile - 1) / kTile));
}

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads)
    statistics_kernel(ARLAB_KERNEL_PARAMETER Codec codec, ARLAB_KERNEL_PARAMETER StatisticsPass m,
                      Statistics* results, std::size_t parts, std::size_t part_elements,
                      unsigned lanes) {
  measure_groups<Codec, Element>(codec, m, results, parts, part_elements, lanes);
}

__global__ void __launch_bounds__(kThreads)
    merge_kernel(ARLAB_KERNEL_PARAMETER StatisticsPass m, const Statistics* parts_at,
                 std::size_t parts) {
  merge_parts(m, parts_at, parts);
}

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads)
    encode_two_pass_kernel(ARLAB_KERNEL_PARAMETER Codec codec,
                           const typename Element::Bits* payload, std::size_t elements,
                           const Statistics* statistics, std::uint8_t* wire) {
  encode_measured<Codec, Element>(codec, payload, elements, statistics, wire);
}

template <class Codec, class Element, bool kAdds>
__global__ void __launch_bounds__(kThreads)
    decode_two_pass_kernel(ARLAB_KERNEL_PARAMETER Codec codec, const std::uint8_t* wire,
                           std::size_t elements, typename Element::Bits* payload) {
  decode_measured<Codec, Element, kAdds>(codec, wire, elements, payload);
}

}  // namespace

hipError_t launch_statistics(const StatisticsPass& m, const CodecChoice& codec, DType dtype,
                             hipStream_t stream) {
  std::size_t elements = 0;
  for (int i = 0; i < m.messages; ++i) elements = std::max(elements, m.message[i].size());
  if (elements == 0) return hipSuccess;
  const auto messages = static_cast<unsigned>(m.messages);
  with_two_pass(codec, dtype, [&]<class Codec, class Element>(const Codec& c, Element) {
    const GroupParts parts = parts_of_groups(c.group(elements), c.transform(), elements);
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

// The kernels of a codec by itself, and their launches: to be included where they are compiled.
#pragma once

#include "kernels/codecs/codec_alone.h"
#include "kernels/platform/launch.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

inline dim3 blocks_for(std::size_t elements) {
  return dim3(static_cast<unsigned>((elements + kTile - 1) / kTile));
}

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(Codec codec, const typename Element::Bits* payload, std::size_t elements,
                  std::uint8_t* wire, EncodeContext context) {
  encode_alone<Codec, Element>(codec, payload, elements, wire, context);
}

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(Codec codec, const std::uint8_t* wire, std::size_t elements,
                  typename Element::Bits* payload) {
  decode_alone<Codec, Element>(codec, wire, elements, payload);
}

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads)
    decode_add_kernel(Codec codec, const std::uint8_t* wire, std::size_t elements,
                      typename Element::Bits* sum) {
  decode_add_alone<Codec, Element>(codec, wire, elements, sum);
}

template <class Codec, class Element>
void launch_encode_of(const Codec& codec, Element, const void* payload, std::size_t elements,
                      std::uint8_t* wire, const EncodeContext& context, hipStream_t stream) {
  hipLaunchKernelGGL(HIP_KERNEL_NAME(encode_kernel<Codec, Element>), blocks_for(elements),
                     dim3(kThreads), 0, stream, codec,
                     static_cast<const typename Element::Bits*>(payload), elements, wire, context);
}

template <class Codec, class Element>
void launch_decode_of(const Codec& codec, Element, const std::uint8_t* wire, std::size_t elements,
                      void* payload, hipStream_t stream) {
  hipLaunchKernelGGL(HIP_KERNEL_NAME(decode_kernel<Codec, Element>), blocks_for(elements),
                     dim3(kThreads), 0, stream, codec, wire, elements,
                     static_cast<typename Element::Bits*>(payload));
}

template <class Codec, class Element>
void launch_decode_add_of(const Codec& codec, Element, const std::uint8_t* wire,
                          std::size_t elements, void* sum, hipStream_t stream) {
  hipLaunchKernelGGL(HIP_KERNEL_NAME(decode_add_kernel<Codec, Element>), blocks_for(elements),
                     dim3(kThreads), 0, stream, codec, wire, elements,
                     static_cast<typename Element::Bits*>(sum));
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

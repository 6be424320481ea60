// A codec by itself: a block per tile of a message.
#pragma once

#include "kernels/codecs/device_codec.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// This thread's elements; a block per tile.
ARLAB_DEVICE Position position_in(std::size_t elements) {
  return {elements, blockIdx.x * kTile + threadIdx.x * kPerThread};
}

/// The wire of a message.
template <class Codec, class Element>
ARLAB_DEVICE void encode_alone(const Codec& codec, const typename Element::Bits* payload,
                               std::size_t elements, std::uint8_t* wire,
                               [[maybe_unused]] const EncodeContext& context) {
  begin_codec(codec);
  pdl_wait();
  const Position at = position_in(elements);
  const Pack8<Element> x = load_elements<Element>(payload + at.first, at.count());
  if constexpr (UsesContext<Codec, Element>) {
    codec.store(codec.encode(x, at, context), wire, at);
  } else {
    codec.store(codec.encode(x, at), wire, at);
  }
}

/// The payload that a wire stands for.
template <class Codec, class Element>
ARLAB_DEVICE void decode_alone(const Codec& codec, const std::uint8_t* wire, std::size_t elements,
                               typename Element::Bits* payload) {
  begin_codec(codec);
  const Position at = position_in(elements);
  const Pack8<Element> x = codec.decode(codec.load(wire, at), at);
  store_elements<Element>(payload + at.first, x, at.count());
}

/// The same, added to what is there.
template <class Codec, class Element>
ARLAB_DEVICE void decode_add_alone(const Codec& codec, const std::uint8_t* wire,
                                   std::size_t elements, typename Element::Bits* sum) {
  begin_codec(codec);
  const Position at = position_in(elements);
  const Pack8<Element> x = codec.decode(codec.load(wire, at), at);
  const Pack8<Element> before = load_elements<Element>(sum + at.first, at.count());
  store_elements<Element>(sum + at.first, add<Element, Codec::kClampsFp16Sums>(before, x),
                          at.count());
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

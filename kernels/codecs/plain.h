// fp16, bf16, fp32: the elements themselves on the wire, in order.
#pragma once

#include "kernels/codecs/device_codec.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Element>
struct Plain {
  using Encoded = Pack8<Element>;
  static constexpr Tuning kTuning = {.resident_blocks = kFastBlocks,
                                     .tuned = true,
                                     .batch = kFastBatch,
                                     .stores_directly = true,
                                     .pads_tiles = true};
  static constexpr bool kClampsFp16Sums = false;
  static constexpr std::size_t kTileBytes = kTile * sizeof(typename Element::Bits);

  ARLAB_HOST_DEVICE std::size_t wire_bytes(std::size_t elements) const {
    return elements * sizeof(typename Element::Bits);
  }

  ARLAB_DEVICE Encoded encode(const Pack8<Element>& x, Position) const { return x; }
  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    auto* out = reinterpret_cast<typename Element::Bits*>(wire);
    store_elements<Element>(out + at.first, e, at.count());
  }
  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    const auto* in = reinterpret_cast<const typename Element::Bits*>(wire);
    return load_elements<Element>(in + at.first, at.count());
  }
  ARLAB_DEVICE Pack8<Element> decode(const Encoded& e, Position) const { return e; }
  ARLAB_DEVICE Pack8<Element> decode_unchecked(const Encoded& e) const { return e; }
  ARLAB_DEVICE bool may_be_non_finite(const Encoded&) const { return false; }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// fp16, bf16, fp32: the elements themselves on the wire, in order.
#pragma once

#include "kernels/codecs/device_codec.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Number>
struct Plain {
  using Encoded = Eight<Number>;
  static constexpr Tuning kTuning = {.resident_blocks = kFastBlocks,
                                     .tuned = true,
                                     .batch = kFastBatch,
                                     .stores_directly = true,
                                     .pads_tiles = true};
  static constexpr bool kClampsFp16Sums = false;
  static constexpr std::size_t kTileBytes = kTile * sizeof(typename Number::Bits);

  ARLAB_HOST_DEVICE std::size_t wire_bytes(std::size_t elements) const {
    return elements * sizeof(typename Number::Bits);
  }

  ARLAB_DEVICE Encoded encode(const Eight<Number>& x, Position) const { return x; }
  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    auto* out = reinterpret_cast<typename Number::Bits*>(wire);
    store_elements<Number>(out + at.first, e, at.count());
  }
  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    const auto* in = reinterpret_cast<const typename Number::Bits*>(wire);
    return load_elements<Number>(in + at.first, at.count());
  }
  ARLAB_DEVICE Eight<Number> decode(const Encoded& e, Position) const { return e; }
  ARLAB_DEVICE Eight<Number> decode_unchecked(const Encoded& e) const { return e; }
  ARLAB_DEVICE bool may_be_non_finite(const Encoded&) const { return false; }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// The interface of a codec in kernels: its device code is a class template on the dtype's arithmetic.
#pragma once

#include <concepts>

#include "kernels/codecs/payload.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// How kernels of a codec work best, found by measuring. Whatever it says, the bits are the same.
struct Tuning {
  /// Blocks of a kernel on a multiprocessor. Blocks wait for those of other ranks, so all of a
  /// launch must fit, and a kernel may take no more registers than that allows.
  int resident_blocks = 2;
  /// With it, and with `kTileBytes`, the codec takes part in the kernels that were tuned for large
  /// and for small tensors.
  bool tuned = false;
  /// Tiles that a block works on at once, at most.
  int batch = 1;
  /// Wires go to other ranks from registers: a thread's part is 16 bytes, next to its neighbour's.
  bool stores_directly = false;
  /// A tile's wire is the same whether the tile ends early or is filled up with +0.
  bool pads_tiles = false;
};

/// Whether a codec rounds stochastically: always, or where an argument says so.
enum class Rounding { stochastic, argument };

template <class Codec, class Element>
concept EncodesByItself = requires(const Codec& codec, const Pack8<Element>& x, Position at) {
  { codec.encode(x, at) } -> std::same_as<typename Codec::Encoded>;
};
/// A codec whose bits depend on where a message stands.
template <class Codec, class Element>
concept UsesContext = requires(const Codec& codec, const Pack8<Element>& x, Position at,
                               const EncodeContext& context) {
  { codec.encode(x, at, context) } -> std::same_as<typename Codec::Encoded>;
};

/// A codec that encodes a tile of 2048 elements by itself. Thread t of a block has elements 8t to
/// 8t + 7 (payload.h), and all threads call together: a group of elements is some whole lanes, which
/// find its scale among themselves.
///
/// What is behind the end of a message may be anything: sums leave it there. encode() must not let
/// it into the metadata, and store() writes +0 or nothing there. load() and decode() take any bytes.
///
/// Optional, for codecs with packed arithmetic: encode_unchecked(), is_non_finite(),
/// mark_non_finite() and decode_unchecked(), may_be_non_finite(), which batch.h explains. For codecs with tables: begin().
template <class Codec, class Element>
concept DeviceCodec = requires(const Codec& codec, const Pack8<Element>& x, Position at,
                               const typename Codec::Encoded& encoded, std::uint8_t* wire) {
  { Codec::kTuning } -> std::convertible_to<Tuning>;
  /// Sums of fp16 that overflow become +-65504.
  { Codec::kClampsFp16Sums } -> std::convertible_to<bool>;
  { codec.wire_bytes(std::size_t{}) } -> std::same_as<std::size_t>;
  codec.store(encoded, wire, at);
  { codec.load(wire, at) } -> std::same_as<typename Codec::Encoded>;
  { codec.decode(encoded, at) } -> std::same_as<Pack8<Element>>;
} && (EncodesByItself<Codec, Element> || UsesContext<Codec, Element>);

/// Fills the tables that the codec has in shared memory, if it has any. All threads call it once, before they encode or decode.
template <class Codec>
ARLAB_DEVICE void begin_codec(const Codec& codec) {
  if constexpr (requires { codec.begin(); }) codec.begin();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

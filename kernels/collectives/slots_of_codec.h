// Properties of a codec for kernels with Lamport and with sentinel slots: whether its tiles fit, and how many blocks do.
#pragma once

#include <algorithm>

#include "kernels/codecs/message_scale.h"
#include "kernels/collectives/batch.h"
#include "kernels/transport/sentinel_slots.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Codecs whose tiles fit Lamport slots.
template <class Codec, class Element>
inline constexpr bool kWorksInLamportSlots =
    sizeof(typename Element::Bits) == 2 && Codec::kTuning.tuned;
/// Words of 16 bytes in such a tile's wire, at most.
template <class Codec>
inline constexpr auto kLamportWords = static_cast<unsigned>(kMostTileBytes<Codec> / 16);
/// Blocks of kernels with Lamport slots on a multiprocessor: they hold a wire of every rank, and one
/// of sums, in shared memory.
constexpr int lamport_blocks_of(const Tuning& tuning, std::size_t most_tile_bytes) {
  return std::min(tuning.resident_blocks,
                  static_cast<int>(kSharedBytes / ((kMaxRanks + 1) * most_tile_bytes + 512)));
}
template <class Codec>
inline constexpr int kLamportBlocks = lamport_blocks_of(Codec::kTuning, kMostTileBytes<Codec>);
/// Room for a tile's wire in kernels with sentinel slots: for codecs whose widths are arguments, at most what
/// both algorithms' slots hold.
template <class Codec>
inline constexpr std::size_t kSentinelTileBytes = requires {
  Codec::kTileBytes;
} ? kMostTileBytes<Codec> : std::min<std::size_t>(kMostTileBytes<Codec>, kTwoShotWireBytes);
/// Codecs whose wires fit the sentinel slots of one_shot.
template <class Codec, class Element>
inline constexpr bool kOneShotWorksWithSentinels =
    kWorksInLamportSlots<Codec, Element> && kHasSentinels;
/// Codecs whose wires fit the sentinel slots of two_shot.
template <class Codec, class Element>
inline constexpr bool kTwoShotWorksWithSentinels = false;
template <class Codec, class Element>
  requires kOneShotWorksWithSentinels<Codec, Element>
inline constexpr bool kTwoShotWorksWithSentinels<Codec, Element> =
    kSentinelTileBytes<Codec> <= kTwoShotWireBytes;

/// Blocks of two_shot with sentinel slots on a multiprocessor: measuring takes fewer registers there than in a program.
template <class Codec>
inline constexpr int kPipelineBlocks =
    kMeasures<Codec> ? kFastBlocks : Codec::kTuning.resident_blocks;

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// Starts a tuned kernel of an algorithm on a rank's stream. Each function is in the file of its name.
#pragma once

#include <optional>

#include "kernels/codecs/choice.h"
#include "kernels/collectives/call.h"
#include "kernels/collectives/occupancy.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Codecs whose tiles fit the places of one_shot.
template <class Codec, class Number>
inline constexpr bool kWorksInPlaces =
    sizeof(typename Number::Bits) == 2 && kBatch<Codec> != 1 && kHasPlaces;
/// And those of two_shot.
template <class Codec, class Number>
inline constexpr bool kTwoShotWorksInPlaces = false;
template <class Codec, class Number>
requires kWorksInPlaces<Codec, Number>
inline constexpr bool kTwoShotWorksInPlaces<Codec, Number> = Codec::kTileBytes <= kTwoShotWireBytes;

struct Occupancy {
  int blocks;            ///< of a kernel of the codec, that fit on a multiprocessor
  int batch;             ///< tiles that a block works on at once
  bool one_shot_places;  ///< one_shot_places.hip has the codec
  bool two_shot_places;  ///< two_shot_places.hip has it
};
inline Occupancy occupancy_of(const CodecChoice& codec, DType dtype) {
  Occupancy occupancy{1, 1, false, false};
  (void)with_codec(codec, dtype, [&]<class Codec, class Number>(const Codec&, Number) {
    occupancy = {kResidentBlocks<Codec>, kBatch<Codec>, kWorksInPlaces<Codec, Number>,
                 kTwoShotWorksInPlaces<Codec, Number>};
  });
  return occupancy;
}

using LaunchCollective = hipError_t (*)(const Call& call, const CodecChoice& codec, DType dtype,
                                        hipStream_t stream);

hipError_t launch_one_shot(const Call& call, const CodecChoice& codec, DType dtype,
                           hipStream_t stream);
hipError_t launch_two_shot(const Call& call, const CodecChoice& codec, DType dtype,
                           hipStream_t stream);
/// For Call::is_small; nothing where the codec has no such kernel.
std::optional<hipError_t> launch_one_shot_small(const Call& call, const CodecChoice& codec,
                                                DType dtype, hipStream_t stream);
std::optional<hipError_t> launch_two_shot_small(const Call& call, const CodecChoice& codec,
                                                DType dtype, hipStream_t stream);
/// For Call::in_places, as the next.
hipError_t launch_one_shot_places(const Call& call, const CodecChoice& codec, DType dtype,
                                  hipStream_t stream);
hipError_t launch_two_shot_places(const Call& call, const CodecChoice& codec, DType dtype,
                                  hipStream_t stream);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

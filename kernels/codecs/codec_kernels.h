// A codec by itself, on one device: for conformance with the reference's wire bytes.
#pragma once

#include "kernels/codecs/two_pass_kernels.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The wire of `elements` elements, of a message that stands there; `wire` is aligned to 16 bytes. `statistics`: room for
/// statistics_of(codec, elements, groups_of_message(...)).
hipError_t launch_encode(const CodecChoice& codec, DType dtype, const void* payload,
                         std::size_t elements, std::uint8_t* wire, const EncodeContext& context,
                         Statistics* statistics, hipStream_t stream);

/// The payload that a wire stands for.
hipError_t launch_decode(const CodecChoice& codec, DType dtype, const std::uint8_t* wire,
                         std::size_t elements, void* payload, hipStream_t stream);

/// sum += what the wire stands for, by native accumulation: reference/codecs/SPEC.md,
/// "Accumulation".
hipError_t launch_decode_add(const CodecChoice& codec, DType dtype, const std::uint8_t* wire,
                             std::size_t elements, void* sum, hipStream_t stream);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

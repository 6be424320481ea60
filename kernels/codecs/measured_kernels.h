// The kernels that measure groups, and the codecs of measured.h by themselves, on one device.
#pragma once

#include "kernels/codecs/measured_choice.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

inline constexpr int kMaxMessages = 8;

/// Messages whose groups are to be measured.
struct Measurement {
  const void* tensor[kMaxMessages] = {};  ///< that the message is a part of
  ElementRange message[kMaxMessages] = {};
  int messages = 0;
  Statistics* statistics = nullptr;  ///< [message][group]; what is behind them is overwritten, too
  std::size_t groups = 0;            ///< of the largest message: entries from message to message
};

/// How many Statistics it takes to measure `groups` groups of messages of at most so many elements.
std::size_t statistics_of(const MeasuredChoice& codec, std::size_t elements, std::size_t groups);

/// Elements of a group where messages have several.
std::size_t measured_block(const MeasuredChoice& codec);

/// Groups of a message.
std::size_t groups_of_message(const MeasuredChoice& codec, std::size_t elements);

hipError_t launch_measure(const Measurement& measurement, const MeasuredChoice& codec, DType dtype,
                          hipStream_t stream);

/// As codec_kernels.h. `statistics`: statistics_of(codec, elements, groups_of_message(...)).
hipError_t launch_encode(const MeasuredChoice& codec, DType dtype, const void* payload,
                         std::size_t elements, std::uint8_t* wire, Statistics* statistics,
                         hipStream_t stream);
hipError_t launch_decode(const MeasuredChoice& codec, DType dtype, const std::uint8_t* wire,
                         std::size_t elements, void* payload, hipStream_t stream);
hipError_t launch_decode_add(const MeasuredChoice& codec, DType dtype, const std::uint8_t* wire,
                             std::size_t elements, void* sum, hipStream_t stream);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

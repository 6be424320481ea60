// The kernels that measure groups, and the codecs of two_pass.h by themselves, on one device.
#pragma once

#include "kernels/codecs/two_pass_choice.h"
#include "kernels/collectives/team.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Messages whose groups are to be measured.
struct StatisticsPass {
  const void* tensor[kMaxMessages] = {};  ///< that the message is a part of
  ElementRange message[kMaxMessages] = {};
  int messages = 0;
  Statistics* statistics = nullptr;  ///< [message][group]; what is behind them is overwritten, too
  std::size_t groups = 0;            ///< of the largest message: entries from message to message
};

/// How many Statistics it takes to measure `groups` groups of messages of at most so many elements.
std::size_t statistics_of(const TwoPassChoice& codec, std::size_t elements, std::size_t groups);

/// Elements of a group where messages have several.
std::size_t two_pass_block(const TwoPassChoice& codec);

/// Groups of a message.
std::size_t groups_of_message(const TwoPassChoice& codec, std::size_t elements);

hipError_t launch_statistics(const StatisticsPass& pass, const TwoPassChoice& codec, DType dtype,
                             hipStream_t stream);

/// As codec_kernels.h. `statistics`: statistics_of(codec, elements, groups_of_message(...)).
hipError_t launch_encode(const TwoPassChoice& codec, DType dtype, const void* payload,
                         std::size_t elements, std::uint8_t* wire, Statistics* statistics,
                         hipStream_t stream);
hipError_t launch_decode(const TwoPassChoice& codec, DType dtype, const std::uint8_t* wire,
                         std::size_t elements, void* payload, hipStream_t stream);
hipError_t launch_decode_add(const TwoPassChoice& codec, DType dtype, const std::uint8_t* wire,
                             std::size_t elements, void* sum, hipStream_t stream);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

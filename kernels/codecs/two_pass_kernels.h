// The kernels that measure groups, and the codecs of two_pass.h by themselves, on one device.
#pragma once

#include "kernels/codecs/choice.h"
#include "kernels/transport/team.h"

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

// Of codecs that need no statistics, these are 0.

/// How many Statistics it takes to measure `groups` groups of messages of at most so many elements.
std::size_t statistics_of(const CodecChoice& codec, std::size_t elements, std::size_t groups);

/// Elements of a group where messages have several.
std::size_t two_pass_block(const CodecChoice& codec);

/// Groups of a message.
std::size_t groups_of_message(const CodecChoice& codec, std::size_t elements);

hipError_t launch_statistics(const StatisticsPass& pass, const CodecChoice& codec, DType dtype,
                             hipStream_t stream);

/// As codec_kernels.h.
hipError_t encode_in_two_passes(const CodecChoice& codec, DType dtype, const void* payload,
                                std::size_t elements, std::uint8_t* wire, Statistics* statistics,
                                hipStream_t stream);
hipError_t decode_two_pass(const CodecChoice& codec, DType dtype, const std::uint8_t* wire,
                           std::size_t elements, void* payload, bool add, hipStream_t stream);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// The kernels that measure groups, and the codecs of two_pass.h by themselves, on one device.
#pragma once

#include "kernels/codecs/choice.h"
#include "kernels/codecs/statistics_pass.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

// These are 0 for codecs that need no statistics.

/// How many Statistics it takes to measure `groups` groups of messages of at most so many elements.
std::size_t statistics_of(const CodecChoice& codec, std::size_t elements, std::size_t groups);

/// Elements of a group where messages have several.
std::size_t two_pass_block(const CodecChoice& codec);

/// Groups of a message.
std::size_t groups_of_message(const CodecChoice& codec, std::size_t elements);

/// How a group is cut into parts, each measured by a block of its own.
struct GroupParts {
  std::size_t count;
  std::size_t elements;  ///< a part's; the last may have less
  bool by_thread;        ///< measured by one thread, with others in a block
};
/// Parts of groups of so many elements, transformed or not, in a message of at most so many.
GroupParts parts_of_groups(std::size_t group, std::size_t transform, std::size_t elements);
GroupParts parts_of(const CodecChoice& codec, std::size_t elements);

/// Elements of a message whose codes travel.
std::size_t codes_of_message(const CodecChoice& codec, std::size_t elements);

hipError_t launch_statistics(const StatisticsPass& pass, const CodecChoice& codec, DType dtype,
                             hipStream_t stream);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

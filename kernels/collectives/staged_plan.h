// The stages of an algorithm, and their launch.
#pragma once

#include <string>
#include <vector>

#include "kernels/collectives/staged.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// A collective of this rank with a codec of measured.h.
struct StagedCollective {
  std::string algorithm;
  std::string codec;                 ///< its name, for errors
  std::vector<MessageRange> chunks;  ///< of the reference's Schedule, by owner
  int group_size = 0;                ///< hierarchical
  Team team = {};
  int most_blocks = 0;
  Statistics* statistics = nullptr;  ///< memory for measurements
  std::size_t most_statistics = 0;
  const void* input = nullptr;
  void* output = nullptr;
};

/// Enqueues measurements and stages. The error says what does not fit the communicator.
Status run_staged(const StagedCollective& collective, const MeasuredChoice& codec, DType dtype,
                  hipStream_t stream);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

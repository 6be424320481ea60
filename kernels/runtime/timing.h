// How long calls take: on GPUs many in a graph that is launched again and again, on the host one
// after the other, outside of graphs.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "kernels/platform/platform.h"
#include "kernels/runtime/platforms.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// A rank's stream.
struct RankStream {
  int device;
  hipStream_t stream;
};

/// On the device the time of the slowest rank. `enqueue` puts one call on the streams of all ranks.
/// Ranks start together: what is timed is enqueued on all of them while they are busy with calls
/// that are not. On the host the time that `enqueue` itself takes, over the number of ranks.
Result<CallTimes> time_calls(std::span<const RankStream> ranks, const TimingRequest& request,
                             const std::function<Status()>& enqueue);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

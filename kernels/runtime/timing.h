// How long calls take on GPUs: many in a graph, and the graph launched again and again.
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

/// Microseconds per call, one figure for each replay: of the slowest rank. `enqueue` puts one call
/// on the streams of all ranks. Ranks start together: what is timed is enqueued on all of them
/// while they are busy with calls that are not.
Result<std::vector<double>> time_graphs(std::span<const RankStream> ranks,
                                        const TimingRequest& request,
                                        const std::function<Status()>& enqueue);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

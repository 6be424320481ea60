#include "kernels/runtime/timing.h"

#include <algorithm>
#include <chrono>

#include "kernels/runtime/between.h"
#include "kernels/runtime/hip_status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

/// The graph of one rank, and the events around a replay.
class RankGraph {
 public:
  explicit RankGraph(RankStream rank) : rank_(rank) {}
  RankGraph(const RankGraph&) = delete;
  RankGraph(RankGraph&& other) noexcept
      : rank_(other.rank_),
        captured_(std::exchange(other.captured_, nullptr)),
        graph_(std::exchange(other.graph_, nullptr)),
        start_(std::exchange(other.start_, nullptr)),
        stop_(std::exchange(other.stop_, nullptr)) {}
  RankGraph& operator=(RankGraph&&) = delete;
  ~RankGraph() {
    (void)hipSetDevice(rank_.device);
    if (captured_ != nullptr) (void)hipGraphDestroy(captured_);
    if (graph_ != nullptr) (void)hipGraphExecDestroy(graph_);
    if (start_ != nullptr) (void)hipEventDestroy(start_);
    if (stop_ != nullptr) (void)hipEventDestroy(stop_);
  }

  Status begin_capture() {
    (void)hipSetDevice(rank_.device);
    return status_of(hipStreamBeginCapture(rank_.stream, hipStreamCaptureModeThreadLocal),
                     "a stream cannot be captured");
  }
  Status end_capture() {
    (void)hipSetDevice(rank_.device);
    return status_of(hipStreamEndCapture(rank_.stream, &captured_), "a stream cannot be captured");
  }
  /// Once no stream is captured any more.
  Status instantiate() {
    (void)hipSetDevice(rank_.device);
    ARLAB_RETURN_IF_ERROR(
        status_of(hipGraphInstantiateWithFlags(&graph_, captured_, 0), "a graph cannot be made"));
    ARLAB_RETURN_IF_ERROR(status_of(hipEventCreateWithFlags(&start_, hipEventDefault), "an event"));
    return status_of(hipEventCreateWithFlags(&stop_, hipEventDefault), "an event");
  }

  /// Warm-up, then what is timed.
  Status launch() {
    (void)hipSetDevice(rank_.device);
    return status_of(hipGraphLaunch(graph_, rank_.stream), "a graph cannot be started");
  }
  Status launch_timed() {
    (void)hipSetDevice(rank_.device);
    ARLAB_RETURN_IF_ERROR(status_of(hipEventRecord(start_, rank_.stream), "an event"));
    ARLAB_RETURN_IF_ERROR(launch());
    return status_of(hipEventRecord(stop_, rank_.stream), "an event");
  }
  Result<double> microseconds() {
    (void)hipSetDevice(rank_.device);
    float milliseconds = 0;
    ARLAB_RETURN_IF_ERROR(status_of(hipStreamSynchronize(rank_.stream), "a kernel failed"));
    ARLAB_RETURN_IF_ERROR(status_of(hipEventElapsedTime(&milliseconds, start_, stop_), "an event"));
    return 1e3 * static_cast<double>(milliseconds);
  }

 private:
  RankStream rank_;
  hipGraph_t captured_ = nullptr;
  hipGraphExec_t graph_ = nullptr;
  hipEvent_t start_ = nullptr;
  hipEvent_t stop_ = nullptr;
};

Status synchronize(std::span<const RankStream> ranks) {
  Status status;
  for (const RankStream& rank : ranks) {
    (void)hipSetDevice(rank.device);
    if (status.ok()) status = status_of(hipStreamSynchronize(rank.stream), "a kernel failed");
  }
  return status;
}

/// How long what is enqueued takes so many times, in microseconds on the slowest rank: one figure
/// for each replay of a graph.
Result<std::vector<double>> time_graph(std::span<const RankStream> ranks, int times, int replays,
                                       const std::function<Status()>& enqueue) {
  std::vector<RankGraph> graphs;
  Status status;
  for (const RankStream& rank : ranks) graphs.emplace_back(rank);
  for (RankGraph& graph : graphs) {
    if (status.ok()) status = graph.begin_capture();
  }
  for (int i = 0; status.ok() && i < times; ++i) status = enqueue();
  for (RankGraph& graph : graphs) {
    const Status ended = graph.end_capture();
    if (status.ok()) status = ended;
  }
  if (!status.ok()) return status;
  for (RankGraph& graph : graphs) ARLAB_RETURN_IF_ERROR(graph.instantiate());

  std::vector<double> result;
  for (int replay = 0; replay < replays; ++replay) {
    for (RankGraph& graph : graphs) ARLAB_RETURN_IF_ERROR(graph.launch());
    for (RankGraph& graph : graphs) ARLAB_RETURN_IF_ERROR(graph.launch_timed());
    double slowest = 0;
    for (RankGraph& graph : graphs) {
      ARLAB_ASSIGN_OR_RETURN(const double time, graph.microseconds());
      slowest = std::max(slowest, time);
    }
    result.push_back(slowest);
  }
  return result;
}

}  // namespace

Result<CallTimes> time_calls(std::span<const RankStream> ranks, const TimingRequest& request,
                             const std::function<Status()>& enqueue) {
  if (request.calls < 1 || request.replays < 1) {
    return Status::error("calls and replays must be 1 or more");
  }
  Between between;
  ARLAB_RETURN_IF_ERROR(between.open(ranks, request));
  // Once outside of a graph: libraries set themselves up in a first call.
  ARLAB_RETURN_IF_ERROR(enqueue());
  ARLAB_RETURN_IF_ERROR(between.enqueue());
  ARLAB_RETURN_IF_ERROR(synchronize(ranks));

  const auto enqueue_both = [&] {
    const Status enqueued = enqueue();
    return enqueued.ok() ? between.enqueue() : enqueued;
  };
  ARLAB_ASSIGN_OR_RETURN(const auto with_calls,
                         time_graph(ranks, request.calls, request.replays, enqueue_both));
  double without = 0;
  if (request.gemm || request.cold) {
    ARLAB_ASSIGN_OR_RETURN(auto alone, time_graph(ranks, request.calls, request.replays,
                                                  [&] { return between.enqueue(); }));
    const auto middle = alone.begin() + request.replays / 2;
    std::nth_element(alone.begin(), middle, alone.end());
    without = *middle;
  }
  CallTimes times;
  for (const double time : with_calls) {
    times.device.push_back((time - without) / request.calls);
  }

  // No more calls at once than streams take without waiting for their device.
  const int calls = std::min(request.calls, 50);
  for (int replay = 0; replay < request.replays; ++replay) {
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) ARLAB_RETURN_IF_ERROR(enqueue());
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - start;
    ARLAB_RETURN_IF_ERROR(synchronize(ranks));
    times.host.push_back(taken.count() / calls / static_cast<double>(ranks.size()));
  }
  return times;
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

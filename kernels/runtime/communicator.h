// A rank of a team of GPUs, and the collectives it takes part in.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/runtime/bootstrap.h"
#include "kernels/runtime/collective_request.h"
#include "kernels/runtime/status.h"
#include "kernels/transport/team.h"

namespace arlab {
struct Algorithm;
}

namespace arlab::kernels {

inline namespace ARLAB_PLATFORM {

class PreparedCall;
class TeamMemory;
struct Tensors;
struct Statistics;
struct WantedKernel;

class Communicator {
 public:
  /// A team whose ranks are all in this process: rank r on devices[r]. Several ranks may share a
  /// device. Devices need peer access to each other.
  static Result<std::vector<Communicator>> in_process(std::span<const int> devices,
                                                      const CommunicatorOptions& options = {});

  /// A rank of a team with one process per rank, all on one host; all ranks call this, with the
  /// same options. Memory is shared through HIP's IPC handles, which the bootstrap carries; it is
  /// not needed afterwards. What goes wrong on a rank is the error of all.
  ///
  /// The destructor waits for those of the other ranks, as long as for a rank in a kernel, but 10 s
  /// at most. If one does not come, this rank's buffer, to which it may still write, stays until
  /// the process ends.
  static Result<Communicator> create(int device, Bootstrap& bootstrap,
                                     const CommunicatorOptions& options = {});

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) = delete;
  /// Waits for this rank's kernels, which end at the latest after the timeout.
  ~Communicator();

  int rank() const { return team_.rank; }
  int ranks() const { return team_.layout.ranks; }
  int device() const { return device_; }

  /// Enqueues this rank's part. `input` and `output` are memory of its device, aligned to an
  /// element, and may be the same. Calls on different streams run in the order they were made.
  ///
  /// While a stream is captured, the call goes into the graph; launches of the graph count as
  /// calls, which the caller orders (one stream does) among this communicator's others.
  Status run(const CollectiveRequest& request, const void* input, void* output, hipStream_t stream,
             const TailTensors& tail = {});

  /// Codecs with random numbers: how many calls of such codecs were before the next one. It is 0 at first, and counted on the
  /// device, so that every replay of a graph has its own number. Waits for the last call.
  Status set_random_calls(std::uint32_t calls);

  /// Compiles and loads what run() takes for the request, which then may be captured: on every rank of a team, since none begins
  /// before all are ready. A call that is not captured does so by itself.
  Status prepare(const CollectiveRequest& request);
  /// Prepares several, but for those that cannot be made.
  Status prepare(std::span<const CollectiveRequest> requests, const CompileProgress& progress);

#if defined(ARLAB_KERNELS_ON_DEMAND)
  /// Compiles and loads what every rank is about to launch, before any goes on; once for the same kernels of the same `call`. On a
  /// stream that is captured, they must be loaded already.
  Status load(std::span<const WantedKernel> kernels, std::uint64_t call, bool capturing);
#endif

  /// Which kernel run() would take for the request, and why.
  Result<std::string> explain(const CollectiveRequest& request);

  /// Once kernels have ended: an error naming the rank that did not arrive, if one did not, or two
  /// ranks whose calls differ, and those calls. From then on no call does anything, and the team
  /// can only be destroyed. Waits for no kernel.
  Status check();

  /// From now on no rank's kernels wait, those that run included: for all, this rank is one that did
  /// not arrive.
  Status give_up();

 private:
  Communicator(Team team, int device, int multiprocessors, const CommunicatorOptions& options,
               std::shared_ptr<TeamMemory> memory, Statistics* statistics,
               std::vector<int> devices);
  struct Prepared;
  Result<Prepared*> prepared(const CollectiveRequest& request);
  /// The same with its kernels loaded.
  Result<std::shared_ptr<const PreparedCall>> ready(const CollectiveRequest& request,
                                                    bool capturing);
  Status load(const PreparedCall& call, bool capturing);
  /// Streams and events of this rank.
  Status make_streams();
  /// The kernels of a call, in the order of the stream.
  Status launch(const PreparedCall& call, const Tensors& tensors, hipStream_t stream);
  Status order_after_last_call(hipStream_t stream);
  Status calls_differ(int rank, int other) const;

  Team team_;
  int device_;
  int multiprocessors_;  // for this rank, at least; the same on all ranks
  CommunicatorOptions options_;
  std::shared_ptr<TeamMemory> memory_;
  Statistics* statistics_;
  std::vector<int> devices_;        ///< those of this process's ranks in the team
  std::set<std::uint64_t> agreed_;  ///< calls that all ranks have prepared, with their kernels
  /// The calls made so far, the latest last: planning takes longer than a small kernel.
  struct Prepared {
    CollectiveRequest request;
    const Algorithm* file;      ///< where the algorithm is a file: what was read from it
    std::uint64_t definitions;  ///< definitions_made() before the names were looked up
    std::shared_ptr<const PreparedCall> call;
    bool is_loaded = false;
  };
  std::vector<Prepared> prepared_;
  hipEvent_t last_call_ = nullptr;
  hipStream_t last_stream_ = nullptr;
  bool called_ = false;
  /// Where the kernels run that have only some of the multiprocessors: they are ordered behind the caller's stream, and
  /// that behind them.
  hipStream_t limited_ = nullptr;
  hipEvent_t before_ = nullptr;
  hipEvent_t behind_ = nullptr;
  hipStream_t beside_ = nullptr;  ///< on which the state of kernels is looked at while they run
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

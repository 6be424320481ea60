// A collective that has been checked, cut and given its kernels: once for all calls like it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/runtime/collective_request.h"
#include "kernels/runtime/select.h"
#include "kernels/runtime/status.h"
#include "kernels/schedule/lower.h"
#include "kernels/schedule/run.h"
#include "reference/collectives/codecs.h"
#if defined(ARLAB_KERNELS_ON_DEMAND)
#include "kernels/compile/store.h"
#endif

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// A communicator's team, as calls see it.
struct TeamResources {
  Team team;
  CommunicatorOptions options;
  int multiprocessors = 0;           ///< for this rank, at least; the same on all ranks
  Statistics* statistics = nullptr;  ///< options.two_pass_groups of them
};

/// Tensors of a call.
struct Tensors {
  const void* input;
  void* output;
  TailTensors tail = {};
};
/// Starts a kernel of a call.
using Launch = std::function<hipError_t(const Tensors& tensors, hipStream_t stream)>;

/// Launches of a call, one after the other.
struct CallLaunches {
  std::vector<Launch> launches;
  std::vector<Launch> of_other_ranks;  ///< only to be loaded here
  std::vector<CodecChoice> codecs;     ///< by role; their kernels are used by the launches
  std::string explanation;             ///< the kernel that was chosen, and why, in a line
  bool in_place = true;                ///< the output may be the input
};

class PreparedCall {
 public:
  /// The error says what is wrong with the request, or what has no kernels.
  static Result<std::shared_ptr<const PreparedCall>> prepare(const CollectiveRequest& request,
                                                             const TeamResources& resources);

  const std::string& explanation() const { return launches_.explanation; }

  /// Whether a codec has random numbers, so that the call is to be counted (launch_count_call()).
  bool is_counted() const { return is_counted_; }

  /// Once kernels have ended: what a codec that works on the host has thrown (FormatKernels::failure()).
  std::string failure() const;

#if defined(ARLAB_KERNELS_ON_DEMAND)
  /// Those of launch() and of launch_count_call(). All must be loaded before any of them waits for other ranks.
  Result<std::vector<WantedKernel>> kernels() const;
#endif

  /// The same on all ranks that make the same call.
  std::uint64_t hash() const { return hash_; }

  /// Enqueues this rank's part.
  Status launch(const Tensors& tensors, hipStream_t stream) const;

 private:
  PreparedCall(CallLaunches launches, bool is_counted, std::uint64_t hash)
      : launches_(std::move(launches)), is_counted_(is_counted), hash_(hash) {}

  CallLaunches launches_;
  bool is_counted_;
  std::uint64_t hash_;
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

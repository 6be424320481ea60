// A rank of a team of GPUs, and the collectives it takes part in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/collectives/team.h"
#include "kernels/runtime/status.h"
#include "reference/dtype.h"

namespace arlab::kernels {

/// Every rank of a team must be given the same.
struct CommunicatorOptions {
  /// Most blocks of a kernel, up to 1024; no more are started than fit on a device at once. 0: as
  /// many as fit at best.
  int blocks = 0;
  /// What a block of a rank may send to a rank in one exchange; a multiple of 16. A communication
  /// buffer has 4 * blocks * ranks slots.
  std::size_t slot_bytes = 18 * 1024;
  /// How long a rank waits for another inside a kernel before the team is given up.
  std::uint64_t timeout_nanoseconds = 10'000'000'000;
  /// Codecs with one scale per message, or with groups of other sizes than 8, 16, ... 256, measure
  /// groups before they encode: so many at a time, of 32 bytes each.
  std::size_t measured_groups = 32768;
  std::uint32_t first_colour = 0;  ///< where the count of exchanges starts; for tests
};

/// One collective. Of the same team, all ranks make the same calls in the same order.
struct CollectiveRequest {
  std::string algorithm;  ///< one_shot, two_shot, ring, hierarchical, all_to_all
  std::string codec;
  DType dtype = DType::fp16;
  std::size_t elements = 0;  ///< per rank
};

inline namespace ARLAB_PLATFORM {

class TeamMemory;
struct Statistics;

class Communicator {
 public:
  /// A team whose ranks are all in this process: rank r on devices[r]. Several ranks may share a
  /// device. Devices need peer access to each other.
  static Result<std::vector<Communicator>> in_process(std::span<const int> devices,
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
  Status run(const CollectiveRequest& request, const void* input, void* output, hipStream_t stream);

  /// Once kernels have ended: an error naming the rank that did not arrive, if one did not. From
  /// then on no call does anything, and the team can only be destroyed.
  Status check();

 private:
  Communicator(Team team, int device, int multiprocessors, const CommunicatorOptions& options,
               std::shared_ptr<TeamMemory> memory, Statistics* statistics);
  Status order_after_last_call(hipStream_t stream, bool& capturing);

  Team team_;
  int device_;
  int multiprocessors_;  // for this rank, at least; the same on all ranks
  CommunicatorOptions options_;
  std::shared_ptr<TeamMemory> memory_;
  Statistics* statistics_;
  hipEvent_t last_call_ = nullptr;
  hipStream_t last_stream_ = nullptr;
  bool called_ = false;
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

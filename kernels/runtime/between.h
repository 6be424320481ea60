// Work of a model's GPUs between two collectives, for timing: other work, and caches that hold
// other data.
#pragma once

#include <span>
#include <vector>

#include "kernels/runtime/platforms.h"
#include "kernels/runtime/timing.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Enqueues a product of two fp32 matrices of side `side`, a multiple of 64, on the stream; as most
/// libraries do, without letting the next kernel start early.
hipError_t launch_matrix_product(const float* a, const float* b, float* c, int side,
                                 hipStream_t stream);

/// Enqueues a kernel that overwrites memory.
hipError_t launch_overwrite(std::uint8_t* memory, std::size_t bytes, std::uint32_t word,
                            unsigned blocks, hipStream_t stream);

/// Compiles and loads the kernels of this work: before any rank waits in a call for one that still does.
Status load_kernels_between(std::span<const int> devices, const TimingRequest& request);

/// The work of one TimingRequest, with its memory on every rank's device.
class Between {
 public:
  Between() = default;
  Between(const Between&) = delete;
  Between& operator=(const Between&) = delete;
  ~Between();

  Status open(std::span<const RankStream> ranks, const TimingRequest& request);
  /// Once on the streams of all ranks.
  Status enqueue() const;

 private:
  struct Rank {
    RankStream on;
    std::uint8_t* memory;
  };
  std::vector<Rank> ranks_;
  TimingRequest request_;
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

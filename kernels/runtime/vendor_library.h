// The vendor's collectives, to measure ours beside them: NCCL on CUDA, RCCL on ROCm. Loaded when
// asked for; programs are not linked with it.
#pragma once

#include <memory>
#include <span>

#include "kernels/platform/platform.h"
#include "kernels/runtime/status.h"
#include "reference/dtype.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// All ranks of this process: rank r is on devices[r], each device once.
class VendorLibrary {
 public:
  static Result<std::unique_ptr<VendorLibrary>> open(std::span<const int> devices);

  virtual ~VendorLibrary() = default;
  /// nccl or rccl, and the version that it says it has.
  virtual std::string name() const = 0;
  /// One sum over all ranks; `inputs`, `outputs` and `streams` are the ranks'.
  virtual Status all_reduce(std::span<const void* const> inputs, std::span<void* const> outputs,
                            std::size_t elements, DType dtype,
                            std::span<const hipStream_t> streams) = 0;
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// The bootstrap over MPI, in builds with ARLAB_MPI=ON.
#pragma once

#include <mpi.h>

#include "kernels/runtime/bootstrap.h"

namespace arlab::kernels {

/// The ranks of an MPI communicator, which must live as long. MPI must be initialized, and be
/// called from one thread at a time. Messages have the tag kMpiTag.
Result<std::unique_ptr<Bootstrap>> mpi_bootstrap(MPI_Comm ranks,
                                                 std::uint64_t timeout_ms = kBootstrapTimeoutMs);

inline constexpr int kMpiTag = 0x4152;

}  // namespace arlab::kernels

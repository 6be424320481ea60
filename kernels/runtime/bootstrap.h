// How ranks in processes of their own find each other: small messages, before there is a
// communicator.
//
// All waits are bounded. A rank that never comes, or goes away, gives an error that names it, on
// all ranks; after an error, every further call gives the same one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/runtime/status.h"

namespace arlab::kernels {

inline constexpr std::uint64_t kBootstrapTimeoutMs = 60'000;
/// Of one rank's part in an all-gather.
inline constexpr std::size_t kMostBootstrapBytes = 1 << 20;

class Bootstrap {
 public:
  Bootstrap(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  virtual ~Bootstrap() = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// The parts of all ranks, in rank order. All ranks call it, the same number of times.
  Result<std::vector<std::string>> all_gather(std::string_view mine);

  /// Returns when all ranks have called it.
  Status barrier();

 protected:
  virtual Result<std::vector<std::string>> do_all_gather(std::string_view mine) = 0;

 private:
  int rank_;
  int ranks_;
  Status failed_;
};

/// TCP. Rank 0 listens at this port; `host` is its name or address, as the others reach it.
Result<std::unique_ptr<Bootstrap>> socket_bootstrap(int rank, int ranks, const std::string& host,
                                                    int port,
                                                    std::uint64_t timeout_ms = kBootstrapTimeoutMs);

/// Files in a folder that all ranks see: a new, empty one for every bootstrap.
Result<std::unique_ptr<Bootstrap>> file_bootstrap(int rank, int ranks, const std::string& folder,
                                                  std::uint64_t timeout_ms = kBootstrapTimeoutMs);

/// An all-gather that the caller has: of PyTorch, of MPI. Its waits are its own affair.
using GatherFunction = std::function<Result<std::vector<std::string>>(std::string_view mine)>;
Result<std::unique_ptr<Bootstrap>> function_bootstrap(int rank, int ranks, GatherFunction gather);

/// As torchrun and similar launchers say: RANK and WORLD_SIZE, and then either ARLAB_BOOTSTRAP_DIR
/// (a folder), or MASTER_ADDR and the port ARLAB_PORT [MASTER_PORT + 1, for torchrun itself listens
/// at MASTER_PORT].
Result<std::unique_ptr<Bootstrap>> bootstrap_from_environment(
    std::uint64_t timeout_ms = kBootstrapTimeoutMs);

}  // namespace arlab::kernels

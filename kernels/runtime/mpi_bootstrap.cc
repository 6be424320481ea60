// All ranks send to rank 0, which sends everything to all. Not MPI_Allgather: when a rank does not
// come, rank 0 knows which, and can say so to the others.
#include "kernels/runtime/mpi_bootstrap.h"

#include <fmt/format.h>

#include <chrono>
#include <list>
#include <thread>

namespace arlab::kernels {
namespace {

using Clock = std::chrono::steady_clock;

class MpiBootstrap final : public Bootstrap {
 public:
  MpiBootstrap(MPI_Comm comm, int rank, int ranks, std::uint64_t timeout_ms)
      : Bootstrap(rank, ranks, timeout_ms), comm_(comm) {}

 protected:
  Result<std::vector<std::string>> do_all_gather(std::string_view mine) override {
    return rank() == 0 ? gather_here(mine) : gather_at_rank_0(mine);
  }

 private:
  using Deadline = Clock::time_point;

  Deadline deadline_in(std::uint64_t milliseconds) const {
    return Clock::now() + std::chrono::milliseconds(milliseconds);
  }

  /// False when the time is over.
  template <class Done>
  static bool wait(Deadline deadline, Done done) {
    auto pause = std::chrono::microseconds(10);
    while (!done()) {
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::microseconds(5000));
    }
    return true;
  }

  /// A message that has come from this rank, in full; false when none comes in time.
  bool receive(int from, std::string& message, Deadline deadline) {
    MPI_Status status;
    int is_here = 0;
    if (!wait(deadline,
              [&] {
                return MPI_Iprobe(from, kMpiTag, comm_, &is_here, &status) != MPI_SUCCESS ||
                       is_here != 0;
              }) ||
        is_here == 0) {
      return false;
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    message.resize(static_cast<std::size_t>(bytes));
    return MPI_Recv(message.data(), bytes, MPI_BYTE, from, kMpiTag, comm_, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS;
  }

  /// Does not wait: what cannot be sent stays here, where MPI may look for it until the end.
  void send(int to, std::string message) {
    sent_.push_back(std::move(message));
    // Null, as it stays where sending fails, counts as done.
    requests_.push_back(MPI_REQUEST_NULL);
    MPI_Isend(sent_.back().data(), static_cast<int>(sent_.back().size()), MPI_BYTE, to, kMpiTag,
              comm_, &requests_.back());
  }

  /// False when what was sent is not taken in time.
  bool finish_sending(Deadline deadline) {
    return wait(deadline, [&] {
      int done = 0;
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
      if (done != 0) {
        requests_.clear();
        sent_.clear();
      }
      return done != 0;
    });
  }

  Result<std::vector<std::string>> gather_here(std::string_view mine) {
    const Deadline deadline = deadline_in(timeout_ms());
    std::vector<std::string> parts(static_cast<std::size_t>(ranks()));
    parts[0] = mine;
    for (int rank = 1; rank < ranks(); ++rank) {
      if (receive(rank, parts[static_cast<std::size_t>(rank)], deadline)) continue;
      const Status status =
          Status::error(fmt::format("rank {} did not answer within {} ms", rank, timeout_ms()));
      for (int other = 1; other < ranks(); ++other) send(other, 'f' + status.message());
      (void)finish_sending(deadline_in(1000));
      return status;
    }
    std::string all(1, 'd');
    all += join_parts(parts);
    for (int rank = 1; rank < ranks(); ++rank) send(rank, all);
    if (!finish_sending(deadline)) {
      return Status::error(fmt::format("a rank took nothing within {} ms", timeout_ms()));
    }
    return parts;
  }

  Result<std::vector<std::string>> gather_at_rank_0(std::string_view mine) {
    send(0, std::string(mine));
    std::string all;
    // Rank 0 waits for others as long as this rank waits for it; a little more lets it say for
    // whom.
    if (!receive(0, all, deadline_in(timeout_ms() + timeout_ms() / 2 + 1000)) || all.empty()) {
      return Status::error(fmt::format("rank 0 did not answer within {} ms", timeout_ms()));
    }
    (void)finish_sending(deadline_in(1000));
    if (all[0] != 'd') return Status::error(readable(all.substr(1)));
    std::optional<std::vector<std::string>> parts =
        split_parts(std::string_view(all).substr(1), ranks());
    if (!parts) return Status::error("rank 0 does not speak the same language");
    return *std::move(parts);
  }

  MPI_Comm comm_;
  std::list<std::string> sent_;
  std::vector<MPI_Request> requests_;
};

}  // namespace

Result<std::unique_ptr<Bootstrap>> mpi_bootstrap(MPI_Comm ranks, std::uint64_t timeout_ms) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) return Status::error("MPI is not initialized: call MPI_Init first");
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(ranks, &rank);
  MPI_Comm_size(ranks, &size);
  return std::unique_ptr<Bootstrap>(std::make_unique<MpiBootstrap>(ranks, rank, size, timeout_ms));
}

}  // namespace arlab::kernels

// mpirun -n RANKS kernels_mpi_test RANKS: ranks meet over MPI, and collectives among them on
// emulated GPUs have the reference's bits. Says what is wrong, and ends with 1.

#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "kernels/runtime/mpi_bootstrap.h"
#include "tests/kernels/compared_call.h"

using namespace arlab;
using namespace arlab::kernels;

namespace {

/// Parts arrive in rank order, and of the right round.
std::string gathers(Bootstrap& bootstrap) {
  for (int round = 0; round < 3; ++round) {
    // Long and different, so that MPI does not send them at once.
    const auto part_of = [&](int rank) {
      return std::string(static_cast<std::size_t>(rank) * 40'000, 'x') +
             std::to_string(10 * round + rank);
    };
    const auto parts = bootstrap.all_gather(part_of(bootstrap.rank()));
    if (!parts.ok()) return parts.status().message();
    for (int rank = 0; rank < bootstrap.ranks(); ++rank) {
      if (parts.value()[static_cast<std::size_t>(rank)] != part_of(rank)) return "wrong part";
    }
  }
  return {};
}

std::string reduces(Bootstrap& bootstrap) {
  auto communicator = Communicator::create(bootstrap.rank(), bootstrap, {.blocks = 2});
  if (!communicator.ok()) return communicator.status().message();
  int seed = 0;
  for (const CollectiveRequest& request :
       {request_of("two_shot", "qr-q4", 9000), request_of("one_shot", "fp16", 3000),
        request_of("ring", "int5-g128", 5001), request_of("two_shot", "qr-q8", 1)}) {
    const std::string wrong = compared_call(communicator.value(), request, ++seed);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

/// A rank that comes too late is named by all others.
std::string names_the_late() {
  auto impatient = mpi_bootstrap(MPI_COMM_WORLD, 300);
  if (!impatient.ok()) return impatient.status().message();
  if (impatient.value()->rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    (void)impatient.value()->barrier();
    return {};
  }
  const std::string message = impatient.value()->barrier().message();
  return message == "rank 1 did not answer within 300 ms" ? "" : "not named: " + message;
}

std::string run(int ranks) {
  auto bootstrap = mpi_bootstrap(MPI_COMM_WORLD);
  if (!bootstrap.ok()) return bootstrap.status().message();
  // An mpirun of another MPI starts programs that are alone.
  if (bootstrap.value()->ranks() != ranks) return "wrong number of ranks";
  std::string wrong = gathers(*bootstrap.value());
  if (wrong.empty()) wrong = reduces(*bootstrap.value());
  const Status status = bootstrap.value()->barrier();
  if (wrong.empty()) wrong = status.message();
  // The last: nobody waits for what was left over.
  return wrong.empty() ? names_the_late() : wrong;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: mpirun -n RANKS kernels_mpi_test RANKS\n");
    return 2;
  }
  if (mpi_bootstrap(MPI_COMM_WORLD).ok()) return 1;  // too early
  MPI_Init(&argc, &argv);
  const std::string wrong = run(std::atoi(argv[1]));
  if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
  MPI_Finalize();
  return wrong.empty() ? 0 : 1;
}

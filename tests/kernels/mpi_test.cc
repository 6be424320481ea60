// Run with mpirun: ranks meet over MPI and reduce on emulated GPUs. Says what is wrong, and ends
// with 1.

#include <chrono>
#include <cstdio>
#include <thread>

#include "kernels/platform/platform.h"
#include "kernels/runtime/communicator.h"
#include "kernels/runtime/mpi_bootstrap.h"

using namespace arlab;
using namespace arlab::kernels;

namespace {

std::string run() {
  auto bootstrap = mpi_bootstrap(MPI_COMM_WORLD, 30'000);
  if (!bootstrap.ok()) return bootstrap.status().message();
  const int rank = bootstrap.value()->rank();
  const int ranks = bootstrap.value()->ranks();
  for (int round = 0; round < 3; ++round) {
    const auto parts = bootstrap.value()->all_gather(std::to_string(10 * round + rank));
    if (!parts.ok()) return parts.status().message();
    for (int r = 0; r < ranks; ++r) {
      if (parts.value()[static_cast<std::size_t>(r)] != std::to_string(10 * round + r)) {
        return "wrong part";
      }
    }
  }
  auto communicator = Communicator::create(rank, *bootstrap.value(), {.blocks = 1});
  if (!communicator.ok()) return communicator.status().message();
  std::vector<float> tensor(1000, static_cast<float>(rank + 1));
  const Status status = communicator.value().run(
      {.algorithm = "two_shot", .codec = "fp32", .dtype = DType::fp32, .elements = tensor.size()},
      tensor.data(), tensor.data(), nullptr);
  if (!status.ok()) return status.message();
  (void)hipDeviceSynchronize();
  for (const float x : tensor) {
    if (x != static_cast<float>(ranks * (ranks + 1) / 2)) return "wrong sum";
  }

  // A rank that comes too late is named by all others.
  auto impatient = mpi_bootstrap(MPI_COMM_WORLD, 300);
  (void)bootstrap.value()->barrier();
  if (rank == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    (void)impatient.value()->barrier();
    return {};
  }
  const std::string message = impatient.value()->barrier().message();
  return message == "rank 1 did not answer within 300 ms" ? "" : "not named: " + message;
}

}  // namespace

int main(int argc, char** argv) {
  if (mpi_bootstrap(MPI_COMM_WORLD).ok()) return 1;  // too early
  MPI_Init(&argc, &argv);
  const std::string wrong = run();
  if (!wrong.empty()) std::fprintf(stderr, "%s\n", wrong.c_str());
  MPI_Finalize();
  return wrong.empty() ? 0 : 1;
}

// A user's program whose ranks meet over MPI.
#include <cstdio>

#include "kernels/runtime/mpi_bootstrap.h"

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  const auto ranks = arlab::kernels::mpi_bootstrap(MPI_COMM_WORLD);
  const bool met = ranks.ok() && ranks.value()->barrier().ok();
  if (!met) std::puts("the ranks do not meet");
  MPI_Finalize();
  return met ? 0 : 1;
}

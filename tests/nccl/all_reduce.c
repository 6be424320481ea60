/* A program that knows NCCL only: two ranks, a process each, add up 1 MiB of bfloat16. */

#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/nccl/nccl_prototypes.h"

enum { kElements = 1 << 19 };
static uint16_t values[kElements];

/* Programs end without, too. */
static int destroys = 1;

static int run(int rank, ncclUniqueId id) {
  ncclComm_t comm = NULL;
  for (int i = 0; i < kElements; ++i) values[i] = rank == 0 ? 0x3f80 : 0x4000; /* 1 and 2 */
  if (ncclCommInitRank(&comm, 2, id, rank) != ncclSuccess) return 1;
  if (ncclAllReduce(values, values, kElements, ncclBfloat16, ncclSum, comm, NULL) != ncclSuccess) {
    return 1;
  }
  for (int i = 0; i < kElements; ++i) {
    if (values[i] != 0x4040) return 1; /* 3, which any codec has exactly */
  }
  return destroys && ncclCommDestroy(comm) != ncclSuccess;
}

int main(int argc, char** argv) {
  (void)argv;
  destroys = argc == 1;
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess) return 1;
  const pid_t other = fork();
  const int failed = run(other == 0 ? 1 : 0, id);
  if (other == 0) return failed;
  int status = 1;
  if (waitpid(other, &status, 0) != other || status != 0 || failed != 0) return 1;
  puts("all sums are right");
  return 0;
}

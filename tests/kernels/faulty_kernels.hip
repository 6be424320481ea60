// Faults that inspect_code_objects.py must report: a collective that never acquires, scratch memory,
// and one whose blocks do not fit and whose words are not stored at system scope.

#include <hip/hip_runtime.h>

__global__ void program_kernel(unsigned* flag, unsigned* data) {
  data[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    __hip_atomic_store(flag, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
  }
}

__global__ void scratch_kernel(unsigned* data, int i) {
  unsigned copies[64];
  for (int k = 0; k < 64; ++k) copies[k] = data[k] * 3;
  data[0] = copies[i] + copies[63 - i];
}

__global__ void lamport_kernel(uint4* data) {
  __shared__ uint4 memory[3000];
  memory[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = memory[255 - threadIdx.x];
}

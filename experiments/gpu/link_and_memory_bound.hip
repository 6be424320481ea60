// The bound of two_shot by the links and the memory of a machine's GPUs: the bytes that it moves, without arithmetic, flags or
// barriers.
//
// Per fp16 element, every GPU reads 2 bytes of its tensor and writes 2. It sends 2 (N - 1) / N times the element's bytes on the
// wire, spread over its peers, in whole packets. Reading the wires that arrive, which lie in the L2 cache, is left out. `links`
// only sends, `memory` only reads and writes, `both` does both in every block, as two_shot does.
//
//   nvcc -x cu -O3 -std=c++20 -arch=sm_90 -diag-suppress 2810 -DARLAB_PLATFORM=cuda -I. \
//       -Ikernels/platform/cuda experiments/gpu/link_and_memory_bound.hip -o link_and_memory_bound
//   hipcc -O3 -std=c++20 -DARLAB_PLATFORM=rocm -I. experiments/gpu/link_and_memory_bound.hip \
//       -o link_and_memory_bound
//   ./link_and_memory_bound > bound.csv
//
// Prints CSV, a row per number of GPUs, bits per element on the wire, bytes of the tensor, and what
// is done: microseconds, median of 5 times 20 launches, and the blocks per multiprocessor (of 1, 2,
// 4 and 8) with which it was fastest.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/platform/platform.h"

namespace {

using namespace arlab::kernels;

constexpr unsigned kBlockThreads = 256;
constexpr unsigned kTiles = 4;  // tiles of a block at a time, with 8 elements per thread
constexpr unsigned kBatchElements = 8 * kBlockThreads * kTiles;
constexpr unsigned kPacket = 128;
constexpr int kMostGpus = 8;
constexpr int kCalls = 20;
constexpr int kRepeats = 5;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kLargest = 256 * kMiB;
constexpr std::size_t kPart = 64 * kMiB;  // bytes of a GPU's buffer for one peer's messages

void check(hipError_t error, const char* what) {
  if (error == hipSuccess) return;
  std::fprintf(stderr, "link_and_memory_bound: %s failed with error %d\n", what,
               static_cast<int>(error));
  std::exit(2);
}

struct Work {
  const Uint4* input;
  Uint4* output;
  std::uint8_t* part[kMostGpus - 1];  // in the buffer of each peer
  int peers;
  unsigned batches;
  unsigned bytes_per_batch;  // to send
  bool memory;
};

__global__ void __launch_bounds__(kBlockThreads) move_bytes(Work work) {
  const unsigned blocks = gridDim.x;
  const unsigned thread = threadIdx.x;
  int peer = static_cast<int>(blockIdx.x) % work.peers;
  unsigned turn = 0;
  for (unsigned batch = blockIdx.x; batch < work.batches; batch += blocks, ++turn) {
    Uint4 x[kTiles] = {};
    const std::size_t at = static_cast<std::size_t>(batch) * kTiles * kBlockThreads + thread;
    if (work.memory) {
#pragma unroll
      for (unsigned i = 0; i < kTiles; ++i)
        x[i] = load_128_once(work.input + at + i * kBlockThreads);
    }
    // As slots are, the same memory is written again and again.
    const std::size_t slot =
        (static_cast<std::size_t>(turn % 4) * blocks + blockIdx.x) * work.bytes_per_batch;
    for (unsigned byte = thread * 16; byte < work.bytes_per_batch; byte += kBlockThreads * 16) {
      store_128(work.part[peer] + (slot + byte) % kPart, x[0]);
    }
    if (++peer == work.peers) peer = 0;
    if (work.memory) {
#pragma unroll
      for (unsigned i = 0; i < kTiles; ++i) {
        store_128_once(work.output + at + i * kBlockThreads, x[i]);
      }
    }
  }
}

struct Gpu {
  hipStream_t stream;
  hipEvent_t begin, end;
  void *input, *output, *incoming;
  int multiprocessors;
};

struct Case {
  int gpus;
  double wire_bits;
  std::size_t bytes;
  bool links;
  bool memory;
};

Work work_of(const Case& c, const std::vector<Gpu>& gpus, int rank) {
  const Gpu& own = gpus[static_cast<std::size_t>(rank)];
  Work work{};
  work.input = static_cast<const Uint4*>(own.input);
  work.output = static_cast<Uint4*>(own.output);
  for (int peer = 0; peer < c.gpus; ++peer) {
    if (peer == rank) continue;
    work.part[work.peers++] =
        static_cast<std::uint8_t*>(gpus[static_cast<std::size_t>(peer)].incoming) +
        static_cast<std::size_t>(rank) * kPart;
  }
  work.batches = static_cast<unsigned>(c.bytes / 2 / kBatchElements);
  const double sent = kBatchElements * c.wire_bits / 8 * 2 * (c.gpus - 1) / c.gpus;
  work.bytes_per_batch = c.links ? static_cast<unsigned>(sent / kPacket + 0.5) * kPacket : 0;
  work.memory = c.memory;
  return work;
}

/// Microseconds of a launch on the slowest GPU.
double time_of(const Case& c, const std::vector<Gpu>& gpus, int blocks_per_multiprocessor) {
  std::vector<double> times;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (int rank = 0; rank < c.gpus; ++rank) {
      const Gpu& gpu = gpus[static_cast<std::size_t>(rank)];
      const Work work = work_of(c, gpus, rank);
      const auto blocks = static_cast<unsigned>(gpu.multiprocessors * blocks_per_multiprocessor);
      check(hipSetDevice(rank), "choosing a GPU");
      for (int call = -1; call < kCalls; ++call) {  // the first warms up
        if (call == 0) check(hipEventRecord(gpu.begin, gpu.stream), "recording an event");
        hipLaunchKernelGGL(move_bytes, dim3(blocks), dim3(kBlockThreads), 0, gpu.stream, work);
        check(hipGetLastError(), "starting a kernel");
      }
      check(hipEventRecord(gpu.end, gpu.stream), "recording an event");
    }
    double slowest = 0;
    for (int rank = 0; rank < c.gpus; ++rank) {
      const Gpu& gpu = gpus[static_cast<std::size_t>(rank)];
      check(hipStreamSynchronize(gpu.stream), "running");
      float milliseconds = 0;
      check(hipEventElapsedTime(&milliseconds, gpu.begin, gpu.end), "timing");
      slowest = std::max(slowest, milliseconds * 1e3 / kCalls);
    }
    times.push_back(slowest);
  }
  std::sort(times.begin(), times.end());
  return times[kRepeats / 2];
}

}  // namespace

int main() {
  int count = 0;
  check(hipGetDeviceCount(&count), "counting GPUs");
  count = std::min(count, kMostGpus);
  if (count < 2) {
    std::fprintf(stderr, "link_and_memory_bound: needs 2 GPUs or more, found %d\n", count);
    return 2;
  }
  std::vector<Gpu> gpus(static_cast<std::size_t>(count));
  for (int rank = 0; rank < count; ++rank) {
    Gpu& gpu = gpus[static_cast<std::size_t>(rank)];
    check(hipSetDevice(rank), "choosing a GPU");
    for (int peer = 0; peer < count; ++peer) {
      if (peer != rank) check(hipDeviceEnablePeerAccess(peer, 0), "access to a peer");
    }
    check(hipDeviceGetAttribute(&gpu.multiprocessors, hipDeviceAttributeMultiprocessorCount, rank),
          "counting multiprocessors");
    check(hipStreamCreateWithFlags(&gpu.stream, hipStreamNonBlocking), "making a stream");
    check(hipEventCreateWithFlags(&gpu.begin, hipEventDefault), "making an event");
    check(hipEventCreateWithFlags(&gpu.end, hipEventDefault), "making an event");
    check(hipMalloc(&gpu.input, kLargest), "allocating");
    check(hipMalloc(&gpu.output, kLargest), "allocating");
    check(hipMalloc(&gpu.incoming, kPart * kMostGpus), "allocating");
    check(hipMemset(gpu.input, 1, kLargest), "filling");
    check(hipDeviceSynchronize(), "filling");
  }

  std::printf("gpus,wire_bits,bytes,what,blocks_per_multiprocessor,time_us\n");
  for (const int of : {2, 4, 8}) {
    if (of > count) break;
    for (const double wire_bits : {16.0, 8.5, 5.25, 4.5}) {
      for (const std::size_t bytes : {16 * kMiB, 64 * kMiB, kLargest}) {
        for (const char* what : {"links", "memory", "both"}) {
          const Case c{of, wire_bits, bytes, what[0] != 'm', what[0] != 'l'};
          double best = 0;
          int best_blocks = 0;
          for (const int blocks : {1, 2, 4, 8}) {
            const double time = time_of(c, gpus, blocks);
            if (best_blocks != 0 && time >= best) continue;
            best = time;
            best_blocks = blocks;
          }
          std::printf("%d,%g,%zu,%s,%d,%.2f\n", of, wire_bits, bytes, what, best_blocks, best);
          std::fflush(stdout);
        }
      }
    }
  }
  return 0;
}

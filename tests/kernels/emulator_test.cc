// The emulated GPU finds mistakes of kernels, and repeats a run exactly.

#include "kernels/platform/host/emulator.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/platform/host/shared_memory.h"
#include "kernels/platform/platform.h"

namespace arlab::kernels {
namespace {

class Emulator : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override { emulator::configure({}); }
};

__global__ void sum_kernel(const int* in, int* out) {
  ARLAB_SHARED_ARRAY(int, partial, 256);
  partial[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = partial[0];
}

TEST_F(Emulator, BlocksShareMemoryAndBarriers) {
  std::vector<int> in(1024);
  for (int i = 0; i < 1024; ++i) in[static_cast<std::size_t>(i)] = i * i;
  for (const std::uint64_t seed : {0, 1, 2}) {
    emulator::configure({.wave_size = seed == 1 ? 32 : 64, .seed = seed});
    std::vector<int> out(4);
    hipLaunchKernelGGL(sum_kernel, dim3(4), dim3(256), 0, nullptr, in.data(), out.data());
    ASSERT_EQ(hipDeviceSynchronize(), hipSuccess);
    for (int block = 0; block < 4; ++block) {
      int expected = 0;
      for (int i = 0; i < 256; ++i) expected += in[static_cast<std::size_t>(256 * block + i)];
      EXPECT_EQ(out[static_cast<std::size_t>(block)], expected);
    }
  }
}

__global__ void shuffle_kernel(std::uint32_t* out) {
  std::uint32_t value = threadIdx.x;
  value += exchange_xor<1, 8>(value);
  value += exchange_xor<2, 8>(value);
  value += exchange_xor<7, 8>(value);
  out[threadIdx.x] = value;
}

TEST_F(Emulator, LanesExchangeInsideAlignedGroups) {
  for (const int wave : {32, 64}) {
    emulator::configure({.wave_size = wave});
    std::vector<std::uint32_t> out(128);
    hipLaunchKernelGGL(shuffle_kernel, dim3(1), dim3(128), 0, nullptr, out.data());
    ASSERT_EQ(hipDeviceSynchronize(), hipSuccess);
    for (std::uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], i / 8 * 64 + 28);
  }
}

__global__ void ticket_kernel(std::uint32_t* order, std::uint32_t* next) {
  const std::uint32_t ticket = load_relaxed(next);
  store_relaxed(next, ticket + 1);
  order[ticket] = blockIdx.x;
}

TEST_F(Emulator, ASeedRepeatsARun) {
  const auto order_of = [](std::uint64_t seed) {
    emulator::configure({.seed = seed});
    std::vector<std::uint32_t> order(64);
    std::uint32_t next = 0;
    hipLaunchKernelGGL(ticket_kernel, dim3(64), dim3(1), 0, nullptr, order.data(), &next);
    (void)hipDeviceSynchronize();
    return order;
  };
  EXPECT_EQ(order_of(7), order_of(7));
  EXPECT_NE(order_of(7), order_of(8));
}

__global__ void flag_kernel(std::uint32_t* mine, std::uint32_t* theirs) {
  store_release(theirs, 1);
  while (load_relaxed(mine) == 0) pause();
}

TEST_F(Emulator, KernelsOfTwoDevicesWaitForEachOther) {
  std::uint32_t flags[2] = {};
  for (int device = 0; device < 2; ++device) {
    ASSERT_EQ(hipSetDevice(device), hipSuccess);
    hipLaunchKernelGGL(flag_kernel, dim3(1), dim3(1), 0, nullptr, &flags[device],
                       &flags[1 - device]);
  }
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
  ASSERT_EQ(hipSetDevice(0), hipSuccess);
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
}

__global__ void fetch_kernel(Words4* from, std::uint32_t* out) {
  ARLAB_SHARED_ARRAY(Words4, to, 2);
  to[0].word[0] = to[1].word[0] = 1;
  for (int i = 0; i < 2; ++i) {
    fetch_128(&to[i], &from[i]);
    commit_fetches();
  }
  out[0] = to[0].word[0];
  wait_for_fetches<1>();
  out[1] = to[0].word[0];
  out[2] = to[1].word[0];
  from[1].word[0] = 4;
  wait_for_fetches<0>();
  out[3] = to[1].word[0];
}

TEST_F(Emulator, FetchesEndWhenTheyAreWaitedFor) {
  Words4 from[2] = {{{2}}, {{3}}};
  std::vector<std::uint32_t> out(4);
  hipLaunchKernelGGL(fetch_kernel, dim3(1), dim3(1), 0, nullptr, from, out.data());
  ASSERT_EQ(hipDeviceSynchronize(), hipSuccess);
  EXPECT_EQ(out, (std::vector<std::uint32_t>{1, 2, 1, 4}));
}

#ifdef __SANITIZE_THREAD__
__global__ void write_kernel(std::uint32_t* out) { *out = 1; }

// The second kernel's block starts when the first kernel's has ended, and might take its thread.
TEST_F(Emulator, KernelsThatNothingOrdersRaceForThreadSanitizer) {
  const auto run = [](int streams) {
    emulator::configure({.resident_blocks = 1});
    std::uint32_t written = 0;
    hipStream_t stream[2] = {};
    for (hipStream_t& each : stream) {
      (void)hipStreamCreateWithFlags(&each, hipStreamNonBlocking);
    }
    for (int kernel = 0; kernel < 2; ++kernel) {
      hipLaunchKernelGGL(write_kernel, dim3(1), dim3(1), 0, stream[kernel % streams], &written);
    }
    (void)hipDeviceSynchronize();
    std::exit(0);
  };
  constexpr int kRaceWasFound = 66;
  EXPECT_EXIT(run(1), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run(2), testing::ExitedWithCode(kRaceWasFound), "data race");
}
#endif

TEST_F(Emulator, ReportsADeadlock) {
  std::uint32_t flags[2] = {};
  EXPECT_DEATH(
      {
        hipLaunchKernelGGL(flag_kernel, dim3(1), dim3(1), 0, nullptr, &flags[0], &flags[1]);
        (void)hipDeviceSynchronize();
      },
      "deadlock.*\n.*device 0 block 0: from thread 0 on polling");
}

__global__ void divergent_barrier_kernel() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_F(Emulator, ReportsADivergentBarrier) {
  EXPECT_DEATH(
      {
        hipLaunchKernelGGL(divergent_barrier_kernel, dim3(1), dim3(64), 0, nullptr);
        (void)hipDeviceSynchronize();
      },
      "divergent barrier");
}

__global__ void ended_lane_kernel(std::uint32_t* out) {
  if (threadIdx.x % 2 == 1) return;
  out[threadIdx.x] = exchange_xor<1, 8>(threadIdx.x);
}

TEST_F(Emulator, ReportsAShuffleWithALaneThatHasEnded) {
  std::vector<std::uint32_t> out(64);
  EXPECT_DEATH(
      {
        hipLaunchKernelGGL(ended_lane_kernel, dim3(1), dim3(64), 0, nullptr, out.data());
        (void)hipDeviceSynchronize();
      },
      "a shuffle reads a lane that has ended");
}

__global__ void misaligned_kernel(std::uint8_t* at) { store_128(at + 4, Words4{}); }

TEST_F(Emulator, ReportsAMisalignedAccess) {
  alignas(16) std::uint8_t memory[32] = {};
  EXPECT_DEATH(
      {
        hipLaunchKernelGGL(misaligned_kernel, dim3(1), dim3(1), 0, nullptr, memory);
        (void)hipDeviceSynchronize();
      },
      "misaligned access");
}

// ---------------------------------------------------------------- memory for other processes

TEST_F(Emulator, WritesOutsideOfMemoryForOthersFault) {
  void* memory = nullptr;
  ASSERT_EQ(hipExtMallocWithFlags(&memory, 1024, hipDeviceMallocFinegrained), hipSuccess);
  auto* const bytes = static_cast<volatile char*>(memory);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0U);
  bytes[0] = 1;
  bytes[1023] = 1;
  EXPECT_DEATH(bytes[1024] = 1, "");
  EXPECT_DEATH(bytes[-4096] = 1, "");
  EXPECT_EQ(hipFree(memory), hipSuccess);
  EXPECT_DEATH(bytes[0] = 1, "");
}

TEST_F(Emulator, MemoryIsOpenedByItsFile) {
  void* memory = nullptr;
  ASSERT_EQ(hipMalloc(&memory, 1000), hipSuccess);
  EXPECT_EQ(emulator::file_of_shared(memory), -1);
  EXPECT_EQ(hipFree(memory), hipSuccess);
  for (const std::size_t bytes : {1U, 1000U, 4096U, 5000U}) {
    ASSERT_EQ(hipExtMallocWithFlags(&memory, bytes, hipDeviceMallocFinegrained), hipSuccess);
    const int file = emulator::file_of_shared(memory);
    auto* const opened = static_cast<char*>(emulator::open_shared(file, bytes));
    ASSERT_NE(opened, nullptr);
    EXPECT_TRUE(emulator::works_with_other_processes());
    opened[bytes - 1] = 7;
    EXPECT_EQ(static_cast<char*>(memory)[bytes - 1], 7);
    EXPECT_EQ(emulator::file_of_shared(opened), -1);
    EXPECT_FALSE(emulator::free_shared(opened));
    EXPECT_FALSE(emulator::close_shared(memory));
    EXPECT_TRUE(emulator::close_shared(opened));
    EXPECT_FALSE(emulator::works_with_other_processes());
    // Of another size.
    EXPECT_EQ(emulator::open_shared(file, bytes + 4096), nullptr);
    EXPECT_EQ(emulator::open_shared(file, bytes + 8192), nullptr);
    EXPECT_EQ(emulator::open_shared(file, std::size_t{1} << 40), nullptr);
    EXPECT_EQ(ftruncate(file, 0), -1);
    EXPECT_EQ(hipFree(memory), hipSuccess);
  }
}

TEST_F(Emulator, OtherFilesAreNotOpened) {
  constexpr std::size_t kBytes = 4096;
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  std::string name = "/tmp/arlab-XXXXXX";
  const int plain = mkstemp(name.data());
  ASSERT_EQ(ftruncate(plain, kBytes), 0);
  const int read_only = open(name.c_str(), O_RDONLY | O_CLOEXEC);
  int ends[2] = {};
  ASSERT_EQ(pipe(ends), 0);
  const auto in_memory = [](std::size_t bytes, int seals) {
    const int file = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(file, static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fcntl(file, F_ADD_SEALS, seals), 0);
    return file;
  };
  const int sealed = in_memory(kBytes, kSeals);
  const int sealed_read_only =
      open(("/proc/self/fd/" + std::to_string(sealed)).c_str(), O_RDONLY | O_CLOEXEC);
  void* const memory = emulator::open_shared(sealed, kBytes);
  EXPECT_NE(memory, nullptr);
  EXPECT_TRUE(emulator::close_shared(memory));
  const int others[] = {-1,
                        plain,
                        read_only,
                        ends[0],
                        sealed_read_only,
                        in_memory(kBytes, 0),
                        in_memory(kBytes, F_SEAL_SHRINK | F_SEAL_GROW),
                        in_memory(kBytes, F_SEAL_SHRINK | F_SEAL_SEAL),
                        in_memory(kBytes, kSeals | F_SEAL_WRITE),
                        in_memory(kBytes - 1, kSeals),
                        in_memory(1, kSeals),
                        in_memory(2 * kBytes, kSeals)};
  for (const int file : others) {
    EXPECT_EQ(emulator::open_shared(file, kBytes), nullptr) << file;
    if (file >= 0) close(file);
  }
  EXPECT_FALSE(emulator::works_with_other_processes());
  close(sealed);
  close(ends[1]);
  unlink(name.c_str());
}

}  // namespace
}  // namespace arlab::kernels

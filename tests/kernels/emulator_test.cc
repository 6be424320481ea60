// The emulated GPU finds mistakes of kernels, and repeats a run exactly.

#include "kernels/platform/host/emulator.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/platform/host/shared_memory.h"
#include "kernels/platform/platform.h"

namespace arlab::kernels {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kAsan = true;
#else
constexpr bool kAsan = false;
#endif

// To which a lane is a thread, of which it knows 8000 at a time and makes a few thousand in a second.
#ifdef __SANITIZE_THREAD__
constexpr bool kTsan = true;
#else
constexpr bool kTsan = false;
#endif

class Emulator : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override {
    emulator::configure({});
    (void)hipSetDevice(0);
  }
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
  value += shuffle_xor<1, 8>(value);
  value += shuffle_xor<2, 8>(value);
  value += shuffle_xor<7, 8>(value);
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

/// How many blocks have run.
__global__ void number_kernel(std::uint32_t* out) {
  if (threadIdx.x == 0) atomic_add(out, 1);
}

__global__ void fetch_kernel(Uint4* from, std::uint32_t* out) {
  ARLAB_SHARED_ARRAY(Uint4, to, 2);
  to[0].word[0] = to[1].word[0] = 1;
  for (int i = 0; i < 2; ++i) {
    cp_async_128(&to[i], &from[i]);
    cp_async_commit();
  }
  out[0] = to[0].word[0];
  cp_async_wait<1>();
  out[1] = to[0].word[0];
  out[2] = to[1].word[0];
  from[1].word[0] = 4;
  cp_async_wait<0>();
  out[3] = to[1].word[0];
}

TEST_F(Emulator, FetchesEndWhenTheyAreWaitedFor) {
  Uint4 from[2] = {{{2}}, {{3}}};
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

/// The current device is given up, others are not.
void expect_failure(const char* pattern) {
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorLaunchFailure);
  EXPECT_TRUE(std::regex_search(emulator::report(), std::regex(pattern))) << emulator::report();
  const std::string text = hipGetErrorString(hipErrorLaunchFailure);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_TRUE(text.starts_with(emulator::report().substr(0, emulator::report().find('\n'))))
      << text;

  std::uint32_t out = 0;
  void* memory = nullptr;
  hipLaunchKernelGGL(number_kernel, dim3(1), dim3(1), 0, nullptr, &out);
  EXPECT_EQ(hipGetLastError(), hipErrorLaunchFailure);
  EXPECT_EQ(hipGetLastError(), hipSuccess);
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorLaunchFailure);
  EXPECT_EQ(hipMalloc(&memory, 16), hipErrorLaunchFailure);
  EXPECT_EQ(out, 0U);
  ASSERT_EQ(hipSetDevice(5), hipSuccess);
  hipLaunchKernelGGL(number_kernel, dim3(1), dim3(1), 0, nullptr, &out);
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
  EXPECT_EQ(out, 1U);
  ASSERT_EQ(hipSetDevice(0), hipSuccess);
}

TEST_F(Emulator, ADeadlockIsAnErrorThatSaysWhereLanesWait) {
  std::uint32_t flags[2] = {};
  hipLaunchKernelGGL(flag_kernel, dim3(3), dim3(40), 0, nullptr, &flags[0], &flags[1]);
  expect_failure(
      "deadlock.*\ndevice 0 block 0: from thread 0 on polling 0x.*, which stays 0\ndevice 0 block "
      "1: ");
}

TEST_F(Emulator, ADeadlockEndsEveryDeviceThatIsInvolved) {
  std::uint32_t flags[3] = {};
  for (int device = 0; device < 2; ++device) {
    ASSERT_EQ(hipSetDevice(device), hipSuccess);
    hipLaunchKernelGGL(flag_kernel, dim3(1), dim3(1), 0, nullptr, &flags[device], &flags[2]);
  }
  ASSERT_EQ(hipSetDevice(2), hipSuccess);
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);  // has nothing to wait for
  ASSERT_EQ(hipSetDevice(1), hipSuccess);
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorLaunchFailure);
  ASSERT_EQ(hipSetDevice(0), hipSuccess);
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorLaunchFailure);
}

__global__ void divergent_barrier_kernel() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_F(Emulator, ReportsADivergentBarrier) {
  hipLaunchKernelGGL(divergent_barrier_kernel, dim3(1), dim3(64), 0, nullptr);
  expect_failure("divergent barrier .*, device 0 block 0 thread 1$");
}

__global__ void ended_lane_kernel(std::uint32_t* out) {
  if (threadIdx.x % 2 == 1) return;
  out[threadIdx.x] = shuffle_xor<1, 8>(threadIdx.x);
}

TEST_F(Emulator, ReportsAShuffleWithALaneThatHasEnded) {
  std::vector<std::uint32_t> out(64);
  hipLaunchKernelGGL(ended_lane_kernel, dim3(1), dim3(64), 0, nullptr, out.data());
  expect_failure("a shuffle reads a lane that has ended");
}

__global__ void misaligned_kernel(std::uint8_t* at) { store_128(at + 4, Uint4{}); }

TEST_F(Emulator, ReportsAMisalignedAccess) {
  alignas(16) std::uint8_t memory[32] = {};
  hipLaunchKernelGGL(misaligned_kernel, dim3(1), dim3(1), 0, nullptr, memory);
  expect_failure("misaligned access at .*, device 0 block 0 thread 0");
}

// ---------------------------------------------------------------- many blocks

TEST_F(Emulator, BlocksThatWaitForNoneRunInTurns) {
  constexpr unsigned kBlocks = kTsan ? 30 : 3000;
  std::vector<int> in(std::size_t{kBlocks} * 64, 1);
  std::vector<int> out(kBlocks);
  hipLaunchKernelGGL(sum_kernel, dim3(kBlocks), dim3(64), 0, nullptr, in.data(), out.data());
  ASSERT_EQ(hipDeviceSynchronize(), hipSuccess);
  EXPECT_EQ(out, std::vector<int>(kBlocks, 64));
  EXPECT_LE(emulator::most_resident_lanes(), 16U * 64);
}

/// Each block waits for the one behind it.
__global__ void chain_kernel(std::uint32_t* flags) {
  ARLAB_SHARED_ARRAY(std::uint32_t, seen, 1);
  if (threadIdx.x == 0) {
    while (blockIdx.x + 1 < gridDim.x && load_relaxed(&flags[blockIdx.x + 1]) == 0) pause();
    seen[0] = 1;
  }
  __syncthreads();
  if (threadIdx.x + 1 == blockDim.x) store_release(&flags[blockIdx.x], seen[0]);
}

TEST_F(Emulator, BlocksThatWaitForEachOtherAllRun) {
  constexpr unsigned kBlocks = kTsan ? 20 : 150;
  for (const std::uint64_t seed : {0, 1}) {
    for (const std::size_t guarded : {0, 1000, 100000}) {
      emulator::configure({.seed = seed, .guarded_stacks = guarded});
      std::vector<std::uint32_t> flags(kBlocks);
      hipLaunchKernelGGL(chain_kernel, dim3(kBlocks), dim3(40), 0, nullptr, flags.data());
      ASSERT_EQ(hipDeviceSynchronize(), hipSuccess) << emulator::report();
      EXPECT_EQ(flags, std::vector<std::uint32_t>(kBlocks, 1));
      EXPECT_EQ(emulator::most_resident_lanes(), kBlocks * 40);
    }
  }
}

// More than 65,530 mappings have room for, with two for each lane.
TEST_F(Emulator, MoreLanesThanMappingsRunAtOnce) {
  if (kTsan) GTEST_SKIP();
  constexpr unsigned kBlocks = 140;
  std::vector<std::uint32_t> flags(kBlocks);
  hipLaunchKernelGGL(chain_kernel, dim3(kBlocks), dim3(256), 0, nullptr, flags.data());
  ASSERT_EQ(hipDeviceSynchronize(), hipSuccess) << emulator::report();
  EXPECT_EQ(emulator::most_resident_lanes(), kBlocks * 256);
}

/// Uses so many KiB of its stack, and more.
__attribute__((noinline)) std::uint32_t use_stack(std::uint32_t kib) {
  volatile std::uint8_t frame[1024];
  for (std::size_t i = 0; i < sizeof(frame); i += 64) frame[i] = static_cast<std::uint8_t>(kib);
  return kib == 0 ? frame[0] : use_stack(kib - 1) + frame[64];
}
__global__ void stack_kernel(std::uint32_t* out, std::uint32_t kib) {
  if (threadIdx.x == 1) *out = use_stack(kib);
}

TEST_F(Emulator, StacksHave64KiB) {
  std::uint32_t out = 0;
  emulator::configure({.guarded_stacks = 0});
  hipLaunchKernelGGL(stack_kernel, dim3(1), dim3(2), 0, nullptr, &out, kAsan ? 20 : 64);
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
}

TEST_F(Emulator, AStackThatIsTooSmallFaults) {
  std::uint32_t out = 0;
  EXPECT_DEATH(
      {
        hipLaunchKernelGGL(stack_kernel, dim3(1), dim3(2), 0, nullptr, &out, 130);
        (void)hipDeviceSynchronize();
      },
      "");
}

// AddressSanitizer would say so itself.
TEST_F(Emulator, AStackThatIsTooSmallIsReportedWhereNoPageFaults) {
  if (kAsan) GTEST_SKIP();
  std::uint32_t out = 0;
  emulator::configure({.guarded_stacks = 0});
  hipLaunchKernelGGL(stack_kernel, dim3(1), dim3(2), 0, nullptr, &out, 126);
  expect_failure("a lane needs more than its stack, device 0 block 0");
}

__global__ void wait_kernel(const std::uint32_t* flag, std::uint64_t nanoseconds) {
  const std::uint64_t start = clock_nanoseconds();
  while (load_relaxed(flag) == 0 && clock_nanoseconds() - start < nanoseconds) pause();
}

/// Hours pass in a moment where nothing else happens, and nothing does on a device that has failed.
TEST_F(Emulator, WhoWaitsForAFailedDeviceWaitsInVainButNotLong) {
  constexpr std::uint64_t kHours = 10'000'000'000'000;
  std::uint32_t flag = 0;
  hipLaunchKernelGGL(divergent_barrier_kernel, dim3(1), dim3(2), 0, nullptr);
  ASSERT_EQ(hipSetDevice(1), hipSuccess);
  hipLaunchKernelGGL(wait_kernel, dim3(1), dim3(1), 0, nullptr, &flag, kHours);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
  ASSERT_EQ(hipSetDevice(0), hipSuccess);
  expect_failure("divergent barrier");
}

// ---------------------------------------------------------------- no memory

TEST_F(Emulator, ALaunchWithoutMemoryFailsAloneWithWhatFollowsIt) {
  emulator::configure({.most_lanes = 64});
  std::uint32_t out[3] = {};
  hipStream_t stream = nullptr;
  ASSERT_EQ(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), hipSuccess);
  hipLaunchKernelGGL(number_kernel, dim3(1), dim3(100), 0, nullptr, &out[0]);
  hipLaunchKernelGGL(number_kernel, dim3(1), dim3(1), 0, nullptr, &out[1]);
  hipLaunchKernelGGL(number_kernel, dim3(100), dim3(64), 0, stream, &out[2]);
  EXPECT_EQ(hipStreamSynchronize(stream), hipSuccess);
  EXPECT_EQ(hipStreamSynchronize(nullptr), hipErrorOutOfMemory);
  EXPECT_EQ(out[0], 0U);
  EXPECT_EQ(out[1], 0U);
  EXPECT_EQ(out[2], 100U);
  // It is known now.
  hipLaunchKernelGGL(number_kernel, dim3(1), dim3(1), 0, nullptr, &out[1]);
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
  EXPECT_EQ(out[1], 1U);
  EXPECT_EQ(hipStreamDestroy(stream), hipSuccess);
}

/// As chain_kernel, but gives up after a second.
__global__ void patient_chain_kernel(std::uint32_t* flags) {
  const std::uint64_t start = clock_nanoseconds();
  while (blockIdx.x + 1 < gridDim.x && load_relaxed(&flags[blockIdx.x + 1]) == 0) {
    if (clock_nanoseconds() - start > 1'000'000'000) return;
  }
  store_release(&flags[blockIdx.x], 1);
}

TEST_F(Emulator, BlocksThatHaveStartedEndWhenThereIsNoMemoryForOthers) {
  emulator::configure({.most_lanes = 10});
  std::vector<std::uint32_t> flags(11);
  hipLaunchKernelGGL(patient_chain_kernel, dim3(11), dim3(1), 0, nullptr, flags.data());
  EXPECT_EQ(hipDeviceSynchronize(), hipErrorOutOfMemory);
  hipLaunchKernelGGL(patient_chain_kernel, dim3(10), dim3(1), 0, nullptr, flags.data());
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
  EXPECT_EQ(flags[0], 1U);
}

// ---------------------------------------------------------------- threads, and processes that fork

TEST_F(Emulator, ThreadsTakeTurns) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 50;
  std::vector<std::uint32_t> sums(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([thread, &sum = sums[static_cast<std::size_t>(thread)]] {
      (void)hipSetDevice(thread % 2);
      for (int call = 0; call < kCalls; ++call) {
        std::vector<std::uint32_t> flags(7);
        hipStream_t stream = nullptr;
        (void)hipStreamCreateWithFlags(&stream, hipStreamNonBlocking);
        hipLaunchKernelGGL(chain_kernel, dim3(7), dim3(10), 0, stream, flags.data());
        if (hipStreamSynchronize(stream) == hipSuccess) sum += flags[0];
        (void)hipStreamDestroy(stream);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, std::vector<std::uint32_t>(kThreads, kCalls));
}

/// The error of a launch in the child of a fork().
hipError_t error_in_child() {
  const pid_t child = fork();
  if (child == 0) {
    std::uint32_t out = 0;
    hipLaunchKernelGGL(number_kernel, dim3(1), dim3(1), 0, nullptr, &out);
    const hipError_t launch = hipGetLastError();
    const hipError_t end = hipDeviceSynchronize();
    _exit(launch != end ? 255 : end);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return static_cast<hipError_t>(WEXITSTATUS(status));
}

TEST_F(Emulator, ThreadsShareAStream) {
  // One waits for it while others put behind it what they have on streams of their own.
  const auto copy = [](int* sum) {
    hipStream_t own = nullptr;
    hipEvent_t event = nullptr;
    EXPECT_EQ(hipStreamCreateWithFlags(&own, hipStreamNonBlocking), hipSuccess);
    EXPECT_EQ(hipEventCreateWithFlags(&event, hipEventDisableTiming), hipSuccess);
    for (int i = 1; i <= 3000; ++i) {
      int to = 0;
      EXPECT_EQ(hipMemcpyAsync(&to, &i, sizeof(i), hipMemcpyDefault, own), hipSuccess);
      EXPECT_EQ(hipEventRecord(event, own), hipSuccess);
      EXPECT_EQ(hipStreamWaitEvent(nullptr, event, 0), hipSuccess);
      EXPECT_EQ(hipStreamSynchronize(nullptr), hipSuccess);
      *sum += to == i;
    }
    EXPECT_EQ(hipEventDestroy(event), hipSuccess);
    EXPECT_EQ(hipStreamDestroy(own), hipSuccess);
  };
  int sums[8] = {};
  std::vector<std::thread> threads;
  for (int& sum : sums) threads.emplace_back(copy, &sum);
  for (std::thread& thread : threads) thread.join();
  for (const int sum : sums) EXPECT_EQ(sum, 3000);
}

TEST_F(Emulator, AForkOfAProcessThatUsesDevicesCannot) {
  std::uint32_t out = 0;
  hipLaunchKernelGGL(number_kernel, dim3(1), dim3(1), 0, nullptr, &out);
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
  EXPECT_EQ(error_in_child(), hipSuccess);  // it uses none any more
  hipStream_t stream = nullptr;
  ASSERT_EQ(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), hipSuccess);
  EXPECT_EQ(error_in_child(), hipErrorNotInitialized);
  EXPECT_EQ(hipStreamDestroy(stream), hipSuccess);
  void* memory = nullptr;
  ASSERT_EQ(hipExtMallocWithFlags(&memory, 100, hipDeviceMallocFinegrained), hipSuccess);
  EXPECT_EQ(error_in_child(), hipErrorNotInitialized);
  EXPECT_EQ(hipFree(memory), hipSuccess);
  hipLaunchKernelGGL(number_kernel, dim3(1), dim3(1), 0, nullptr, &out);
  EXPECT_EQ(error_in_child(), hipErrorNotInitialized);
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
  EXPECT_EQ(out, 2U);
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
    // Another size is refused.
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

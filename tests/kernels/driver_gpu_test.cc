// A kernel from its text to its result on the NVIDIA GPU that is here; skipped elsewhere.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "kernels/compile/compiler.h"
#include "kernels/platform/cuda/driver/hip/hip_runtime.h"

namespace arlab::kernels {
namespace {

constexpr const char* kText = R"(
extern "C" __global__ void add(int* at, int number) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  extern __shared__ int shared[];
  shared[threadIdx.x] = number;
  __syncthreads();
  at[blockIdx.x * blockDim.x + threadIdx.x] += shared[blockDim.x - 1 - threadIdx.x];
}
)";
constexpr unsigned kBlocks = 3;
constexpr unsigned kThreads = 64;
constexpr unsigned kSharedBytes = 100'000;  // more than launches may ask for at first

class GpuDriver : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const hipError_t error = hipGetDeviceCount(&count);
    if (error != hipSuccess) GTEST_SKIP() << hipGetErrorString(error);
    const auto compiler = nvrtc(arlab_driver::driver_version());
    if (!compiler.ok()) GTEST_SKIP() << compiler.status().message();
    std::array<char, 16> architecture{};
    ASSERT_EQ(arlab_driver::architecture_of(0, architecture.data(), architecture.size()),
              hipSuccess);
    const auto code = compiler.value()->compile(
        {.name = "add.cu", .text = kText, .architecture = architecture.data()});
    ASSERT_TRUE(code.ok()) << code.status().message();
    ASSERT_EQ(hipSetDevice(0), hipSuccess);
    ASSERT_EQ(hipModuleLoadData(&module_, code.value().bytes.data()), hipSuccess);
    ASSERT_EQ(hipModuleGetFunction(&function_, module_, "add"), hipSuccess);
    ASSERT_EQ(arlab_driver::load(function_), hipSuccess);
    ASSERT_EQ(arlab_driver::allow_shared_bytes(function_, kSharedBytes), hipSuccess);
    ASSERT_EQ(hipMalloc(&memory_, kBlocks * kThreads * sizeof(int)), hipSuccess);
    ASSERT_EQ(hipMemset(memory_, 0, kBlocks * kThreads * sizeof(int)), hipSuccess);
    ASSERT_EQ(hipDeviceSynchronize(), hipSuccess);
    ASSERT_EQ(hipStreamCreateWithFlags(&stream_, hipStreamNonBlocking), hipSuccess);
  }
  void TearDown() override {
    if (stream_ == nullptr) return;
    EXPECT_EQ(hipStreamDestroy(stream_), hipSuccess);
    EXPECT_EQ(hipFree(memory_), hipSuccess);
    EXPECT_EQ(hipModuleUnload(module_), hipSuccess);
    EXPECT_EQ(hipGetLastError(), hipSuccess);
  }

  void add(int number, hipStream_t stream) {
    std::array<void*, 2> parameters = {static_cast<void*>(&memory_), &number};
    const arlab_driver::Launch launch = {.blocks = kBlocks,
                                         .threads = kThreads,
                                         .shared_bytes = kSharedBytes,
                                         .stream = stream,
                                         .overlaps_previous = true};
    ASSERT_EQ(arlab_driver::launch(function_, launch, parameters.data()), hipSuccess);
  }
  void expect_all(int value, hipStream_t stream) const {
    std::array<int, kBlocks * kThreads> values{};
    ASSERT_EQ(hipMemcpyAsync(values.data(), memory_, sizeof(values), hipMemcpyDeviceToHost, stream),
              hipSuccess);
    ASSERT_EQ(hipStreamSynchronize(stream), hipSuccess);
    for (const int each : values) ASSERT_EQ(each, value);
  }

  hipModule_t module_ = nullptr;
  hipFunction_t function_ = nullptr;
  hipStream_t stream_ = nullptr;
  void* memory_ = nullptr;
};

TEST_F(GpuDriver, LaunchesOneAfterTheOther) {
  hipEvent_t start = nullptr;
  hipEvent_t stop = nullptr;
  ASSERT_EQ(hipEventCreateWithFlags(&start, hipEventDefault), hipSuccess);
  ASSERT_EQ(hipEventCreateWithFlags(&stop, hipEventDefault), hipSuccess);
  ASSERT_EQ(hipEventRecord(start, stream_), hipSuccess);
  for (int i = 1; i <= 100; ++i) add(i, stream_);
  ASSERT_EQ(hipEventRecord(stop, stream_), hipSuccess);
  expect_all(5050, stream_);
  float milliseconds = 0;
  EXPECT_EQ(hipEventElapsedTime(&milliseconds, start, stop), hipSuccess);
  EXPECT_GT(milliseconds, 0);
  EXPECT_EQ(hipEventDestroy(start), hipSuccess);
  EXPECT_EQ(hipEventDestroy(stop), hipSuccess);
}

TEST_F(GpuDriver, LaunchesFromAGraph) {
  hipGraph_t graph = nullptr;
  hipGraphExec_t executable = nullptr;
  hipStreamCaptureStatus status{};
  ASSERT_EQ(hipStreamBeginCapture(stream_, hipStreamCaptureModeThreadLocal), hipSuccess);
  add(3, stream_);
  ASSERT_EQ(hipStreamIsCapturing(stream_, &status), hipSuccess);
  EXPECT_EQ(status, hipStreamCaptureStatusActive);
  add(4, stream_);
  ASSERT_EQ(hipStreamEndCapture(stream_, &graph), hipSuccess);
  ASSERT_EQ(hipGraphInstantiateWithFlags(&executable, graph, 0), hipSuccess);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(hipGraphLaunch(executable, stream_), hipSuccess);
  expect_all(21, stream_);
  EXPECT_EQ(hipGraphExecDestroy(executable), hipSuccess);
  EXPECT_EQ(hipGraphDestroy(graph), hipSuccess);
}

TEST_F(GpuDriver, LaunchesOnSomeMultiprocessors) {
  hipStream_t few = nullptr;
  const std::uint32_t mask = 0xFFFF;
  const hipError_t error = hipExtStreamCreateWithCUMask(&few, 1, &mask);
  if (error != hipSuccess) GTEST_SKIP() << hipGetErrorString(error);
  add(7, few);
  expect_all(7, few);
  EXPECT_EQ(hipStreamDestroy(few), hipSuccess);
}

TEST_F(GpuDriver, GivesMemoryToOtherProcesses) {
  hipIpcMemHandle_t handle{};
  EXPECT_EQ(hipIpcGetMemHandle(&handle, memory_), hipSuccess);
}

}  // namespace
}  // namespace arlab::kernels

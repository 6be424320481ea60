// HIP's functions on NVIDIA's driver, of which a fake stands in the place (fake_libcuda.cc).
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>

#include "kernels/platform/cuda/driver/hip/hip_runtime.h"
#include "tests/kernels/fake_libcuda.h"
#include "tests/kernels/in_processes.h"
#include "tests/tensors/temporary_directory.h"

namespace arlab::kernels {
namespace {

/// The fake that this process uses from its first call on.
FakeDriver& fake() {
  setenv("ARLAB_LIBCUDA", FAKE_LIBCUDA, 1);
  static FakeDriver& driver = fake_in<FakeDriver>(FAKE_LIBCUDA);
  return driver;
}

class CudaDriver : public testing::Test {
 protected:
  void SetUp() override {
    fake().failures.clear();
    ASSERT_EQ(hipSetDevice(0), hipSuccess);
    (void)hipGetLastError();
    fake().calls.clear();
  }
};

/// The words of hipGetDeviceCount() in a process whose driver is `file`.
std::string without_driver(const std::string& file, const char* init_fails = nullptr) {
  return in_processes({0}, [&](int) {
    setenv("ARLAB_LIBCUDA", file.c_str(), 1);
    if (init_fails != nullptr) setenv("FAKE_INIT_FAILS", init_fails, 1);
    int count = -1;
    const hipError_t error = hipGetDeviceCount(&count);
    const std::string text = hipGetErrorString(error);
    if (hipGetLastError() != error || count != 0) return "not remembered: " + text;
    if (hipSetDevice(0) != error || hipMalloc(nullptr, 16) != error) return "another: " + text;
    return std::to_string(arlab_driver::driver_version()) + " " + text;
  })[0];
}

// Before the others: from its first call on, a process keeps the driver that it has found.
TEST(ANoCudaDriver, IsSaidInOneLine) {
  EXPECT_EQ(without_driver("libno_such_cuda.so.1"),
            "0 no NVIDIA driver: libno_such_cuda.so.1 is not here");
  EXPECT_EQ(without_driver("/dev/null"),
            "0 no NVIDIA driver: /dev/null cannot be loaded: it is not a regular file");
  const TemporaryDirectory folder;
  const std::string damaged = folder.write("libcuda.so.1", "no library").string();
  EXPECT_EQ(without_driver(damaged),
            "0 no NVIDIA driver: " + damaged + " cannot be loaded: file too short");
  EXPECT_EQ(without_driver(FAKE_LIBCUDA_WITHOUT_LAUNCH),
            std::string("0 the NVIDIA driver is too old: ") + FAKE_LIBCUDA_WITHOUT_LAUNCH +
                " lacks cuLaunchKernelEx");
  EXPECT_EQ(without_driver(FAKE_LIBCUDA, "100"),
            "0 the NVIDIA driver does not start: no CUDA-capable device is detected");
}

TEST(ANoCudaDriver, BeforeCuda12_4LoadsFunctionsAnotherWay) {
  EXPECT_EQ(
      in_processes({0},
                   [](int) -> std::string {
                     setenv("ARLAB_LIBCUDA", FAKE_LIBCUDA_OF_12_3, 1);
                     hipStream_t stream = nullptr;
                     const std::uint32_t mask = 0xFF;
                     if (hipExtStreamCreateWithCUMask(&stream, 1, &mask) != hipErrorNotSupported) {
                       return "it has green contexts";
                     }
                     return arlab_driver::load(nullptr) == hipSuccess ? "loads" : "fails";
                   })[0],
      "loads");
}

TEST_F(CudaDriver, IsLoadedOnceAndInitialized) {
  int count = 0;
  EXPECT_EQ(hipGetDeviceCount(&count), hipSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(fake().calls["cuInit"], 0);  // it was called before
  EXPECT_EQ(arlab_driver::driver_version(), 12080);
}

TEST_F(CudaDriver, EveryThreadHasADeviceOfItsOwn) {
  ASSERT_EQ(hipSetDevice(1), hipSuccess);
  int here = -1;
  ASSERT_EQ(hipGetDevice(&here), hipSuccess);
  EXPECT_EQ(here, 1);
  std::thread([] {
    int device = -1;
    EXPECT_EQ(hipGetDevice(&device), hipSuccess);
    EXPECT_EQ(device, 0);
    // The first call that needs a context makes the first device's the thread's.
    EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
    cuda_driver::Context context = nullptr;
    EXPECT_EQ(cuda_driver::functions()->cuCtxGetCurrent(&context), cuda_driver::kSuccess);
    EXPECT_NE(context, nullptr);
  }).join();
  EXPECT_EQ(hipGetDevice(&here), hipSuccess);
  EXPECT_EQ(here, 1);
}

TEST_F(CudaDriver, AContextOfOthersStays) {
  // As PyTorch leaves it: that of device 1, which we have not set.
  cuda_driver::Context theirs = nullptr;
  ASSERT_EQ(cuda_driver::functions()->cuDevicePrimaryCtxRetain(&theirs, 1), cuda_driver::kSuccess);
  ASSERT_EQ(cuda_driver::functions()->cuCtxSetCurrent(theirs), cuda_driver::kSuccess);
  fake().calls.clear();
  int device = -1;
  EXPECT_EQ(hipGetDevice(&device), hipSuccess);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);
  EXPECT_EQ(fake().calls["cuCtxSetCurrent"], 0);
}

TEST_F(CudaDriver, PrimaryContextsAreRetainedOnce) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(hipSetDevice(1), hipSuccess);
    ASSERT_EQ(hipSetDevice(0), hipSuccess);
  }
  EXPECT_LE(fake().calls["cuDevicePrimaryCtxRetain"], 1);
  EXPECT_EQ(hipSetDevice(2), hipErrorInvalidDevice);
  EXPECT_EQ(hipSetDevice(-1), hipErrorInvalidDevice);
  EXPECT_EQ(hipSetDevice(100'000), hipErrorInvalidDevice);
}

TEST_F(CudaDriver, SaysWhatDevicesAre) {
  int value = 0;
  EXPECT_EQ(hipDeviceGetAttribute(&value, hipDeviceAttributeMultiprocessorCount, 1), hipSuccess);
  EXPECT_EQ(value, 132);
  char text[64] = {};
  EXPECT_EQ(hipDeviceGetName(text, sizeof(text), 1), hipSuccess);
  EXPECT_STREQ(text, "fake 1");
  EXPECT_EQ(hipDeviceGetPCIBusId(text, sizeof(text), 0), hipSuccess);
  EXPECT_STREQ(text, "0000:1b:00.0");
  EXPECT_EQ(arlab_driver::architecture_of(0, text, sizeof(text)), hipSuccess);
  EXPECT_STREQ(text, "sm_90");
  EXPECT_EQ(hipDeviceGetName(text, sizeof(text), 7), hipErrorInvalidDevice);
  EXPECT_EQ(hipDeviceCanAccessPeer(&value, 0, 1), hipSuccess);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(hipDeviceCanAccessPeer(&value, 0, 2), hipErrorInvalidDevice);
  EXPECT_EQ(hipDeviceEnablePeerAccess(1, 0), hipSuccess);
  fake().failures["cuCtxEnablePeerAccess"] = 704;
  EXPECT_EQ(hipDeviceEnablePeerAccess(1, 0), hipErrorPeerAccessAlreadyEnabled);
}

TEST_F(CudaDriver, Memory) {
  void* memory = nullptr;
  ASSERT_EQ(hipMalloc(&memory, 16), hipSuccess);
  std::array<unsigned char, 16> bytes{};
  EXPECT_EQ(hipMemset(memory, 0xDB, bytes.size()), hipSuccess);
  EXPECT_EQ(hipMemcpy(bytes.data(), memory, bytes.size(), hipMemcpyDeviceToHost), hipSuccess);
  EXPECT_EQ(bytes.front(), 0xDB);
  EXPECT_EQ(bytes.back(), 0xDB);
  bytes.fill(7);
  EXPECT_EQ(hipMemcpyAsync(memory, bytes.data(), bytes.size(), hipMemcpyDefault, nullptr),
            hipSuccess);
  hipIpcMemHandle_t handle{};
  void* opened = nullptr;
  EXPECT_EQ(hipIpcGetMemHandle(&handle, memory), hipSuccess);
  EXPECT_EQ(hipIpcOpenMemHandle(&opened, handle, hipIpcMemLazyEnablePeerAccess), hipSuccess);
  EXPECT_EQ(opened, memory);
  EXPECT_EQ(static_cast<unsigned char*>(opened)[15], 7);
  EXPECT_EQ(hipIpcCloseMemHandle(opened), hipSuccess);
  EXPECT_EQ(hipFree(memory), hipSuccess);
  // No memory is made of nothing.
  EXPECT_EQ(hipMalloc(&memory, 0), hipSuccess);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(hipFree(nullptr), hipSuccess);
  EXPECT_EQ(hipMemset(nullptr, 0, 0), hipSuccess);
  EXPECT_EQ(hipMemcpy(nullptr, nullptr, 0, hipMemcpyDefault), hipSuccess);
  EXPECT_EQ(fake().calls["cuMemFree_v2"], 1);
  fake().failures["cuMemAlloc_v2"] = 2;
  EXPECT_EQ(hipExtMallocWithFlags(&memory, 16, hipDeviceMallocFinegrained), hipErrorOutOfMemory);
  EXPECT_EQ(memory, nullptr);
}

TEST_F(CudaDriver, StreamsEventsAndGraphs) {
  hipStream_t stream = nullptr;
  hipEvent_t event = nullptr;
  hipGraph_t graph = nullptr;
  hipGraphExec_t executable = nullptr;
  float milliseconds = 0;
  hipStreamCaptureStatus status{};
  ASSERT_EQ(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), hipSuccess);
  ASSERT_EQ(hipEventCreateWithFlags(&event, hipEventDisableTiming), hipSuccess);
  EXPECT_EQ(hipEventRecord(event, stream), hipSuccess);
  EXPECT_EQ(hipStreamWaitEvent(stream, event, 0), hipSuccess);
  EXPECT_EQ(hipEventElapsedTime(&milliseconds, event, event), hipSuccess);
  EXPECT_EQ(milliseconds, 1.5F);
  EXPECT_EQ(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal), hipSuccess);
  EXPECT_EQ(hipStreamIsCapturing(stream, &status), hipSuccess);
  EXPECT_EQ(status, hipStreamCaptureStatusActive);
  EXPECT_EQ(hipStreamEndCapture(stream, &graph), hipSuccess);
  EXPECT_EQ(hipStreamIsCapturing(stream, &status), hipSuccess);
  EXPECT_EQ(status, hipStreamCaptureStatusNone);
  EXPECT_EQ(hipGraphInstantiateWithFlags(&executable, graph, 0), hipSuccess);
  EXPECT_EQ(hipGraphLaunch(executable, stream), hipSuccess);
  EXPECT_EQ(hipStreamSynchronize(stream), hipSuccess);
  EXPECT_EQ(hipGraphExecDestroy(executable), hipSuccess);
  EXPECT_EQ(hipGraphDestroy(graph), hipSuccess);
  EXPECT_EQ(hipEventDestroy(event), hipSuccess);
  EXPECT_EQ(hipStreamDestroy(stream), hipSuccess);
  hipStreamCaptureMode mode = hipStreamCaptureModeRelaxed;
  EXPECT_EQ(hipThreadExchangeStreamCaptureMode(&mode), hipSuccess);
  EXPECT_EQ(mode, hipStreamCaptureModeGlobal);
  EXPECT_EQ(hipThreadExchangeStreamCaptureMode(&mode), hipSuccess);
  EXPECT_EQ(mode, hipStreamCaptureModeRelaxed);
}

TEST_F(CudaDriver, StreamsOfSomeMultiprocessors) {
  hipStream_t stream = nullptr;
  const std::array<std::uint32_t, 2> sixteen = {0xFF, 0xFF00};
  EXPECT_EQ(hipExtStreamCreateWithCUMask(&stream, 2, sixteen.data()), hipSuccess);
  EXPECT_NE(stream, nullptr);
  EXPECT_EQ(fake().calls["cuGreenCtxStreamCreate"], 1);
  // The driver rounds up.
  const std::uint32_t three = 7;
  EXPECT_EQ(hipExtStreamCreateWithCUMask(&stream, 1, &three), hipErrorInvalidValue);
  fake().failures["cuGreenCtxCreate"] = 801;
  EXPECT_EQ(hipExtStreamCreateWithCUMask(&stream, 2, sixteen.data()), hipErrorNotSupported);
}

TEST_F(CudaDriver, KernelsAreLoadedAndLaunched) {
  hipModule_t module = nullptr;
  hipFunction_t function = nullptr;
  ASSERT_EQ(hipModuleLoadData(&module, "machine code"), hipSuccess);
  EXPECT_STREQ(fake().image, "machine code");
  ASSERT_EQ(hipModuleGetFunction(&function, module, "kernel"), hipSuccess);
  EXPECT_EQ(hipModuleGetFunction(&function, module, "another"), static_cast<hipError_t>(500));
  EXPECT_EQ(arlab_driver::load(function), hipSuccess);
  EXPECT_EQ(fake().calls["cuFuncLoad"], 1);
  int registers = 0;
  EXPECT_EQ(hipFuncGetAttribute(&registers, HIP_FUNC_ATTRIBUTE_NUM_REGS, function), hipSuccess);
  EXPECT_EQ(registers, 104);
  EXPECT_EQ(arlab_driver::allow_shared_bytes(function, 200'000), hipSuccess);
  EXPECT_EQ(fake().attributes[8], 200'000);

  int number = 41;
  std::array<void*, 1> parameters = {&number};
  arlab_driver::Launch launch = {.blocks = dim3(5, 2), .threads = 256, .shared_bytes = 64};
  EXPECT_EQ(arlab_driver::launch(function, launch, parameters.data()), hipSuccess);
  EXPECT_EQ(fake().launch.grid[0], 5U);
  EXPECT_EQ(fake().launch.grid[1], 2U);
  EXPECT_EQ(fake().launch.grid[2], 1U);
  EXPECT_EQ(fake().launch.block[0], 256U);
  EXPECT_EQ(fake().launch.block[1], 1U);
  EXPECT_EQ(fake().launch.shared_bytes, 64U);
  EXPECT_EQ(fake().parameter, 41);
  EXPECT_FALSE(fake().overlaps);
  launch.overlaps_previous = true;
  EXPECT_EQ(arlab_driver::launch(function, launch, parameters.data()), hipSuccess);
  EXPECT_TRUE(fake().overlaps);
  // sm_80, on which kernels do not wait for the one before them.
  ASSERT_EQ(hipSetDevice(1), hipSuccess);
  EXPECT_EQ(arlab_driver::launch(function, launch, parameters.data()), hipSuccess);
  EXPECT_FALSE(fake().overlaps);
  EXPECT_EQ(hipModuleUnload(module), hipSuccess);
}

TEST_F(CudaDriver, TheLastErrorIsKeptForItsThread) {
  fake().failures["cuLaunchKernelEx"] = 719;
  int number = 0;
  std::array<void*, 1> parameters = {&number};
  EXPECT_EQ(arlab_driver::launch(nullptr, {}, parameters.data()), hipErrorLaunchFailure);
  fake().failures.clear();
  EXPECT_EQ(hipDeviceSynchronize(), hipSuccess);  // which forgets none
  std::thread([] { EXPECT_EQ(hipGetLastError(), hipSuccess); }).join();
  EXPECT_EQ(hipGetLastError(), hipErrorLaunchFailure);
  EXPECT_EQ(hipGetLastError(), hipSuccess);
  EXPECT_STREQ(hipGetErrorString(hipErrorOutOfMemory), "out of memory");
  EXPECT_STREQ(hipGetErrorString(static_cast<hipError_t>(4711)),
               "an error that the driver has no words for");
}

TEST_F(CudaDriver, EveryFailureIsSaid) {
  const auto fails = [](const char* name, auto call) {
    fake().failures = {{name, 2}};
    EXPECT_EQ(call(), hipErrorOutOfMemory) << name;
    fake().failures.clear();
    EXPECT_EQ(hipGetLastError(), hipErrorOutOfMemory) << name;
  };
  int value = 0;
  char text[16] = {};
  void* memory = nullptr;
  hipStream_t stream = nullptr;
  fails("cuDeviceGetCount", [&] { return hipGetDeviceCount(&value); });
  fails("cuDeviceGet", [&] { return hipDeviceGetName(text, 16, 0); });
  fails("cuDeviceGetAttribute", [&] { return arlab_driver::architecture_of(0, text, 16); });
  fails("cuCtxSetCurrent", [&] { return hipSetDevice(0); });
  fails("cuCtxGetCurrent", [&] { return hipGetDevice(&value); });
  fails("cuCtxGetCurrent", [&] { return hipMalloc(&memory, 16); });
  fails("cuCtxSynchronize", [] { return hipDeviceSynchronize(); });
  fails("cuStreamCreate", [&] { return hipStreamCreateWithFlags(&stream, 0); });
  fails("cuStreamSynchronize", [] { return hipStreamSynchronize(nullptr); });
  fails("cuFuncLoad", [] { return arlab_driver::load(nullptr); });
}

}  // namespace
}  // namespace arlab::kernels

// HIP's functions by HIP's library, of which a fake stands in the place (fake_libamdhip64.cc).
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>

#include "kernels/platform/rocm/driver/hip/hip_runtime.h"
#include "tests/kernels/fake_driver.h"
#include "tests/kernels/in_processes.h"

namespace arlab::kernels {
namespace {

FakeHip& fake() {
  setenv("ARLAB_LIBAMDHIP64", FAKE_LIBAMDHIP64, 1);
  static FakeHip& driver = fake_in<FakeHip>(FAKE_LIBAMDHIP64);
  return driver;
}

class RocmDriver : public testing::Test {
 protected:
  void SetUp() override {
    fake().failures.clear();
    fake().calls.clear();
  }
};

// Before the others: from its first call on, a process keeps the library that it has found.
TEST(ANoRocmDriver, IsSaidInOneLine) {
  const auto said = in_processes({0}, [](int) -> std::string {
    setenv("ARLAB_LIBAMDHIP64", "libno_such_hip.so", 1);
    int count = 0;
    const hipError_t error = hipGetDeviceCount(&count);
    const std::string text = hipGetErrorString(error);
    if (error != hipErrorInsufficientDriver || hipGetLastError() != error) return "not remembered";
    if (hipGetLastError() != hipSuccess) return "not forgotten";
    char architecture[16];
    if (arlab_driver::architecture_of(0, architecture, 16) != error) return "an architecture";
    if (arlab_driver::launch(nullptr, {}, nullptr) != error) return "a launch";
    return std::to_string(arlab_driver::driver_version()) + " " + text;
  });
  EXPECT_EQ(said[0], "0 no AMD driver: libno_such_hip.so cannot be loaded: it is not here");
}

TEST_F(RocmDriver, IsAskedUnderItsOwnNames) {
  int count = 0;
  EXPECT_EQ(hipGetDeviceCount(&count), hipSuccess);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(hipSetDevice(3), hipErrorInvalidDevice);
  EXPECT_STREQ(hipGetErrorString(hipErrorInvalidDevice), "invalid device ordinal");
  EXPECT_EQ(hipGetLastError(), hipErrorInvalidDevice);
  EXPECT_EQ(hipGetLastError(), hipSuccess);
  EXPECT_EQ(arlab_driver::driver_version(), 60'200'000);
}

TEST_F(RocmDriver, AFunctionThatItLacksIsNotSupported) {
  EXPECT_EQ(hipIpcCloseMemHandle(nullptr), hipErrorNotSupported);
  EXPECT_EQ(hipGetLastError(), hipErrorNotSupported);
}

TEST_F(RocmDriver, AFunctionThatFailsIsBelieved) {
  fake().failures["hipMalloc"] = hipErrorOutOfMemory;
  void* memory = nullptr;
  EXPECT_EQ(hipMalloc(&memory, 16), hipErrorOutOfMemory);
  EXPECT_EQ(hipGetLastError(), hipErrorOutOfMemory);
  EXPECT_STREQ(hipGetErrorString(hipErrorOutOfMemory), "out of memory");
  EXPECT_EQ(fake().calls["hipMalloc"], 1);
}

TEST_F(RocmDriver, SaysTheArchitectureWithoutFeatures) {
  char text[16];
  EXPECT_EQ(arlab_driver::architecture_of(0, text, sizeof(text)), hipSuccess);
  EXPECT_STREQ(text, "gfx90a");
  EXPECT_EQ(arlab_driver::architecture_of(2, text, sizeof(text)), hipErrorNotSupported);
  EXPECT_EQ(arlab_driver::architecture_of(3, text, sizeof(text)), hipErrorInvalidDevice);
  (void)hipGetLastError();
}

TEST_F(RocmDriver, Launches) {
  int value = 41;
  std::array<void*, 1> parameters = {&value};
  const arlab_driver::Launch launch = {
      .blocks = dim3(5, 2), .threads = 256, .shared_bytes = 64, .overlaps_previous = true};
  EXPECT_EQ(arlab_driver::launch(nullptr, launch, parameters.data()), hipSuccess);
  EXPECT_EQ(fake().blocks, (std::array<unsigned, 3>{5, 2, 1}));
  EXPECT_EQ(fake().threads, 256U);
  EXPECT_EQ(fake().shared_bytes, 64U);
  EXPECT_EQ(fake().parameter, 41);
  EXPECT_EQ(arlab_driver::load(nullptr), hipSuccess);
  EXPECT_EQ(arlab_driver::allow_shared_bytes(nullptr, 64), hipSuccess);
  fake().failures["hipModuleLaunchKernel"] = hipErrorLaunchFailure;
  EXPECT_EQ(arlab_driver::launch(nullptr, launch, parameters.data()), hipErrorLaunchFailure);
}

}  // namespace
}  // namespace arlab::kernels

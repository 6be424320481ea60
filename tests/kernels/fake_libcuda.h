// What a test sees of the driver that stands in the place of libcuda.so.1.
#pragma once

#include <map>

#include "kernels/platform/cuda/driver.h"
#include "tests/kernels/fake_driver.h"

struct FakeDriver : FakeCalls {
  std::map<int, int> attributes;  ///< that were set
  arlab::cuda_driver::LaunchConfig launch{};
  bool overlaps = false;
  const char* image = nullptr;  ///< of the last module
  arlab::cuda_driver::Stream captured = nullptr;
};

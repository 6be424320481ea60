// A test's view of the driver that stands in the place of libcuda.so.1.
#pragma once

#include <map>

#include "kernels/platform/cuda/driver.h"
#include "tests/kernels/fake_driver.h"

struct FakeDriver : FakeCalls {
  std::map<int, int> attributes;  ///< those that were set
  arlab::cuda_driver::LaunchConfig launch{};
  bool overlaps = false;
  const char* image = nullptr;  ///< the last module's
  arlab::cuda_driver::Stream captured = nullptr;
};

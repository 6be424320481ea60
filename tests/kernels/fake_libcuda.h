// What a test sees of the driver that stands in the place of libcuda.so.1.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "kernels/platform/cuda/driver.h"

struct FakeDriver {
  std::map<std::string, int> calls;
  std::map<std::string, int> failures;  ///< a function's name, and what it returns
  std::map<int, int> attributes;        ///< that were set
  arlab::cuda_driver::LaunchConfig launch{};
  bool overlaps = false;
  int parameter = 0;
  const char* image = nullptr;
  arlab::cuda_driver::Stream captured = nullptr;
  std::size_t handles = 100;
};

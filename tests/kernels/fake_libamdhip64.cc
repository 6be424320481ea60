// HIP's library for tests: a few of its functions. hipFree is not among them.
#include <cstddef>
#include <cstring>

namespace {
int last_error = 0;
}

extern "C" {

int hipGetDeviceCount(int* count) {
  *count = 3;
  return 0;
}
int hipSetDevice(int device) { return last_error = device < 3 ? 0 : 101; }
int hipGetLastError() {
  const int error = last_error;
  last_error = 0;
  return error;
}
const char* hipGetErrorString(int error) {
  return error == 101 ? "invalid device ordinal" : "no error";
}
int hipDriverGetVersion(int* version) {
  *version = 60'200'000;
  return 0;
}
int hipGetDevicePropertiesR0600(void* properties, int device) {
  // As far into the struct as ROCm 6 has it.
  std::strcpy(static_cast<char*>(properties) + 1160, device == 0 ? "gfx942:sramecc+:xnack-" : "");
  return device < 3 ? 0 : 101;
}
int hipModuleLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned, unsigned,
                          unsigned, unsigned shared_bytes, void*, void** parameters, void** extra) {
  int* const at = *static_cast<int**>(parameters[0]);
  *at = static_cast<int>(x * 100 + y * 10 + z);
  return function == nullptr && shared_bytes == 64 && extra == nullptr ? 0 : 1;
}
}

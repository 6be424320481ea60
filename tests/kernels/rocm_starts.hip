// A program of kernels for AMD GPUs: it links, starts, and says how many devices there are, or why
// none can be used.

#include <cstdio>

#include "kernels/collectives/launch.h"

int main() {
  using namespace arlab::kernels;
  const volatile LaunchCollective launch = launch_two_shot;  // so that its kernels are linked
  int devices = 0;
  const hipError_t error = hipGetDeviceCount(&devices);
  if (error == hipSuccess) {
    std::printf("devices: %d\n", devices);
  } else {
    std::printf("no device can be used: %s\n", hipGetErrorString(error));
  }
  return launch == nullptr;
}

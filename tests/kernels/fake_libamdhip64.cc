// HIP's library for tests, in the place of libamdhip64.so: two devices whose memory is the host's, and a third without an
// architecture. It counts calls, keeps the last launch, and fails where it is told to. hipIpcCloseMemHandle is not among its
// functions.
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/platform/rocm/driver/hip/hip_runtime.h"
#include "tests/kernels/fake_driver.h"

namespace {

constexpr int kDevices = 3;
constexpr std::array<const char*, kDevices> kArchitectures = {"gfx90a:sramecc+:xnack-", "gfx908",
                                                              ""};

FakeHip fake;
hipStream_t captured = nullptr;
hipError_t last_error = hipSuccess;
thread_local int current = 0;

hipError_t said(const char* name, hipError_t error = hipSuccess) {
  const int told = fake.said(name);
  if (told != 0) error = static_cast<hipError_t>(told);
  if (error != hipSuccess) last_error = error;
  return error;
}
hipError_t of_device(int device) { return device < kDevices ? hipSuccess : hipErrorInvalidDevice; }

}  // namespace

#define FAKE(name, parameters, action) \
  hipError_t name parameters {         \
    action;                            \
    return said(#name);                \
  }

extern "C" {

FakeHip* fake_driver() { return &fake; }

hipError_t hipGetLastError() { return std::exchange(last_error, hipSuccess); }
const char* hipGetErrorString(hipError_t error) {
  return error == hipErrorInvalidDevice ? "invalid device ordinal"
         : error == hipErrorOutOfMemory ? "out of memory"
                                        : "a failure";
}
FAKE(hipDriverGetVersion, (int* version), *version = 60'200'000)

FAKE(hipGetDeviceCount, (int* count), *count = kDevices)
hipError_t hipSetDevice(int device) {
  current = device;
  return said("hipSetDevice", of_device(device));
}
FAKE(hipGetDevice, (int* device), *device = current)
FAKE(hipDeviceGetAttribute, (int* value, hipDeviceAttribute_t, int), *value = 104)
FAKE(hipDeviceGetName, (char* name, int, int), std::strcpy(name, "fake"))
FAKE(hipDeviceGetPCIBusId, (char* text, int, int), std::strcpy(text, "0000:c1:00.0"))
FAKE(hipDeviceCanAccessPeer, (int* can, int device, int peer), *can = device != peer)
FAKE(hipDeviceEnablePeerAccess, (int, unsigned), )
FAKE(hipDeviceSynchronize, (), )
hipError_t hipGetDevicePropertiesR0600(void* properties, int device) {
  if (device < kDevices) {  // as far into the struct as ROCm 6 has it
    std::strcpy(static_cast<char*>(properties) + 1160,
                kArchitectures[static_cast<std::size_t>(device)]);
  }
  return said("hipGetDevicePropertiesR0600", of_device(device));
}

FAKE(hipMalloc, (void** memory, std::size_t bytes), *memory = std::malloc(bytes))
FAKE(hipExtMallocWithFlags, (void** memory, std::size_t bytes, unsigned),
     *memory = std::malloc(bytes))
FAKE(hipFree, (void* memory), std::free(memory))
FAKE(hipMemset, (void* memory, int value, std::size_t bytes), std::memset(memory, value, bytes))
FAKE(hipMemcpy, (void* to, const void* from, std::size_t bytes, hipMemcpyKind),
     std::memcpy(to, from, bytes))
FAKE(hipMemcpyAsync, (void* to, const void* from, std::size_t bytes, hipMemcpyKind, hipStream_t),
     std::memcpy(to, from, bytes))

FAKE(hipStreamCreateWithFlags, (hipStream_t * stream, unsigned), fake.make(stream))
FAKE(hipStreamDestroy, (hipStream_t), )
FAKE(hipStreamSynchronize, (hipStream_t), )
FAKE(hipStreamWaitEvent, (hipStream_t, hipEvent_t, unsigned), )
FAKE(hipStreamIsCapturing, (hipStream_t stream, hipStreamCaptureStatus* status),
     *status = stream != nullptr && stream == captured ? hipStreamCaptureStatusActive
                                                       : hipStreamCaptureStatusNone)
FAKE(hipStreamBeginCapture, (hipStream_t stream, hipStreamCaptureMode), captured = stream)
FAKE(hipStreamEndCapture, (hipStream_t, hipGraph_t* graph), (captured = nullptr, fake.make(graph)))
FAKE(hipThreadExchangeStreamCaptureMode, (hipStreamCaptureMode*), )
FAKE(hipEventCreateWithFlags, (hipEvent_t * event, unsigned), fake.make(event))
FAKE(hipEventRecord, (hipEvent_t, hipStream_t), )
FAKE(hipEventDestroy, (hipEvent_t), )

FAKE(hipModuleLoadData, (hipModule_t * module, const void* image),
     (fake.module_begin.assign(static_cast<const char*>(image), 4), fake.make(module)))
FAKE(hipModuleGetFunction, (hipFunction_t * function, hipModule_t, const char*),
     fake.make(function))
hipError_t hipModuleLaunchKernel(hipFunction_t, unsigned x, unsigned y, unsigned z,
                                 unsigned threads, unsigned, unsigned, unsigned shared_bytes,
                                 hipStream_t, void** parameters, void** extra) {
  fake.blocks = {x, y, z};
  fake.threads = threads;
  fake.shared_bytes = shared_bytes;
  fake.parameter = *static_cast<int*>(parameters[0]);
  return said("hipModuleLaunchKernel", extra == nullptr ? hipSuccess : hipErrorInvalidValue);
}
}

// <hip/hip_runtime.h> for a machine without a GPU: what the kernels here use of HIP, run on the
// CPU. ../emulator.h says what is emulated and what is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/platform/host/device_functions.h"

// NOLINTBEGIN(bugprone-reserved-identifier): HIP's own names
#define __HIP_PLATFORM_HOST__ 1

#define __global__
#define __device__
#define __host__
// A function that is always inlined on a GPU stands once here, for all kernels that call it: compiling takes an eighth of the time.
#define __forceinline__ inline
#define __launch_bounds__(...)
// NOLINTEND(bugprone-reserved-identifier)

#define threadIdx (::arlab::emulator::current_lane().thread)
#define blockIdx (::arlab::emulator::current_lane().block)
#define blockDim (::arlab::emulator::current_lane().block_size)
#define gridDim (::arlab::emulator::current_lane().grid_size)

// ---- kernel launch

#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define hipLaunchKernelGGL(kernel, grid, block, shared_bytes, stream, ...) \
  ::arlab::emulator::launch((kernel), dim3(grid), dim3(block), (stream)__VA_OPT__(, ) __VA_ARGS__)

// ---- host API: the subset that the runtime uses, with HIP's names and meaning

enum hipError_t {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorNotInitialized = 3,
  hipErrorInvalidDevice = 101,
  hipErrorNoDevice = 100,
  hipErrorPeerAccessAlreadyEnabled = 704,
  hipErrorLaunchFailure = 719,
  hipErrorStreamCaptureUnsupported = 900,
};
enum hipMemcpyKind {
  hipMemcpyHostToDevice,
  hipMemcpyDeviceToHost,
  hipMemcpyDeviceToDevice,
  hipMemcpyDefault
};
enum hipDeviceAttribute_t { hipDeviceAttributeMultiprocessorCount };
enum hipStreamCaptureMode { hipStreamCaptureModeGlobal, hipStreamCaptureModeThreadLocal };
enum hipStreamCaptureStatus { hipStreamCaptureStatusNone, hipStreamCaptureStatusActive };
inline constexpr unsigned hipStreamNonBlocking = 1;
inline constexpr unsigned hipEventDefault = 0;
inline constexpr unsigned hipEventDisableTiming = 2;
inline constexpr unsigned hipDeviceMallocFinegrained = 1;

namespace arlab::emulator {
struct Stream;
struct Event;
struct Graph;
}  // namespace arlab::emulator
using hipStream_t = arlab::emulator::Stream*;
using hipEvent_t = arlab::emulator::Event*;
using hipGraph_t = arlab::emulator::Graph*;
using hipGraphExec_t = arlab::emulator::Graph*;

hipError_t hipGetDeviceCount(int* count);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device);
hipError_t hipDeviceGetName(char* name, int bytes, int device);
hipError_t hipSetDevice(int device);
hipError_t hipGetDevice(int* device);
hipError_t hipDeviceGetPCIBusId(char* text, int bytes, int device);
hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer);
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags);
hipError_t hipDeviceSynchronize();
hipError_t hipMalloc(void** pointer, std::size_t bytes);
hipError_t hipFree(void* pointer);
/// Other processes can open it with ../shared_memory.h, in the place of hipIpc*.
hipError_t hipExtMallocWithFlags(void** pointer, std::size_t bytes, unsigned flags);
hipError_t hipMemset(void* pointer, int value, std::size_t bytes);
hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind);
/// A kernel of one thread.
hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream);
hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags);
/// Emulated blocks are on no multiprocessor: as hipStreamCreateWithFlags.
inline hipError_t hipExtStreamCreateWithCUMask(hipStream_t* stream, std::uint32_t,
                                               const std::uint32_t*) {
  return hipStreamCreateWithFlags(stream, hipStreamNonBlocking);
}
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status);
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph,
                                        unsigned long long flags);
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream);
hipError_t hipGraphExecDestroy(hipGraphExec_t executable);
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGetLastError();
const char* hipGetErrorString(hipError_t error);

namespace arlab::emulator {

void enqueue(std::function<void()> body, dim3 grid, dim3 block, hipStream_t stream);

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, hipStream_t stream,
            Arguments&&... arguments) {
  std::tuple<std::decay_t<Parameters>...> copies(std::forward<Arguments>(arguments)...);
  enqueue([kernel, copies] { std::apply(kernel, copies); }, grid, block, stream);
}

}  // namespace arlab::emulator

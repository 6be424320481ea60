// The part of HIP that arlab uses, for host code that is compiled without a GPU's toolkit: HIP's declarations, of which each platform
// with a driver has definitions of its own (cuda/driver.cc, rocm/driver.cc), in a namespace of its own. Included by their
// hip_runtime.h, which defines ARLAB_HIP_NAMESPACE. Numbers are HIP's, held against its header by tests/kernels/hip_declarations.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/platform/device_words.h"

struct ihipModule_t;
struct ihipModuleSymbol_t;
struct ihipStream_t;
struct ihipEvent_t;
struct ihipGraph;
struct hipGraphExec;

inline namespace ARLAB_HIP_NAMESPACE {

// ---- types and constants

using hipModule_t = ihipModule_t*;
using hipFunction_t = ihipModuleSymbol_t*;
using hipStream_t = ihipStream_t*;
using hipEvent_t = ihipEvent_t*;
using hipGraph_t = ihipGraph*;
using hipGraphExec_t = hipGraphExec*;
struct hipIpcMemHandle_t {
  char reserved[64];
};

/// NVIDIA's driver has the same numbers. Others are the driver's own.
enum hipError_t : int {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorNotInitialized = 3,
  hipErrorInsufficientDriver = 35,  ///< there is no driver, or a function is not in it
  hipErrorNoDevice = 100,
  hipErrorInvalidDevice = 101,
  hipErrorPeerAccessAlreadyEnabled = 704,
  hipErrorLaunchFailure = 719,
  hipErrorNotSupported = 801,
  hipErrorStreamCaptureUnsupported = 900,
};
enum hipMemcpyKind {
  hipMemcpyHostToDevice = 1,
  hipMemcpyDeviceToHost,
  hipMemcpyDeviceToDevice,
  hipMemcpyDefault
};
enum hipDeviceAttribute_t { hipDeviceAttributeMultiprocessorCount = 63 };
enum hipFunction_attribute {
  HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  HIP_FUNC_ATTRIBUTE_NUM_REGS = 4,
  HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};
enum hipStreamCaptureMode {
  hipStreamCaptureModeGlobal,
  hipStreamCaptureModeThreadLocal,
  hipStreamCaptureModeRelaxed
};
enum hipStreamCaptureStatus { hipStreamCaptureStatusNone, hipStreamCaptureStatusActive };
inline constexpr unsigned hipStreamNonBlocking = 1;
inline constexpr unsigned hipEventDefault = 0;
inline constexpr unsigned hipEventDisableTiming = 2;
inline constexpr unsigned hipIpcMemLazyEnablePeerAccess = 1;
inline constexpr unsigned hipDeviceMallocFinegrained = 1;

// ---- devices

hipError_t hipGetDeviceCount(int* count);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device);
hipError_t hipDeviceGetName(char* name, int bytes, int device);
hipError_t hipSetDevice(int device);
hipError_t hipGetDevice(int* device);
hipError_t hipDeviceGetPCIBusId(char* text, int bytes, int device);
hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer);
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags);
hipError_t hipDeviceSynchronize();

// ---- memory

hipError_t hipMalloc(void** pointer, std::size_t bytes);
hipError_t hipFree(void* pointer);
/// Memory of NVIDIA GPUs is always coherent for accesses at system scope.
hipError_t hipExtMallocWithFlags(void** pointer, std::size_t bytes, unsigned flags);
hipError_t hipMemset(void* pointer, int value, std::size_t bytes);
hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind);
hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream);
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* pointer);
hipError_t hipIpcOpenMemHandle(void** pointer, hipIpcMemHandle_t handle, unsigned flags);
hipError_t hipIpcCloseMemHandle(void* pointer);

// ---- streams, events, graphs

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags);
/// On NVIDIA GPUs only the number of bits counts: the driver picks the multiprocessors, the same ones for the same number. By a
/// green context, which stays until the process ends, like the primary one that it belongs to.
hipError_t hipExtStreamCreateWithCUMask(hipStream_t* stream, std::uint32_t words,
                                        const std::uint32_t* mask);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status);
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode);
hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph,
                                        unsigned long long flags);
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream);
hipError_t hipGraphExecDestroy(hipGraphExec_t executable);
hipError_t hipGraphDestroy(hipGraph_t graph);

// ---- code

/// Onto the thread's device, as all below.
hipError_t hipModuleLoadData(hipModule_t* module, const void* image);
hipError_t hipModuleUnload(hipModule_t module);
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name);
hipError_t hipFuncGetAttribute(int* value, hipFunction_attribute attribute, hipFunction_t function);

// ---- errors

/// The last error of this thread's calls, which is forgotten then.
hipError_t hipGetLastError();
const char* hipGetErrorString(hipError_t error);

// ---- what HIP has no name for

namespace arlab_driver {

/// How the driver counts its versions: 13000 is CUDA 13.0; 0 where there is none.
int driver_version();
/// As compilers name it: sm_90, gfx942.
hipError_t architecture_of(int device, char* text, std::size_t bytes);

struct Launch {
  dim3 blocks;
  dim3 threads;
  unsigned shared_bytes = 0;
  hipStream_t stream = nullptr;
  /// The kernel calls pdl_wait() first, and may be started and wait there while the one before it still runs. Only
  /// NVIDIA's from sm_90 on do so.
  bool overlaps_previous = false;
};
/// `parameters` are pointers to the kernel's, in order.
hipError_t launch(hipFunction_t function, const Launch& launch, void** parameters);

/// Loads the function's code now. A driver that does so at its first launch waits for kernels that run: for ever, if these wait
/// for what the thread launches next.
hipError_t load(hipFunction_t function);
/// Lets launches ask for so much dynamic shared memory.
hipError_t allow_shared_bytes(hipFunction_t function, unsigned bytes);

}  // namespace arlab_driver

}  // namespace ARLAB_HIP_NAMESPACE

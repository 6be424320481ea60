// NVIDIA's driver, libcuda.so.1, loaded by name when it is first needed: what is used of it, in declarations of our own.
// No header of a toolkit is needed; where there is one, tests/kernels/driver_declarations.cc compares these with cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

struct CUctx_st;
struct CUgreenCtx_st;
struct CUdevResourceDesc_st;
// HIP's names of what both have.
struct ihipModule_t;
struct ihipModuleSymbol_t;
struct ihipStream_t;
struct ihipEvent_t;
struct ihipGraph;
struct hipGraphExec;

namespace arlab::cuda_driver {

using Context = CUctx_st*;
using Module = ihipModule_t*;
using Function = ihipModuleSymbol_t*;
using Stream = ihipStream_t*;
using Event = ihipEvent_t*;
using Graph = ihipGraph*;
using GraphExec = hipGraphExec*;
using GreenContext = CUgreenCtx_st*;
using ResourceDescription = CUdevResourceDesc_st*;
using Device = int;
using Address = unsigned long long;

enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNotSupported = 801,
};
enum Attribute : int {
  kMultiprocessorCount = 16,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
};
enum FunctionAttribute : int {
  kRegisters = 4,
  kMostDynamicSharedBytes = 8,
};
enum CaptureMode : int { kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2 };
enum CaptureStatus : int { kNotCaptured = 0, kCaptured = 1 };

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kIpcLazyPeerAccess = 1;
inline constexpr unsigned kSplitIgnoresCoscheduling = 1;
inline constexpr unsigned kGreenDefaultStream = 1;
enum ResourceType : int { kMultiprocessors = 1 };

struct IpcHandle {
  char bytes[64];
};

enum LaunchAttributeId : int { kProgrammaticStreamSerialization = 6 };
struct LaunchAttribute {
  LaunchAttributeId id;
  char padding[4];
  union {
    char bytes[64];
    int is_allowed;
  };
};
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct Resource {
  ResourceType type;
  unsigned char padding[92];
  union {
    struct {
      unsigned count;
      unsigned smallest_part;
      unsigned alignment;
    } multiprocessors;
    unsigned char bytes[48];
  };
};

/// X(name in the library, its parameters). All return an Error.
#define ARLAB_DRIVER_FUNCTIONS(X)                                                           \
  X(cuInit, (unsigned flags))                                                               \
  X(cuDriverGetVersion, (int* version))                                                     \
  X(cuGetErrorString, (Error error, const char** text))                                     \
  X(cuDeviceGetCount, (int* count))                                                         \
  X(cuDeviceGet, (Device * device, int ordinal))                                            \
  X(cuDeviceGetName, (char* name, int bytes, Device device))                                \
  X(cuDeviceGetAttribute, (int* value, Attribute attribute, Device device))                 \
  X(cuDeviceGetPCIBusId, (char* text, int bytes, Device device))                            \
  X(cuDevicePrimaryCtxRetain, (Context * context, Device device))                           \
  X(cuCtxSetCurrent, (Context context))                                                     \
  X(cuCtxGetCurrent, (Context * context))                                                   \
  X(cuCtxGetDevice, (Device * device))                                                      \
  X(cuCtxSynchronize, ())                                                                   \
  X(cuDeviceCanAccessPeer, (int* can, Device device, Device peer))                          \
  X(cuCtxEnablePeerAccess, (Context peer, unsigned flags))                                  \
  X(cuMemAlloc_v2, (Address * memory, std::size_t bytes))                                   \
  X(cuMemFree_v2, (Address memory))                                                         \
  X(cuMemsetD8_v2, (Address memory, unsigned char value, std::size_t bytes))                \
  X(cuMemcpy, (Address to, Address from, std::size_t bytes))                                \
  X(cuMemcpyAsync, (Address to, Address from, std::size_t bytes, Stream stream))            \
  X(cuIpcGetMemHandle, (IpcHandle * handle, Address memory))                                \
  X(cuIpcOpenMemHandle_v2, (Address * memory, IpcHandle handle, unsigned flags))            \
  X(cuIpcCloseMemHandle, (Address memory))                                                  \
  X(cuStreamCreate, (Stream * stream, unsigned flags))                                      \
  X(cuStreamDestroy_v2, (Stream stream))                                                    \
  X(cuStreamSynchronize, (Stream stream))                                                   \
  X(cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))                        \
  X(cuStreamIsCapturing, (Stream stream, CaptureStatus * status))                           \
  X(cuStreamBeginCapture_v2, (Stream stream, CaptureMode mode))                             \
  X(cuStreamEndCapture, (Stream stream, Graph * graph))                                     \
  X(cuThreadExchangeStreamCaptureMode, (CaptureMode * mode))                                \
  X(cuEventCreate, (Event * event, unsigned flags))                                         \
  X(cuEventRecord, (Event event, Stream stream))                                            \
  X(cuEventElapsedTime, (float* milliseconds, Event start, Event stop))                     \
  X(cuEventDestroy_v2, (Event event))                                                       \
  X(cuGraphInstantiateWithFlags, (GraphExec * executable, Graph graph, unsigned long long)) \
  X(cuGraphLaunch, (GraphExec executable, Stream stream))                                   \
  X(cuGraphExecDestroy, (GraphExec executable))                                             \
  X(cuGraphDestroy, (Graph graph))                                                          \
  X(cuModuleLoadData, (Module * module, const void* image))                                 \
  X(cuModuleUnload, (Module module))                                                        \
  X(cuModuleGetFunction, (Function * function, Module module, const char* name))            \
  X(cuFuncGetAttribute, (int* value, FunctionAttribute attribute, Function function))       \
  X(cuFuncSetAttribute, (Function function, FunctionAttribute attribute, int value))        \
  X(cuLaunchKernelEx,                                                                       \
    (const LaunchConfig* config, Function function, void** parameters, void** extra))

/// Functions that drivers before CUDA 12.4 lack: null there.
#define ARLAB_DRIVER_FUNCTIONS_OF_12_4(X)                                                     \
  X(cuFuncLoad, (Function function))                                                          \
  X(cuDeviceGetDevResource, (Device device, Resource * resource, ResourceType type))          \
  X(cuDevSmResourceSplitByCount, (Resource * parts, unsigned* count, const Resource* whole,   \
                                  Resource* rest, unsigned flags, unsigned least))            \
  X(cuDevResourceGenerateDesc,                                                                \
    (ResourceDescription * description, Resource * resources, unsigned count))                \
  X(cuGreenCtxCreate,                                                                         \
    (GreenContext * context, ResourceDescription description, Device device, unsigned flags)) \
  X(cuGreenCtxStreamCreate, (Stream * stream, GreenContext context, unsigned flags, int priority))

#define ARLAB_DECLARED(name, parameters) Error(*name) parameters = nullptr;
struct Functions {
  ARLAB_DRIVER_FUNCTIONS(ARLAB_DECLARED)
  ARLAB_DRIVER_FUNCTIONS_OF_12_4(ARLAB_DECLARED)
};
#undef ARLAB_DECLARED

/// Functions of the driver, which is loaded and initialized by the first call; null where there is none, and why_none()
/// says why. ARLAB_LIBCUDA names another file.
const Functions* functions();
/// One line without an end; empty where there is a driver.
const std::string& why_none();
/// 13000 is CUDA 13.0; 0 where there is no driver.
int version();

}  // namespace arlab::cuda_driver

// HIP's functions by HIP's own library, which is loaded by name when the first one is called.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/platform/rocm/driver/hip/hip_runtime.h"
#include "kernels/platform/shared_library.h"

namespace arlab::rocm_driver {
namespace {

using kernels::Result;
using kernels::SharedLibrary;

/// The newest first.
constexpr const char* kFiles[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                  "libamdhip64.so", "/opt/rocm/lib/libamdhip64.so"};

struct Driver {
  std::optional<SharedLibrary> library;
  std::string why_none;
};

/// One that the process has already, as PyTorch's, comes before all others: its streams are of that one.
Driver load() {
  const std::string named = kernels::environment("ARLAB_LIBAMDHIP64");
  if (!named.empty()) {
    const Result<SharedLibrary> library = SharedLibrary::open(named);
    if (library.ok()) return {library.value(), ""};
    return {std::nullopt, "no AMD driver: " + library.status().message()};
  }
  for (const char* const file : kFiles) {
    if (const auto library = SharedLibrary::loaded(file)) return {library, ""};
  }
  for (const char* const file : kFiles) {
    const Result<SharedLibrary> library = SharedLibrary::open(file);
    if (library.ok()) return {library.value(), ""};
  }
  return {std::nullopt, "no AMD driver: libamdhip64.so is not here"};
}

/// Stays until the process ends: destructors of other statics still free memory.
const Driver& driver() {
  static const Driver& loaded = *new Driver(load());
  return loaded;
}

/// Null where the library lacks it, or there is none.
template <class Function>
Function* find(const char* name) {
  Function* function = nullptr;
  if (driver().library) (void)driver().library->find(name, function);
  return function;
}

thread_local hipError_t missing = hipSuccess;  // for a call that did not come to the library

hipError_t why_missing() {
  return missing = driver().library ? hipErrorNotSupported : hipErrorInsufficientDriver;
}

}  // namespace
}  // namespace arlab::rocm_driver

inline namespace ARLAB_HIP_NAMESPACE {

/// A function of HIP's library, under its name.
#define ARLAB_FORWARDED(name, parameters, arguments)                                     \
  hipError_t name parameters {                                                           \
    static auto* const function = arlab::rocm_driver::find<decltype(name)>(#name);       \
    return function != nullptr ? function arguments : arlab::rocm_driver::why_missing(); \
  }

ARLAB_FORWARDED(hipGetDeviceCount, (int* count), (count))
ARLAB_FORWARDED(hipDeviceGetAttribute, (int* value, hipDeviceAttribute_t attribute, int device),
                (value, attribute, device))
ARLAB_FORWARDED(hipDeviceGetName, (char* name, int bytes, int device), (name, bytes, device))
ARLAB_FORWARDED(hipSetDevice, (int device), (device))
ARLAB_FORWARDED(hipGetDevice, (int* device), (device))
ARLAB_FORWARDED(hipDeviceGetPCIBusId, (char* text, int bytes, int device), (text, bytes, device))
ARLAB_FORWARDED(hipDeviceCanAccessPeer, (int* can, int device, int peer), (can, device, peer))
ARLAB_FORWARDED(hipDeviceEnablePeerAccess, (int peer, unsigned flags), (peer, flags))
ARLAB_FORWARDED(hipDeviceSynchronize, (), ())

ARLAB_FORWARDED(hipMalloc, (void** pointer, std::size_t bytes), (pointer, bytes))
ARLAB_FORWARDED(hipFree, (void* pointer), (pointer))
ARLAB_FORWARDED(hipExtMallocWithFlags, (void** pointer, std::size_t bytes, unsigned flags),
                (pointer, bytes, flags))
ARLAB_FORWARDED(hipMemset, (void* pointer, int value, std::size_t bytes), (pointer, value, bytes))
ARLAB_FORWARDED(hipMemcpy, (void* to, const void* from, std::size_t bytes, hipMemcpyKind kind),
                (to, from, bytes, kind))
ARLAB_FORWARDED(hipMemcpyAsync,
                (void* to, const void* from, std::size_t bytes, hipMemcpyKind kind,
                 hipStream_t stream),
                (to, from, bytes, kind, stream))
ARLAB_FORWARDED(hipIpcGetMemHandle, (hipIpcMemHandle_t * handle, void* pointer), (handle, pointer))
ARLAB_FORWARDED(hipIpcOpenMemHandle, (void** pointer, hipIpcMemHandle_t handle, unsigned flags),
                (pointer, handle, flags))
ARLAB_FORWARDED(hipIpcCloseMemHandle, (void* pointer), (pointer))

ARLAB_FORWARDED(hipStreamCreateWithFlags, (hipStream_t * stream, unsigned flags), (stream, flags))
ARLAB_FORWARDED(hipExtStreamCreateWithCUMask,
                (hipStream_t * stream, std::uint32_t words, const std::uint32_t* mask),
                (stream, words, mask))
ARLAB_FORWARDED(hipStreamDestroy, (hipStream_t stream), (stream))
ARLAB_FORWARDED(hipStreamSynchronize, (hipStream_t stream), (stream))
ARLAB_FORWARDED(hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned flags),
                (stream, event, flags))
ARLAB_FORWARDED(hipStreamIsCapturing, (hipStream_t stream, hipStreamCaptureStatus* status),
                (stream, status))
ARLAB_FORWARDED(hipStreamBeginCapture, (hipStream_t stream, hipStreamCaptureMode mode),
                (stream, mode))
ARLAB_FORWARDED(hipStreamEndCapture, (hipStream_t stream, hipGraph_t* graph), (stream, graph))
ARLAB_FORWARDED(hipThreadExchangeStreamCaptureMode, (hipStreamCaptureMode * mode), (mode))
ARLAB_FORWARDED(hipEventCreateWithFlags, (hipEvent_t * event, unsigned flags), (event, flags))
ARLAB_FORWARDED(hipEventRecord, (hipEvent_t event, hipStream_t stream), (event, stream))
ARLAB_FORWARDED(hipEventElapsedTime, (float* milliseconds, hipEvent_t start, hipEvent_t stop),
                (milliseconds, start, stop))
ARLAB_FORWARDED(hipEventDestroy, (hipEvent_t event), (event))
ARLAB_FORWARDED(hipGraphInstantiateWithFlags,
                (hipGraphExec_t * executable, hipGraph_t graph, unsigned long long flags),
                (executable, graph, flags))
ARLAB_FORWARDED(hipGraphLaunch, (hipGraphExec_t executable, hipStream_t stream),
                (executable, stream))
ARLAB_FORWARDED(hipGraphExecDestroy, (hipGraphExec_t executable), (executable))
ARLAB_FORWARDED(hipGraphDestroy, (hipGraph_t graph), (graph))

ARLAB_FORWARDED(hipModuleLoadData, (hipModule_t * module, const void* image), (module, image))
ARLAB_FORWARDED(hipModuleUnload, (hipModule_t module), (module))
ARLAB_FORWARDED(hipModuleGetFunction,
                (hipFunction_t * function_at, hipModule_t module, const char* name),
                (function_at, module, name))
ARLAB_FORWARDED(hipFuncGetAttribute,
                (int* value, hipFunction_attribute attribute, hipFunction_t of),
                (value, attribute, of))
#undef ARLAB_FORWARDED

hipError_t hipGetLastError() {
  using namespace arlab::rocm_driver;  // NOLINT(google-build-using-namespace)
  static auto* const function = find<decltype(hipGetLastError)>("hipGetLastError");
  if (missing != hipSuccess || function == nullptr) return std::exchange(missing, hipSuccess);
  return function();
}

const char* hipGetErrorString(hipError_t error) {
  using namespace arlab::rocm_driver;  // NOLINT(google-build-using-namespace)
  static auto* const function = find<decltype(hipGetErrorString)>("hipGetErrorString");
  return function != nullptr ? function(error) : driver().why_none.c_str();
}

namespace arlab_driver {
namespace {

using arlab::rocm_driver::find;
using arlab::rocm_driver::why_missing;

/// The struct of a device's properties, which every version lays out in another way: room for all, with one of its texts,
/// gcnArchName.
using Properties = std::array<char, 16384>;

/// gfx942 of gfx942:sramecc+:xnack-, as code for it runs with any features; or empty.
std::string_view architecture_in(const Properties& properties) {
  const std::string_view all(properties.data(), properties.size());
  const std::size_t at = all.find("gfx");
  return at == std::string_view::npos
             ? ""
             : all.substr(at, all.find_first_of(std::string_view("\0:", 2), at) - at);
}

}  // namespace

int driver_version() {
  static auto* const function = find<hipError_t(int*)>("hipDriverGetVersion");
  int version = 0;
  if (function != nullptr) (void)function(&version);
  return version;
}

hipError_t architecture_of(int device, char* text, std::size_t bytes) {
  using GetProperties = hipError_t(Properties*, int);
  static auto* const of_6 = find<GetProperties>("hipGetDevicePropertiesR0600");
  static auto* const of_5 = find<GetProperties>("hipGetDeviceProperties");
  auto* const function = of_6 != nullptr ? of_6 : of_5;
  text[0] = 0;
  if (function == nullptr) return why_missing();
  Properties properties{};
  const hipError_t error = function(&properties, device);
  const std::string_view architecture = architecture_in(properties);
  if (error == hipSuccess && architecture.empty()) return hipErrorNotSupported;
  text[architecture.copy(text, bytes - 1)] = 0;
  return error;
}

hipError_t launch(hipFunction_t function, const Launch& launch, void** parameters) {
  using LaunchKernel = hipError_t(hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, unsigned, hipStream_t, void**, void**);
  static auto* const start = find<LaunchKernel>("hipModuleLaunchKernel");
  if (start == nullptr) return why_missing();
  return start(function, launch.blocks.x, launch.blocks.y, launch.blocks.z, launch.threads.x,
               launch.threads.y, launch.threads.z, launch.shared_bytes, launch.stream, parameters,
               nullptr);
}

// A module is loaded whole, and launches may ask for all shared memory.
hipError_t load(hipFunction_t) { return hipSuccess; }
hipError_t allow_shared_bytes(hipFunction_t, unsigned) { return hipSuccess; }

}  // namespace arlab_driver

}  // namespace ARLAB_HIP_NAMESPACE

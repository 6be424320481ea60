// HIP's functions on NVIDIA's driver. What the CUDA runtime adds to the driver is here: a device for each thread, its
// primary context made when it is first needed, and a last error.
#include "kernels/platform/cuda/driver.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <mutex>

#include "kernels/platform/cuda/driver/hip/hip_runtime.h"
#include "kernels/platform/shared_library.h"

namespace arlab::cuda_driver {
namespace {

using kernels::Result;
using kernels::SharedLibrary;

struct Driver {
  Functions functions;
  std::string why_none;
};

/// Sets all functions; the name of one that is not there.
const char* find_functions(const SharedLibrary& library, Functions& to) {
#define ARLAB_FIND(name, parameters) \
  if (!library.find(#name, to.name)) return #name;
  ARLAB_DRIVER_FUNCTIONS(ARLAB_FIND)
#undef ARLAB_FIND
#define ARLAB_TRY_TO_FIND(name, parameters) (void)library.find(#name, to.name);
  ARLAB_DRIVER_FUNCTIONS_OF_12_4(ARLAB_TRY_TO_FIND)
#undef ARLAB_TRY_TO_FIND
  return nullptr;
}

std::string text_of(const Functions& driver, Error error) {
  const char* text = nullptr;
  if (driver.cuGetErrorString(error, &text) != kSuccess || text == nullptr) {
    return fmt::format("error {}", static_cast<int>(error));
  }
  return text;
}

Driver load() {
  Driver driver;
  const std::string named = kernels::environment("ARLAB_LIBCUDA");
  const std::string file = named.empty() ? "libcuda.so.1" : named;
  const Result<SharedLibrary> library = SharedLibrary::open(file);
  if (!library.ok()) {
    const std::string& why = library.status().message();
    const bool is_missing = why.ends_with("it is not here");
    driver.why_none = "no NVIDIA driver: " + (is_missing ? file + " is not here" : why);
    return driver;
  }
  if (const char* const missing = find_functions(library.value(), driver.functions)) {
    driver.why_none = fmt::format("the NVIDIA driver is too old: {} lacks {}", file, missing);
    return driver;
  }
  const Error error = driver.functions.cuInit(0);
  if (error != kSuccess) {
    driver.why_none =
        fmt::format("the NVIDIA driver does not start: {}", text_of(driver.functions, error));
  }
  return driver;
}

/// Stays until the process ends: destructors of other statics still free memory.
const Driver& driver() {
  static const Driver& loaded = *new Driver(load());
  return loaded;
}

}  // namespace

const Functions* functions() { return driver().why_none.empty() ? &driver().functions : nullptr; }

const std::string& why_none() { return driver().why_none; }

int version() {
  int version = 0;
  if (functions() != nullptr) (void)functions()->cuDriverGetVersion(&version);
  return version;
}

namespace {

/// In place of a number of the driver: there is no driver.
constexpr auto kNoDriver = static_cast<Error>(hipErrorInsufficientDriver);

thread_local Error last_error = kSuccess;

hipError_t said(Error error) {
  if (error != kSuccess) last_error = error;
  return static_cast<hipError_t>(error);
}

/// Returns `call`'s result for the driver's functions.
template <class Call>
hipError_t with_driver(Call call) {
  const Functions* const driver = functions();
  return said(driver != nullptr ? call(*driver) : kNoDriver);
}

/// The same of a device.
template <class Call>
hipError_t with_device(int ordinal, Call call) {
  return with_driver([&](const Functions& driver) {
    Device device = 0;
    const Error error = driver.cuDeviceGet(&device, ordinal);
    return error == kSuccess ? call(driver, device) : error;
  });
}

/// The primary context of a device, which this process keeps.
Error primary_context(const Functions& driver, int ordinal, Context& context) {
  static std::mutex mutex;
  static std::array<Context, 256> contexts{};
  const auto at = static_cast<std::size_t>(ordinal);
  if (ordinal < 0 || at >= contexts.size()) return kInvalidDevice;
  const std::scoped_lock lock(mutex);
  if (contexts[at] == nullptr) {
    Device device = 0;
    Error error = driver.cuDeviceGet(&device, ordinal);
    if (error == kSuccess) error = driver.cuDevicePrimaryCtxRetain(&contexts[at], device);
    if (error != kSuccess) return error;
  }
  context = contexts[at];
  return kSuccess;
}

Error use_device(const Functions& driver, int ordinal) {
  Context context = nullptr;
  const Error error = primary_context(driver, ordinal, context);
  return error == kSuccess ? driver.cuCtxSetCurrent(context) : error;
}

/// A thread that has used no device yet uses the first one. One that has a context, perhaps of PyTorch, keeps it.
Error enter_context(const Functions& driver) {
  Context context = nullptr;
  const Error error = driver.cuCtxGetCurrent(&context);
  return error == kSuccess && context == nullptr ? use_device(driver, 0) : error;
}

/// Returns `call`'s result for the driver's functions, on the thread's device.
template <class Call>
hipError_t on_device(Call call) {
  return with_driver([&](const Functions& driver) {
    const Error error = enter_context(driver);
    return error == kSuccess ? call(driver) : error;
  });
}

Address address_of(const void* pointer) {
  return static_cast<Address>(reinterpret_cast<std::uintptr_t>(pointer));
}

/// A call that sets an address; null where it fails.
template <class Call>
hipError_t to_pointer(void** pointer, Call call) {
  return on_device([&](const Functions& driver) {
    Address address = 0;
    const Error error = call(driver, &address);
    *pointer = error == kSuccess ? reinterpret_cast<void*>(address) : nullptr;
    return error;
  });
}

}  // namespace
}  // namespace arlab::cuda_driver

inline namespace ARLAB_HIP_NAMESPACE {

using namespace arlab::cuda_driver;  // NOLINT(google-build-using-namespace): every function below

/// HIP's function of this name, by one of the driver on the thread's device.
#define ARLAB_BY_DRIVER(name, parameters, call)                             \
  hipError_t name parameters {                                              \
    return on_device([&](const Functions& driver) { return driver.call; }); \
  }

// ---- devices

hipError_t hipGetDeviceCount(int* count) {
  *count = 0;
  return with_driver([&](const Functions& driver) { return driver.cuDeviceGetCount(count); });
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t, int device) {
  return with_device(device, [&](const Functions& driver, Device of) {
    return driver.cuDeviceGetAttribute(value, kMultiprocessorCount, of);  // there is no other
  });
}
hipError_t hipDeviceGetName(char* name, int bytes, int device) {
  return with_device(device, [&](const Functions& driver, Device of) {
    return driver.cuDeviceGetName(name, bytes, of);
  });
}
hipError_t hipSetDevice(int device) {
  return with_driver([&](const Functions& driver) { return use_device(driver, device); });
}
hipError_t hipGetDevice(int* device) {
  return with_driver([&](const Functions& driver) {
    Context context = nullptr;
    const Error error = driver.cuCtxGetCurrent(&context);
    *device = 0;
    return error == kSuccess && context != nullptr ? driver.cuCtxGetDevice(device) : error;
  });
}
hipError_t hipDeviceGetPCIBusId(char* text, int bytes, int device) {
  return with_device(device, [&](const Functions& driver, Device of) {
    return driver.cuDeviceGetPCIBusId(text, bytes, of);
  });
}
hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer) {
  return with_device(device, [&](const Functions& driver, Device of) {
    Device other = 0;
    const Error error = driver.cuDeviceGet(&other, peer);
    return error == kSuccess ? driver.cuDeviceCanAccessPeer(can, of, other) : error;
  });
}
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  return on_device([&](const Functions& driver) {
    Context context = nullptr;
    const Error error = primary_context(driver, peer, context);
    return error == kSuccess ? driver.cuCtxEnablePeerAccess(context, flags) : error;
  });
}
ARLAB_BY_DRIVER(hipDeviceSynchronize, (), cuCtxSynchronize())

// ---- memory: the driver takes no 0 bytes and no null pointers, of which HIP makes nothing

hipError_t hipMalloc(void** pointer, std::size_t bytes) {
  return to_pointer(pointer, [&](const Functions& driver, Address* address) {
    return bytes == 0 ? kSuccess : driver.cuMemAlloc_v2(address, bytes);
  });
}
hipError_t hipFree(void* pointer) {
  return on_device([&](const Functions& driver) {
    return pointer == nullptr ? kSuccess : driver.cuMemFree_v2(address_of(pointer));
  });
}
hipError_t hipExtMallocWithFlags(void** pointer, std::size_t bytes, unsigned) {
  return hipMalloc(pointer, bytes);
}
hipError_t hipMemset(void* pointer, int value, std::size_t bytes) {
  return on_device([&](const Functions& driver) {
    if (bytes == 0) return kSuccess;
    return driver.cuMemsetD8_v2(address_of(pointer), static_cast<unsigned char>(value), bytes);
  });
}
hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind) {
  return on_device([&](const Functions& driver) {
    return bytes == 0 ? kSuccess : driver.cuMemcpy(address_of(to), address_of(from), bytes);
  });
}
hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind,
                          hipStream_t stream) {
  return on_device([&](const Functions& driver) {
    if (bytes == 0) return kSuccess;
    return driver.cuMemcpyAsync(address_of(to), address_of(from), bytes, stream);
  });
}
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* pointer) {
  return on_device([&](const Functions& driver) {
    IpcHandle found{};
    const Error error = driver.cuIpcGetMemHandle(&found, address_of(pointer));
    *handle = std::bit_cast<hipIpcMemHandle_t>(found);
    return error;
  });
}
hipError_t hipIpcOpenMemHandle(void** pointer, hipIpcMemHandle_t handle, unsigned flags) {
  return to_pointer(pointer, [&](const Functions& driver, Address* address) {
    return driver.cuIpcOpenMemHandle_v2(address, std::bit_cast<IpcHandle>(handle), flags);
  });
}
ARLAB_BY_DRIVER(hipIpcCloseMemHandle, (void* pointer), cuIpcCloseMemHandle(address_of(pointer)))

// ---- streams, events, graphs

ARLAB_BY_DRIVER(hipStreamCreateWithFlags, (hipStream_t * stream, unsigned flags),
                cuStreamCreate(stream, flags))
ARLAB_BY_DRIVER(hipStreamDestroy, (hipStream_t stream), cuStreamDestroy_v2(stream))
ARLAB_BY_DRIVER(hipStreamSynchronize, (hipStream_t stream), cuStreamSynchronize(stream))
ARLAB_BY_DRIVER(hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned flags),
                cuStreamWaitEvent(stream, event, flags))
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  return on_device([&](const Functions& driver) {
    CaptureStatus found = kNotCaptured;
    const Error error = driver.cuStreamIsCapturing(stream, &found);
    *status = static_cast<hipStreamCaptureStatus>(found);
    return error;
  });
}
ARLAB_BY_DRIVER(hipStreamBeginCapture, (hipStream_t stream, hipStreamCaptureMode mode),
                cuStreamBeginCapture_v2(stream, static_cast<CaptureMode>(mode)))
ARLAB_BY_DRIVER(hipStreamEndCapture, (hipStream_t stream, hipGraph_t* graph),
                cuStreamEndCapture(stream, graph))
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  return with_driver([&](const Functions& driver) {
    auto exchanged = static_cast<CaptureMode>(*mode);
    const Error error = driver.cuThreadExchangeStreamCaptureMode(&exchanged);
    *mode = static_cast<hipStreamCaptureMode>(exchanged);
    return error;
  });
}
ARLAB_BY_DRIVER(hipEventCreateWithFlags, (hipEvent_t * event, unsigned flags),
                cuEventCreate(event, flags))
ARLAB_BY_DRIVER(hipEventRecord, (hipEvent_t event, hipStream_t stream),
                cuEventRecord(event, stream))
ARLAB_BY_DRIVER(hipEventElapsedTime, (float* milliseconds, hipEvent_t start, hipEvent_t stop),
                cuEventElapsedTime(milliseconds, start, stop))
ARLAB_BY_DRIVER(hipEventDestroy, (hipEvent_t event), cuEventDestroy_v2(event))
ARLAB_BY_DRIVER(hipGraphInstantiateWithFlags,
                (hipGraphExec_t * executable, hipGraph_t graph, unsigned long long flags),
                cuGraphInstantiateWithFlags(executable, graph, flags))
ARLAB_BY_DRIVER(hipGraphLaunch, (hipGraphExec_t executable, hipStream_t stream),
                cuGraphLaunch(executable, stream))
ARLAB_BY_DRIVER(hipGraphExecDestroy, (hipGraphExec_t executable), cuGraphExecDestroy(executable))
ARLAB_BY_DRIVER(hipGraphDestroy, (hipGraph_t graph), cuGraphDestroy(graph))

namespace {

Error make_green_stream(const Functions& driver, unsigned count, hipStream_t* stream) {
  if (driver.cuGreenCtxStreamCreate == nullptr) return kNotSupported;
  Device device = 0;
  Resource all{};
  Resource part{};
  Resource rest{};
  ResourceDescription description = nullptr;
  GreenContext context = nullptr;
  unsigned parts = 1;
  if (driver.cuCtxGetDevice(&device) != kSuccess ||
      driver.cuDeviceGetDevResource(device, &all, kMultiprocessors) != kSuccess ||
      driver.cuDevSmResourceSplitByCount(&part, &parts, &all, &rest, kSplitIgnoresCoscheduling,
                                         count) != kSuccess ||
      part.multiprocessors.count != count) {
    return kInvalidValue;
  }
  Error error = driver.cuDevResourceGenerateDesc(&description, &part, 1);
  if (error == kSuccess) {
    error = driver.cuGreenCtxCreate(&context, description, device, kGreenDefaultStream);
  }
  if (error != kSuccess) return error;
  return driver.cuGreenCtxStreamCreate(stream, context, kStreamNonBlocking, 0);
}

}  // namespace

hipError_t hipExtStreamCreateWithCUMask(hipStream_t* stream, std::uint32_t words,
                                        const std::uint32_t* mask) {
  unsigned count = 0;
  for (std::uint32_t i = 0; i < words; ++i) count += static_cast<unsigned>(std::popcount(mask[i]));
  return on_device(
      [&](const Functions& driver) { return make_green_stream(driver, count, stream); });
}

// ---- code

ARLAB_BY_DRIVER(hipModuleLoadData, (hipModule_t * module, const void* image),
                cuModuleLoadData(module, image))
ARLAB_BY_DRIVER(hipModuleUnload, (hipModule_t module), cuModuleUnload(module))
ARLAB_BY_DRIVER(hipModuleGetFunction,
                (hipFunction_t * function, hipModule_t module, const char* name),
                cuModuleGetFunction(function, module, name))
ARLAB_BY_DRIVER(hipFuncGetAttribute,
                (int* value, hipFunction_attribute attribute, hipFunction_t function),
                cuFuncGetAttribute(value, static_cast<FunctionAttribute>(attribute), function))

#undef ARLAB_BY_DRIVER

// ---- errors

hipError_t hipGetLastError() {
  return static_cast<hipError_t>(std::exchange(last_error, kSuccess));
}
const char* hipGetErrorString(hipError_t error) {
  if (functions() == nullptr) return why_none().c_str();
  const char* text = nullptr;
  (void)functions()->cuGetErrorString(static_cast<Error>(error), &text);
  return text != nullptr ? text : "an error that the driver has no words for";
}

namespace arlab_driver {
namespace {

/// Whether a kernel may wait for the one before it, which sm_90 began with.
bool can_overlap(const Functions& driver) {
  Device device = 0;
  int major = 0;
  return driver.cuCtxGetDevice(&device) == kSuccess &&
         driver.cuDeviceGetAttribute(&major, kComputeCapabilityMajor, device) == kSuccess &&
         major >= 9;
}

}  // namespace

int driver_version() { return version(); }

hipError_t architecture_of(int device, char* text, std::size_t bytes) {
  int major = 0;
  int minor = 0;
  const hipError_t error = with_device(device, [&](const Functions& driver, Device of) {
    const Error got = driver.cuDeviceGetAttribute(&major, kComputeCapabilityMajor, of);
    if (got != kSuccess) return got;
    return driver.cuDeviceGetAttribute(&minor, kComputeCapabilityMinor, of);
  });
  *fmt::format_to_n(text, bytes - 1, "sm_{}{}", major, minor).out = 0;
  return error;
}

hipError_t launch(hipFunction_t function, const Launch& launch, void** parameters) {
  return on_device([&](const Functions& driver) {
    LaunchAttribute overlap{};
    overlap.id = kProgrammaticStreamSerialization;
    overlap.is_allowed = 1;
    const bool overlaps = launch.overlaps_previous && can_overlap(driver);
    const LaunchConfig config = {.grid = {launch.blocks.x, launch.blocks.y, launch.blocks.z},
                                 .block = {launch.threads.x, launch.threads.y, launch.threads.z},
                                 .shared_bytes = launch.shared_bytes,
                                 .stream = launch.stream,
                                 .attributes = &overlap,
                                 .attribute_count = overlaps ? 1U : 0U};
    return driver.cuLaunchKernelEx(&config, function, parameters, nullptr);
  });
}

hipError_t load(hipFunction_t function) {
  return on_device([&](const Functions& driver) {
    if (driver.cuFuncLoad != nullptr) return driver.cuFuncLoad(function);
    int registers = 0;
    return driver.cuFuncGetAttribute(&registers, kRegisters, function);
  });
}

hipError_t allow_shared_bytes(hipFunction_t function, unsigned bytes) {
  return on_device([&](const Functions& driver) {
    return driver.cuFuncSetAttribute(function, kMostDynamicSharedBytes, static_cast<int>(bytes));
  });
}

}  // namespace arlab_driver

}  // namespace ARLAB_HIP_NAMESPACE

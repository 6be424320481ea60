// A driver for tests, in the place of libcuda.so.1: two devices whose memory is the host's. It counts calls, keeps the last launch,
// and fails where it is told to. Built again with FAKE_LACKS_LAUNCH and FAKE_BEFORE_12_4, as drivers that lack functions.
#include "tests/kernels/fake_libcuda.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "kernels/platform/cuda/driver.h"

using namespace arlab::cuda_driver;

namespace {

constexpr int kDevices = 2;

FakeDriver fake;
thread_local Context current = nullptr;
thread_local CaptureMode capture_mode = kCaptureGlobal;

Error said(const char* name) { return static_cast<Error>(fake.said(name)); }
/// Contexts are numbers of devices, from 1 on.
template <class Handle>
Handle handle_of(std::size_t number) {
  return reinterpret_cast<Handle>(number);
}
Device device_of_current() { return static_cast<int>(reinterpret_cast<std::size_t>(current)) - 1; }

/// A call that needs a context.
Error in_context(const char* name) {
  const Error error = said(name);
  return error == kSuccess && current == nullptr ? static_cast<Error>(201) : error;
}
template <class Handle>
Error make(const char* name, Handle* handle) {
  fake.make(handle);
  return in_context(name);
}
void* at(Address address) { return reinterpret_cast<void*>(address); }

}  // namespace

extern "C" {

FakeDriver* fake_driver() { return &fake; }

Error cuInit(unsigned) {
  const char* const failure = std::getenv("FAKE_INIT_FAILS");
  return failure != nullptr ? static_cast<Error>(std::atoi(failure)) : said("cuInit");
}
Error cuDriverGetVersion(int* version) {
  *version = 12080;
  return said("cuDriverGetVersion");
}
Error cuGetErrorString(Error error, const char** text) {
  *text = error == kSuccess                ? "no error"
          : error == kOutOfMemory          ? "out of memory"
          : error == kNoDevice             ? "no CUDA-capable device is detected"
          : static_cast<int>(error) < 1000 ? "a failure"
                                           : nullptr;
  return *text != nullptr ? kSuccess : kInvalidValue;
}

Error cuDeviceGetCount(int* count) {
  *count = kDevices;
  return said("cuDeviceGetCount");
}
Error cuDeviceGet(Device* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < kDevices ? said("cuDeviceGet") : kInvalidDevice;
}
Error cuDeviceGetName(char* name, int bytes, Device device) {
  std::strncpy(name, ("fake " + std::to_string(device)).c_str(), static_cast<std::size_t>(bytes));
  return said("cuDeviceGetName");
}
Error cuDeviceGetAttribute(int* value, Attribute attribute, Device device) {
  *value = attribute == kMultiprocessorCount      ? 132
           : attribute == kComputeCapabilityMajor ? (device == 0 ? 9 : 8)
                                                  : 0;
  return said("cuDeviceGetAttribute");
}
Error cuDeviceGetPCIBusId(char* text, int bytes, Device) {
  std::strncpy(text, "0000:1b:00.0", static_cast<std::size_t>(bytes));
  return said("cuDeviceGetPCIBusId");
}
Error cuDevicePrimaryCtxRetain(Context* context, Device device) {
  *context = handle_of<Context>(static_cast<std::size_t>(device) + 1);
  return said("cuDevicePrimaryCtxRetain");
}
Error cuCtxSetCurrent(Context context) {
  current = context;
  return said("cuCtxSetCurrent");
}
Error cuCtxGetCurrent(Context* context) {
  *context = current;
  return said("cuCtxGetCurrent");
}
Error cuCtxGetDevice(Device* device) {
  *device = device_of_current();
  return in_context("cuCtxGetDevice");
}
Error cuCtxSynchronize() { return in_context("cuCtxSynchronize"); }
Error cuDeviceCanAccessPeer(int* can, Device device, Device peer) {
  *can = device != peer;
  return said("cuDeviceCanAccessPeer");
}
Error cuCtxEnablePeerAccess(Context peer, unsigned) {
  const Error error = in_context("cuCtxEnablePeerAccess");
  return error == kSuccess && peer == current ? kInvalidDevice : error;
}

Error cuMemAlloc_v2(Address* memory, std::size_t bytes) {
  if (bytes == 0) return kInvalidValue;
  *memory = reinterpret_cast<Address>(std::malloc(bytes));
  return in_context("cuMemAlloc_v2");
}
Error cuMemFree_v2(Address memory) {
  if (memory == 0) return kInvalidValue;
  std::free(at(memory));
  return in_context("cuMemFree_v2");
}
Error cuMemsetD8_v2(Address memory, unsigned char value, std::size_t bytes) {
  std::memset(at(memory), value, bytes);
  return in_context("cuMemsetD8_v2");
}
Error cuMemcpy(Address to, Address from, std::size_t bytes) {
  std::memcpy(at(to), at(from), bytes);
  return in_context("cuMemcpy");
}
Error cuMemcpyAsync(Address to, Address from, std::size_t bytes, Stream) {
  std::memcpy(at(to), at(from), bytes);
  return in_context("cuMemcpyAsync");
}
Error cuIpcGetMemHandle(IpcHandle* handle, Address memory) {
  std::memcpy(handle->bytes, &memory, sizeof(memory));
  return in_context("cuIpcGetMemHandle");
}
Error cuIpcOpenMemHandle_v2(Address* memory, IpcHandle handle, unsigned flags) {
  std::memcpy(memory, handle.bytes, sizeof(*memory));
  return flags == kIpcLazyPeerAccess ? in_context("cuIpcOpenMemHandle_v2") : kInvalidValue;
}
Error cuIpcCloseMemHandle(Address) { return in_context("cuIpcCloseMemHandle"); }

Error cuStreamCreate(Stream* stream, unsigned) { return make("cuStreamCreate", stream); }
Error cuStreamDestroy_v2(Stream) { return in_context("cuStreamDestroy_v2"); }
Error cuStreamSynchronize(Stream) { return in_context("cuStreamSynchronize"); }
Error cuStreamWaitEvent(Stream, Event, unsigned) { return in_context("cuStreamWaitEvent"); }
Error cuStreamIsCapturing(Stream stream, CaptureStatus* status) {
  *status = stream == fake.captured ? kCaptured : kNotCaptured;
  return in_context("cuStreamIsCapturing");
}
Error cuStreamBeginCapture_v2(Stream stream, CaptureMode) {
  fake.captured = stream;
  return in_context("cuStreamBeginCapture_v2");
}
Error cuStreamEndCapture(Stream, Graph* graph) {
  fake.captured = nullptr;
  return make("cuStreamEndCapture", graph);
}
Error cuThreadExchangeStreamCaptureMode(CaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return said("cuThreadExchangeStreamCaptureMode");
}
Error cuEventCreate(Event* event, unsigned) { return make("cuEventCreate", event); }
Error cuEventRecord(Event, Stream) { return in_context("cuEventRecord"); }
Error cuEventElapsedTime(float* milliseconds, Event, Event) {
  *milliseconds = 1.5F;
  return in_context("cuEventElapsedTime");
}
Error cuEventDestroy_v2(Event) { return in_context("cuEventDestroy_v2"); }
Error cuGraphInstantiateWithFlags(GraphExec* executable, Graph, unsigned long long) {
  return make("cuGraphInstantiateWithFlags", executable);
}
Error cuGraphLaunch(GraphExec, Stream) { return in_context("cuGraphLaunch"); }
Error cuGraphExecDestroy(GraphExec) { return in_context("cuGraphExecDestroy"); }
Error cuGraphDestroy(Graph) { return in_context("cuGraphDestroy"); }

Error cuModuleLoadData(Module* module, const void* image) {
  fake.image = static_cast<const char*>(image);
  return make("cuModuleLoadData", module);
}
Error cuModuleUnload(Module) { return in_context("cuModuleUnload"); }
Error cuModuleGetFunction(Function* function, Module, const char* name) {
  return std::string(name).ends_with("kernel") ? make("cuModuleGetFunction", function)
                                               : static_cast<Error>(500);
}
Error cuFuncGetAttribute(int* value, FunctionAttribute attribute, Function) {
  *value = 100 + static_cast<int>(attribute);
  return in_context("cuFuncGetAttribute");
}
Error cuFuncSetAttribute(Function, FunctionAttribute attribute, int value) {
  fake.attributes[attribute] = value;
  return in_context("cuFuncSetAttribute");
}
#if !defined(FAKE_LACKS_LAUNCH)
Error cuLaunchKernelEx(const LaunchConfig* config, Function, void** parameters, void** extra) {
  fake.launch = *config;
  fake.overlaps = config->attribute_count == 1 &&
                  config->attributes->id == kProgrammaticStreamSerialization &&
                  config->attributes->is_allowed == 1;
  fake.parameter = *static_cast<int*>(parameters[0]);
  return extra == nullptr ? in_context("cuLaunchKernelEx") : kInvalidValue;
}
#endif

#if !defined(FAKE_BEFORE_12_4)
Error cuFuncLoad(Function) { return in_context("cuFuncLoad"); }
Error cuDeviceGetDevResource(Device, Resource* resource, ResourceType type) {
  resource->type = type;
  resource->multiprocessors.count = 132;
  return said("cuDeviceGetDevResource");
}
Error cuDevSmResourceSplitByCount(Resource* parts, unsigned* count, const Resource* whole,
                                  Resource* rest, unsigned, unsigned least) {
  *parts = *whole;
  *rest = *whole;
  *count = 1;
  parts->multiprocessors.count = (least + 7) / 8 * 8;
  return said("cuDevSmResourceSplitByCount");
}
Error cuDevResourceGenerateDesc(ResourceDescription* description, Resource*, unsigned) {
  return make("cuDevResourceGenerateDesc", description);
}
Error cuGreenCtxCreate(GreenContext* context, ResourceDescription, Device, unsigned flags) {
  return flags == kGreenDefaultStream ? make("cuGreenCtxCreate", context) : kInvalidValue;
}
Error cuGreenCtxStreamCreate(Stream* stream, GreenContext, unsigned flags, int) {
  return flags == kStreamNonBlocking ? make("cuGreenCtxStreamCreate", stream) : kInvalidValue;
}
#endif

}  // extern "C"

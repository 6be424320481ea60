// The host side of HIP on the emulated machine.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/platform/host/emulator.h"
#include "kernels/platform/host/hip/hip_runtime.h"
#include "kernels/platform/host/machine.h"
#include "kernels/platform/host/shared_memory.h"
#include "kernels/platform/host/tsan.h"

namespace arlab::emulator {

/// A kernel with its arguments and grid, to be enqueued once or, from a graph, many times.
struct KernelNode {
  std::function<void()> body;
  dim3 grid;
  dim3 block;
};

struct Stream {
  int device = 0;
  CompletionPtr last;                // of the launch enqueued last
  std::vector<CompletionPtr> waits;  // events that the next launch waits for
  bool capturing = false;
  std::vector<KernelNode> captured;
};

struct Event {
  CompletionPtr completion;
};

struct Graph {
  std::vector<KernelNode> nodes;
};

namespace {

int current_device = 0;

Stream& stream_or_default(hipStream_t stream) {
  static std::vector<std::unique_ptr<Stream>> defaults;
  if (stream != nullptr) return *stream;
  while (defaults.size() <= static_cast<std::size_t>(current_device)) {
    defaults.push_back(std::make_unique<Stream>());
    defaults.back()->device = static_cast<int>(defaults.size()) - 1;
  }
  return *defaults[static_cast<std::size_t>(current_device)];
}

void enqueue_node(const KernelNode& node, Stream& stream) {
  const IgnoredByTsan bookkeeping;
  auto launch = std::make_unique<Launch>();
  launch->body = node.body;
  launch->grid = node.grid;
  launch->block = node.block;
  launch->after = std::move(stream.waits);
  stream.waits.clear();
  if (stream.last) launch->after.push_back(stream.last);
  stream.last = launch->completion;
  add_launch(stream.device, std::move(launch));
}

/// The host waits for a launch, and sees what it wrote.
void wait_for(const CompletionPtr& completion) {
  if (!completion) return;
  drive([&completion] { return completion->done; });
  tsan_acquire(&completion->order);
}

bool is_device(int device) { return device >= 0 && device < settings().devices; }

}  // namespace

void enqueue(std::function<void()> body, dim3 grid, dim3 block, hipStream_t stream) {
  Stream& s = stream_or_default(stream);
  KernelNode node{std::move(body), grid, block};
  if (s.capturing) {
    s.captured.push_back(std::move(node));
  } else {
    enqueue_node(node, s);
  }
}

}  // namespace arlab::emulator

using namespace arlab::emulator;

hipError_t hipGetDeviceCount(int* count) {
  *count = settings().devices;
  return hipSuccess;
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t, int device) {
  if (!is_device(device)) return hipErrorInvalidDevice;
  constexpr int kMultiprocessors = 16;
  *value = kMultiprocessors;
  return hipSuccess;
}
hipError_t hipDeviceGetName(char* name, int bytes, int device) {
  if (!is_device(device) || bytes < 1) return hipErrorInvalidValue;
  std::strncpy(name, "emulated GPU", static_cast<std::size_t>(bytes) - 1);
  name[bytes - 1] = 0;
  return hipSuccess;
}
hipError_t hipSetDevice(int device) {
  if (!is_device(device)) return hipErrorInvalidDevice;
  current_device = device;
  return hipSuccess;
}
hipError_t hipGetDevice(int* device) {
  *device = current_device;
  return hipSuccess;
}
hipError_t hipDeviceGetPCIBusId(char* text, int bytes, int device) {
  if (!is_device(device)) return hipErrorInvalidDevice;
  // Every process has emulated devices of its own.
  std::snprintf(text, static_cast<std::size_t>(bytes), "emulated %d of process %d", device,
                static_cast<int>(getpid()));
  return hipSuccess;
}
hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = is_device(device) && is_device(peer) && device != peer ? 1 : 0;
  return hipSuccess;
}
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned) {
  return is_device(peer) ? hipSuccess : hipErrorInvalidDevice;
}
hipError_t hipDeviceSynchronize() {
  const int device = current_device;
  drive([device] { return is_idle(device); });
  see_ended_kernels(device);
  return hipSuccess;
}

hipError_t hipMalloc(void** pointer, std::size_t bytes) {
  *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *pointer != nullptr ? hipSuccess : hipErrorOutOfMemory;
}
hipError_t hipExtMallocWithFlags(void** pointer, std::size_t bytes, unsigned) {
  *pointer = allocate_shared(bytes);
  return *pointer != nullptr ? hipSuccess : hipErrorOutOfMemory;
}
hipError_t hipFree(void* pointer) {
  hipDeviceSynchronize();
  if (!free_shared(pointer)) std::free(pointer);
  return hipSuccess;
}
hipError_t hipMemset(void* pointer, int value, std::size_t bytes) {
  hipDeviceSynchronize();
  std::memset(pointer, value, bytes);
  return hipSuccess;
}
hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind) {
  hipDeviceSynchronize();
  std::memcpy(to, from, bytes);
  return hipSuccess;
}

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned) {
  auto created = std::make_unique<Stream>();
  created->device = current_device;
  *stream = created.release();
  return hipSuccess;
}
hipError_t hipStreamDestroy(hipStream_t stream) {
  wait_for(stream->last);
  delete stream;
  return hipSuccess;
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
  Stream& s = stream_or_default(stream);
  if (s.capturing) return hipErrorStreamCaptureUnsupported;
  wait_for(s.last);
  return hipSuccess;
}
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned) {
  Stream& s = stream_or_default(stream);
  if (s.capturing) return hipErrorStreamCaptureUnsupported;
  if (event->completion) s.waits.push_back(event->completion);
  return hipSuccess;
}

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) {
  *event = new Event{};
  return hipSuccess;
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  event->completion = stream_or_default(stream).last;
  return hipSuccess;
}
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop) {
  if (!start->completion || !stop->completion) return hipErrorInvalidValue;
  wait_for(start->completion);
  wait_for(stop->completion);
  const std::uint64_t nanoseconds = stop->completion->done_at - start->completion->done_at;
  *milliseconds = static_cast<float>(nanoseconds) * 1e-6f;
  return hipSuccess;
}
hipError_t hipEventDestroy(hipEvent_t event) {
  delete event;
  return hipSuccess;
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  *status = stream_or_default(stream).capturing ? hipStreamCaptureStatusActive
                                                : hipStreamCaptureStatusNone;
  return hipSuccess;
}
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode) {
  if (stream == nullptr || stream->capturing) return hipErrorInvalidValue;
  stream->capturing = true;
  stream->captured.clear();
  return hipSuccess;
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  if (stream == nullptr || !stream->capturing) return hipErrorInvalidValue;
  stream->capturing = false;
  *graph = new Graph{std::move(stream->captured)};
  return hipSuccess;
}
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph,
                                        unsigned long long) {
  *executable = new Graph(*graph);
  return hipSuccess;
}
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
  for (const KernelNode& node : executable->nodes) enqueue_node(node, stream_or_default(stream));
  return hipSuccess;
}
hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  delete executable;
  return hipSuccess;
}
hipError_t hipGraphDestroy(hipGraph_t graph) {
  delete graph;
  return hipSuccess;
}

hipError_t hipGetLastError() { return hipSuccess; }
const char* hipGetErrorString(hipError_t error) {
  switch (error) {
    case hipSuccess:
      return "no error";
    case hipErrorInvalidValue:
      return "invalid argument";
    case hipErrorOutOfMemory:
      return "out of memory";
    case hipErrorNoDevice:
      return "no device";
    case hipErrorInvalidDevice:
      return "no such device";
    case hipErrorPeerAccessAlreadyEnabled:
      return "peer access is enabled already";
    case hipErrorStreamCaptureUnsupported:
      return "not allowed while a stream is captured";
  }
  return "unknown error";
}

// The host side of HIP on the emulated machine.

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/platform/host/emulator.h"
#include "kernels/platform/host/hip/hip_runtime.h"
#include "kernels/platform/host/host_lock.h"
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
  std::vector<CompletionPtr>
      after;                  // the launch enqueued last, and events: the next waits for them
  Stream* capture = nullptr;  // this stream is part of it: its own, or that of another
  bool behind = true;         // in such another: it waits for all that this one has captured
  std::vector<KernelNode> captured;
  std::vector<Stream*> side_streams;  // those in this one's capture
};

struct Event {
  std::vector<CompletionPtr> after;
  Stream* captured_on = nullptr;  // recorded there, while it was captured
};

struct Graph {
  std::vector<KernelNode> nodes;
};

namespace {

thread_local int current_device = 0;
thread_local hipError_t last_error = hipSuccess;
int live_streams = 0;
/// In a process that was forked while devices were in use: the memory of teams is shared with the
/// parent, and kernels that it has launched are not ours.
bool lost_by_fork = false;

HostLock* lock_of_fork = nullptr;
void before_fork() { lock_of_fork = new HostLock; }
void after_fork() { delete std::exchange(lock_of_fork, nullptr); }
void after_fork_in_child() {
  HostLock::begin_in_child();
  bool idle = true;
  for (int device = 0; device < settings().devices; ++device) idle = idle && is_idle(device);
  lost_by_fork = lost_by_fork || !idle || live_streams != 0 || has_shared_memory();
  after_fork();
}
const int registered = pthread_atfork(before_fork, after_fork, after_fork_in_child);

Stream& stream_or_default(hipStream_t stream) {
  static std::vector<std::unique_ptr<Stream>>& defaults =
      *new std::vector<std::unique_ptr<Stream>>;  // as long as threads that use them
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
  launch->after = stream.after;
  CompletionPtr completion = launch->completion;
  add_launch(stream.device, std::move(launch));
  stream.after = {std::move(completion)};
}

/// The host waits for launches, and sees what they wrote.
hipError_t wait_for(const std::vector<CompletionPtr>& launches) {
  hipError_t error = hipSuccess;
  for (const CompletionPtr& completion : launches) {
    drive([&completion] { return completion->done; });
    tsan_acquire(&completion->order);
    make_known(*completion);
    if (error == hipSuccess) error = completion->error;
  }
  return error;
}

/// Waits for all that the device has to do so far.
void settle(int device) {
  drive([device, last = last_launch(device)] { return is_idle(device, last); });
  see_ended_kernels(device);
}
hipError_t synchronize(int device) {
  settle(device);
  const hipError_t error = take_error(device);
  return failure_of(device) != hipSuccess ? failure_of(device) : error;
}

bool is_device(int device) { return device >= 0 && device < settings().devices; }

/// A call: in turn, and all that can go wrong is its result.
template <class Call>
hipError_t in_turn(Call call) {
  const HostLock lock;
  if (lost_by_fork) return hipErrorNotInitialized;
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return hipErrorOutOfMemory;
  }
}

/// A call that needs a device that works: of the stream, or the current one.
template <class Call>
hipError_t on_device_of(hipStream_t stream, Call call) {
  return in_turn([&] {
    Stream& s = stream_or_default(stream);
    if (failure_of(s.device) != hipSuccess) return failure_of(s.device);
    return call(s);
  });
}

}  // namespace

void enqueue(std::function<void()> body, dim3 grid, dim3 block, hipStream_t stream) {
  const hipError_t error = on_device_of(stream, [&](Stream& s) {
    KernelNode node{std::move(body), grid, block};
    if (s.capture != nullptr) {
      s.capture->captured.push_back(
          std::move(node));  // one after the other is an order that the graph allows
      s.behind = false;
    } else {
      enqueue_node(node, s);
    }
    return hipSuccess;
  });
  if (error != hipSuccess) last_error = error;
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
  return in_turn([] { return synchronize(current_device); });
}

hipError_t hipMalloc(void** pointer, std::size_t bytes) {
  *pointer = nullptr;
  return on_device_of(nullptr, [&](Stream&) {
    if (bytes <= SIZE_MAX - 255) *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *pointer != nullptr ? hipSuccess : hipErrorOutOfMemory;
  });
}
hipError_t hipExtMallocWithFlags(void** pointer, std::size_t bytes, unsigned) {
  *pointer = nullptr;
  return on_device_of(nullptr, [&](Stream&) {
    *pointer = allocate_shared(bytes);
    return *pointer != nullptr ? hipSuccess : hipErrorOutOfMemory;
  });
}
hipError_t hipFree(void* pointer) {
  const HostLock lock;
  // Failures are told to who waits for them. No kernels of a parent run here.
  if (!lost_by_fork) settle(current_device);
  if (!free_shared(pointer)) std::free(pointer);
  return hipSuccess;
}
hipError_t hipMemset(void* pointer, int value, std::size_t bytes) {
  return in_turn([&] {
    const hipError_t error = synchronize(current_device);
    if (error == hipSuccess) std::memset(pointer, value, bytes);
    return error;
  });
}
hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind) {
  return in_turn([&] {
    const hipError_t error = synchronize(current_device);
    if (error == hipSuccess) std::memcpy(to, from, bytes);
    return error;
  });
}

hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind,
                          hipStream_t stream) {
  if (bytes == 0) return hipSuccess;
  enqueue([=] { std::memcpy(to, from, bytes); }, dim3(1), dim3(1), stream);
  return hipGetLastError();
}

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned) {
  return on_device_of(nullptr, [&](Stream&) {
    auto created = std::make_unique<Stream>();
    created->device = current_device;
    *stream = created.release();
    ++live_streams;
    return hipSuccess;
  });
}
hipError_t hipStreamDestroy(hipStream_t stream) {
  const HostLock lock;
  const hipError_t error = lost_by_fork ? hipErrorNotInitialized : wait_for(stream->after);
  delete stream;
  --live_streams;
  return error;
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
  return in_turn([&] {
    Stream& s = stream_or_default(stream);
    if (s.capture != nullptr) return hipErrorStreamCaptureUnsupported;
    // A copy: meanwhile other threads may go on with the stream.
    const std::vector<CompletionPtr> waited_for = s.after;
    const hipError_t error = wait_for(waited_for);
    // One is enough from now on; else a stream that waits for events only would keep them all.
    const auto last =
        std::max_element(waited_for.begin(), waited_for.end(),
                         [](const auto& x, const auto& y) { return x->done_at < y->done_at; });
    if (error == hipSuccess && last != waited_for.end() && s.after == waited_for) s.after = {*last};
    return failure_of(s.device) != hipSuccess ? failure_of(s.device) : error;
  });
}
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned) {
  return on_device_of(stream, [&](Stream& s) {
    Stream* const from = event->captured_on;
    Stream* const capture = from != nullptr ? from->capture : nullptr;
    if (from == nullptr && s.capture == nullptr) {
      s.after.insert(s.after.end(), event->after.begin(), event->after.end());
      return hipSuccess;
    }
    if (capture == nullptr || (s.capture != nullptr && s.capture != capture)) {
      return hipErrorStreamCaptureUnsupported;
    }
    if (s.capture == nullptr) capture->side_streams.push_back(&s);
    s.capture = capture;
    if (&s == capture) from->behind = true;
    return hipSuccess;
  });
}

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) {
  return in_turn([&] {
    *event = new Event{};
    return hipSuccess;
  });
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  return on_device_of(stream, [&](Stream& s) {
    event->after.clear();
    if (s.capture == nullptr) event->after = s.after;
    event->captured_on = s.capture == nullptr ? nullptr : &s;
    return hipSuccess;
  });
}
hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop) {
  if (start->after.empty() || stop->after.empty()) return hipErrorInvalidValue;
  return in_turn([&] {
    for (const hipEvent_t event : {start, stop}) {
      const hipError_t error = wait_for(event->after);
      if (error != hipSuccess) return error;
    }
    const auto done_at = [](hipEvent_t event) {
      std::uint64_t last = 0;
      for (const CompletionPtr& each : event->after) last = std::max(last, each->done_at);
      return last;
    };
    *milliseconds = static_cast<float>(done_at(stop) - done_at(start)) * 1e-6f;
    return hipSuccess;
  });
}
hipError_t hipEventDestroy(hipEvent_t event) {
  delete event;
  return hipSuccess;
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  return in_turn([&] {
    *status = stream_or_default(stream).capture != nullptr ? hipStreamCaptureStatusActive
                                                           : hipStreamCaptureStatusNone;
    return hipSuccess;
  });
}
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode) {
  return in_turn([&] {
    if (stream == nullptr || stream->capture != nullptr) return hipErrorInvalidValue;
    stream->capture = stream;
    stream->captured.clear();
    return hipSuccess;
  });
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  return in_turn([&] {
    if (stream == nullptr || stream->capture != stream) return hipErrorInvalidValue;
    bool all_behind = true;
    for (Stream* side : stream->side_streams) {
      all_behind = all_behind && side->behind;
      side->capture = nullptr;
    }
    stream->side_streams.clear();
    stream->capture = nullptr;
    if (!all_behind) return hipErrorStreamCaptureUnsupported;
    *graph = new Graph{std::move(stream->captured)};
    return hipSuccess;
  });
}
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph,
                                        unsigned long long) {
  return in_turn([&] {
    *executable = new Graph(*graph);
    return hipSuccess;
  });
}
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
  return on_device_of(stream, [&](Stream& s) {
    for (const KernelNode& node : executable->nodes) enqueue_node(node, s);
    return hipSuccess;
  });
}
hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  delete executable;
  return hipSuccess;
}
hipError_t hipGraphDestroy(hipGraph_t graph) {
  delete graph;
  return hipSuccess;
}

hipError_t hipGetLastError() { return std::exchange(last_error, hipSuccess); }

namespace {

/// The emulator's report, on one line: the error, and the first of the places where lanes wait.
std::string summary_of_report() {
  constexpr int kMostPlaces = 4;
  const std::string report = arlab::emulator::report();
  std::string summary;
  int lines = 0;
  for (std::size_t begin = 0; begin < report.size(); ++lines) {
    const std::size_t end = std::min(report.find('\n', begin), report.size());
    if (lines <= kMostPlaces) {
      if (lines != 0) summary += "; ";
      summary.append(report, begin, end - begin);
    }
    begin = end + 1;
  }
  if (lines > kMostPlaces + 1) {
    summary += "; and " + std::to_string(lines - 1 - kMostPlaces) + " more places";
  }
  return summary;
}

}  // namespace

const char* hipGetErrorString(hipError_t error) {
  switch (error) {
    case hipSuccess:
      return "no error";
    case hipErrorInvalidValue:
      return "invalid argument";
    case hipErrorOutOfMemory:
      return "out of memory";
    case hipErrorNotInitialized:
      return "the process was forked while emulated GPUs were in use: start it anew instead "
             "(spawn)";
    case hipErrorLaunchFailure: {
      thread_local std::string text;
      try {
        text = summary_of_report();
        return text.empty() ? "a launch failed" : text.c_str();
      } catch (const std::bad_alloc&) {
        return "a launch failed, and there is no memory to say why";
      }
    }
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

// Between the host side of HIP (runtime_api.cc) and the scheduler (emulator.cc).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/platform/host/device_functions.h"
#include "kernels/platform/host/fiber.h"
#include "kernels/platform/host/hip/hip_runtime.h"

namespace arlab::emulator {

/// The end of a launch, after which others are ordered.
struct Completion;
using CompletionPtr = std::shared_ptr<Completion>;
struct Completion {
  bool done = false;
  hipError_t error = hipSuccess;  ///< once it is done: why not all of it ran
  bool known = false;             ///< the error, to the host: what is launched from then on may run
  CompletionPtr cause;            ///< origin of the error, when the launch was ordered after it
  std::uint64_t done_at = 0;      ///< clock_nanoseconds()
  char order = 0;                 ///< its address stands for that order in ThreadSanitizer
  /// Under ThreadSanitizer, stacks of the launch's lanes, for launches that are ordered after it: a
  /// stack is a thread there, and all that runs on it is in order.
  std::vector<std::unique_ptr<Stacks>> spare_stacks;
};

/// The host hears of the error.
inline void make_known(Completion& completion) {
  for (Completion* c = &completion; c != nullptr; c = c->cause.get()) c->known = true;
}

/// A kernel, to run once everything in `after` is done.
struct Launch {
  std::function<void()> body;  ///< one lane's work
  dim3 grid;
  dim3 block;
  std::vector<CompletionPtr> after;
  CompletionPtr completion = std::make_shared<Completion>();
  unsigned started = 0;  ///< blocks
  unsigned ended = 0;
  char enqueued = 0;  ///< its address stands for what the host did before, in ThreadSanitizer
  char* on_device = nullptr;          ///< likewise, for all that the device's kernels have done
  std::uint64_t number = 0;           ///< which of the launches of the device it is
  hipError_t cancelled = hipSuccess;  ///< why none of its blocks starts any more

  unsigned blocks() const { return grid.x * grid.y * grid.z; }
};

void add_launch(int device, std::unique_ptr<Launch> launch);

/// True when nothing is left to run on the device, but what was launched after the launch of that
/// number.
bool is_idle(int device, std::uint64_t after = UINT64_MAX);
/// The number of the device's last launch so far.
std::uint64_t last_launch(int device);

/// The host sees what the device's ended kernels wrote: for ThreadSanitizer.
void see_ended_kernels(int device);

/// Why the device cannot be used any more.
hipError_t failure_of(int device);
/// The error of launches of the device that failed, if nobody knew it; from then on it is known.
hipError_t take_error(int device);

/// Runs all devices until `finished`. When no lane can ever run again, what is unfinished fails.
void drive(const std::function<bool()>& finished);

}  // namespace arlab::emulator

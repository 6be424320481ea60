// Between the host side of HIP (runtime_api.cc) and the scheduler (emulator.cc).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/platform/host/device_functions.h"
#include "kernels/platform/host/fiber.h"

namespace arlab::emulator {

/// That a launch has ended: what others are ordered after.
struct Completion {
  bool done = false;
  std::uint64_t done_at = 0;  ///< clock_nanoseconds()
  char order = 0;             ///< its address stands for that order in ThreadSanitizer
  /// Under ThreadSanitizer, stacks of the launch's lanes, for launches that are ordered after it: a
  /// stack is a thread there, and all that runs on it is in order.
  std::vector<Stack> spare_stacks;
};
using CompletionPtr = std::shared_ptr<Completion>;

/// A kernel, to run once everything in `after` is done.
struct Launch {
  std::function<void()> body;  ///< what one lane does
  dim3 grid;
  dim3 block;
  std::vector<CompletionPtr> after;
  CompletionPtr completion = std::make_shared<Completion>();
  unsigned started = 0;  ///< blocks
  unsigned ended = 0;
  char enqueued = 0;  ///< its address stands for what the host did before, in ThreadSanitizer
  char* on_device = nullptr;  ///< likewise, for all that the device's kernels have done

  unsigned blocks() const { return grid.x * grid.y * grid.z; }
};

void add_launch(int device, std::unique_ptr<Launch> launch);

/// True when nothing is left to run on the device.
bool is_idle(int device);

/// The host sees what the device's ended kernels wrote: for ThreadSanitizer.
void see_ended_kernels(int device);

/// Runs all devices until `finished`. When no lane can ever run again, says where each waits and
/// aborts.
void drive(const std::function<bool()>& finished);

}  // namespace arlab::emulator

// The emulated machine: its GPUs, how their lanes are scheduled, and its settings.
//
//   lane    one GPU thread: a fiber
//   wave    32 or 64 consecutive lanes of a block; shuffles exchange values inside it
//   block   lanes that share memory and a barrier
//   launch  a kernel with its grid; runs when what it was ordered after has completed
//   device  launches of its streams, blocks that are resident
//
// Everything runs inside the host calls that wait (synchronize, copy, free), on the thread that makes
// them; threads take turns (host_lock.h). Every device makes progress there, so kernels of several
// devices may wait for each other. A block starts when those before it have ended, or wait for what
// may be one that has not started: so a launch of any size takes the memory of a few blocks. With a
// seed, devices, blocks, waves and lanes run in random order and are interrupted at random;
// without, in their natural order. Either way a run can be repeated exactly.
//
// What goes wrong is an error of the call that waits, never the end of the program. After a mistake
// of a kernel or a deadlock (hipErrorLaunchFailure; report() says which) what ran on the device is
// dropped, and the device is not to be used again, as on a real one. A launch for whose blocks there
// is no memory (hipErrorOutOfMemory) fails alone, with what is ordered after it.
//
// Processes may work together, each with GPUs of its own (shared_memory.h). While memory of another
// process is open, time is real time, and waiting for that memory is no deadlock.
//
// What it does not show: weak memory and caches (ThreadSanitizer shows missing order, not a scope
// that is too narrow); spinning without atomics; shuffles among a part of a wave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace arlab::emulator {

struct Settings {
  int devices = 8;
  int wave_size = 64;       ///< 32 or 64
  std::uint64_t seed = 0;   ///< 0: natural order
  int resident_blocks = 0;  ///< most of a device at a time; 0: as many as wait for each other
  /// In random order, how many rounds of the scheduler a device may stand still, so that others get
  /// ahead of it.
  int most_rounds_still = 0;
  std::size_t most_lanes = SIZE_MAX;  ///< at a time, of all devices; more find no memory
  /// How many lanes' stacks have a page that faults below them; see fiber.h.
  std::size_t guarded_stacks = 8192;
};

/// Takes effect for everything launched from now on; nothing may be running.
void configure(const Settings& settings);
const Settings& settings();

/// Most lanes that were resident at a time since configure().
std::size_t most_resident_lanes();

/// The last errors, a line for every place where lanes wait; empty at first.
std::string report();

}  // namespace arlab::emulator

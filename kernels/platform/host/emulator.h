// The emulated machine: its GPUs, how their lanes are scheduled, and its settings.
//
//   lane    one GPU thread: a fiber
//   wave    32 or 64 consecutive lanes of a block; shuffles exchange values inside it
//   block   lanes that share memory and a barrier
//   launch  a kernel with its grid; runs when what it was ordered after has completed
//   device  launches of its streams, blocks that are resident
//
// One operating system thread runs everything, inside the host calls that wait (synchronize, copy,
// free). Every device makes progress there, so kernels of several devices may wait for each other.
// With a seed, devices, blocks, waves and lanes run in random order and are interrupted at random;
// without, in their natural order. Either way a run can be repeated exactly.
//
// Processes may work together, each with GPUs of its own (shared_memory.h). While memory of another
// process is open, time is real time, and waiting for that memory is no deadlock.
//
// What it does not show: weak memory and caches (ThreadSanitizer shows missing order, not a scope
// that is too narrow); spinning without atomics; shuffles among a part of a wave.
#pragma once

#include <cstdint>

namespace arlab::emulator {

struct Settings {
  int devices = 8;
  int wave_size = 64;       ///< 32 or 64
  std::uint64_t seed = 0;   ///< 0: natural order
  int resident_blocks = 0;  ///< of a device at a time; 0: all of a launch
};

/// Takes effect for everything launched from now on; nothing may be running.
void configure(const Settings& settings);
const Settings& settings();

}  // namespace arlab::emulator

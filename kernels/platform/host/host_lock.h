// A fair lock of the emulated machine: one thread at a time calls its API or runs its lanes, first
// come, first served. A thread that waits for kernels lets others have the lock in between.
#pragma once

namespace arlab::emulator {

/// Holds the emulated machine for this thread. May be nested.
class HostLock {
 public:
  HostLock();
  ~HostLock();
  HostLock(const HostLock&) = delete;
  HostLock& operator=(const HostLock&) = delete;

  /// Gives the lock to the threads that wait, then takes it again. Returns false where none waits, or the lock is nested.
  static bool let_others();

  /// For the child of a fork() that was made with the lock held: nobody else is there to wait.
  static void begin_in_child();
};

}  // namespace arlab::emulator

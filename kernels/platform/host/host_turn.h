// Threads of the program take turns with the emulated machine: one at a time calls its API or runs
// its lanes. Who waits for kernels lets the others have their turns in between, first come, first
// served.
#pragma once

namespace arlab::emulator {

/// While it lives, it is this thread's turn. May be nested.
class HostTurn {
 public:
  HostTurn();
  ~HostTurn();
  HostTurn(const HostTurn&) = delete;
  HostTurn& operator=(const HostTurn&) = delete;

  /// Lets those go first who wait; false when nobody does, or the turn is nested. Needs a turn.
  static bool let_others();

  /// In the child of a fork() that was made in a turn: nobody else is there to wait.
  static void begin_in_child();
};

}  // namespace arlab::emulator

// Signals that end a program wait while it moves files into their place.
#pragma once

namespace arlab {

/// Takes SIGINT, SIGTERM and SIGHUP over, but those that are ignored: they end the program as usual, but not while a
/// SignalsWait exists. For a program, at its start; without it, as in a library inside another program, a SignalsWait does
/// nothing.
void let_signals_wait();

/// While one exists, a signal that would end the program waits for the end of the last one: then
/// the program has put its files in order, and ends by that signal.
class SignalsWait {
 public:
  SignalsWait();
  ~SignalsWait();
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

  /// Whether a signal waits: long work is given up then, and cleaned up after.
  static bool one_came();
};

}  // namespace arlab

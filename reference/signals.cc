#include "reference/signals.h"

#include <atomic>
#include <csignal>
#include <initializer_list>

namespace arlab {
namespace {

std::atomic<int> waits{0};
std::atomic<int> waiting_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler uses them");

void end_by(int number) {
  std::signal(number, SIG_DFL);
  std::raise(number);
}

extern "C" void on_signal(int number) {
  if (waits.load() > 0) {
    waiting_signal = number;
    // On another thread the last SignalsWait may have ended in between.
    if (waits.load() > 0) return;
  }
  end_by(number);
}

}  // namespace

void let_signals_wait() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now = {};
    if (::sigaction(number, nullptr, &now) != 0 || now.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(number, &action, nullptr);
  }
}

SignalsWait::SignalsWait() { ++waits; }

SignalsWait::~SignalsWait() {
  if (--waits > 0) return;
  if (const int number = waiting_signal.exchange(0); number != 0) end_by(number);
}

bool SignalsWait::one_came() { return waiting_signal.load() != 0; }

}  // namespace arlab

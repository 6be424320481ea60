#include "kernels/platform/host/host_lock.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace arlab::emulator {
namespace {

struct Queue {
  std::mutex mutex;
  std::condition_variable moved;
  std::uint64_t tickets = 0;  // drawn so far
  std::uint64_t turn = 0;     // the ticket whose turn it is
};

/// Never destroyed: threads may wait in it while the program ends.
Queue* queue = new Queue;
thread_local int depth = 0;

void enter() {
  std::unique_lock lock(queue->mutex);
  const std::uint64_t ticket = queue->tickets++;
  queue->moved.wait(lock, [ticket] { return queue->turn == ticket; });
}
void leave() {
  {
    const std::lock_guard lock(queue->mutex);
    ++queue->turn;
  }
  queue->moved.notify_all();
}
bool others_wait() {
  const std::lock_guard lock(queue->mutex);
  return queue->tickets > queue->turn + 1;
}

}  // namespace

HostLock::HostLock() {
  if (depth++ == 0) enter();
}
HostLock::~HostLock() {
  if (--depth == 0) leave();
}

bool HostLock::let_others() {
  if (depth != 1 || !others_wait()) return false;
  leave();
  enter();
  return true;
}

void HostLock::begin_in_child() {
  queue = new Queue;  // the old one may be locked by a thread that is not here
  queue->tickets = 1;
}

}  // namespace arlab::emulator

// Fibers: stacks that one operating system thread switches between. A lane of an emulated GPU is
// one.
//
// A switch costs about 2 ns on x86-64 (15 instructions of our own); elsewhere ucontext does it,
// 100 times slower. AddressSanitizer and ThreadSanitizer are told of every switch. For
// ThreadSanitizer a stack is a thread, and switching orders nothing: two lanes that touch the same
// memory race unless the kernel itself orders them.
//
// The fiber that the program started on has no stack of its own here: Fiber::adopt_current().
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#if !defined(__x86_64__) || defined(ARLAB_FIBER_UCONTEXT)
#define ARLAB_FIBER_USES_UCONTEXT 1
#include <ucontext.h>
#else
#define ARLAB_FIBER_USES_UCONTEXT 0
#endif

namespace arlab::emulator {

/// Where a fiber runs. For ThreadSanitizer a stack belongs to one thread, which all fibers on it are.
struct Stack {
  char* bottom = nullptr;
  std::size_t bytes = 0;
  void* thread_of_tsan = nullptr;
};

/// Stacks for all lanes of a block, in one mapping. They grow down, memory is taken when touched, and
/// none runs into the one below it unnoticed: below each is a page that faults, as long as few stacks
/// are there, else a page of a pattern, which overflowed() looks at. (The system allows a process
/// 65,530 mappings, and a page that faults costs two.)
class Stacks {
 public:
  /// Null when there is no memory. `guarded`: how many of all stacks may have a page that faults.
  static std::unique_ptr<Stacks> make(std::size_t count, std::size_t guarded);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  std::size_t count() const { return count_; }
  Stack operator[](std::size_t index) const;

  /// Whether a lane needed more than its stack, and has written to another's.
  bool overflowed() const;

 private:
  Stacks(char* memory, std::size_t count) : memory_(memory), count_(count) {}
  bool guard(std::size_t count);

  char* memory_;
  std::size_t count_;
  std::size_t guarded_ = 0;  // the lowest ones
  std::vector<void*> threads_of_tsan_;
};

class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes this the fiber that is running now; for the program's own stack.
  void adopt_current();

  /// Makes it run `entry` on `stack` when it is first switched to. `entry` must not return; its
  /// last act is leave_to(). `colour` staggers stacks, so that equal offsets of many of them do not
  /// meet in one cache set.
  void prepare(const Stack& stack, std::size_t colour, void (*entry)());

  /// Saves the running fiber, which must be this one, and runs `next`.
  void switch_to(Fiber& next);

  /// Switches to the other fiber for the last time.
  [[noreturn]] void leave_to(Fiber& next);

  /// To be called before anything else in `entry`.
  static void entered();

 private:
  void jump(Fiber& next, bool last_time);

#if ARLAB_FIBER_USES_UCONTEXT
  ucontext_t context_ = {};
#else
  void* stack_pointer_ = nullptr;
#endif
  const void* stack_bottom_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* thread_of_tsan_ = nullptr;
  [[maybe_unused]] void* fake_stack_of_asan_ = nullptr;
};

}  // namespace arlab::emulator

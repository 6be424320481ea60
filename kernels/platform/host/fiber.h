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

#if !defined(__x86_64__) || defined(ARLAB_FIBER_UCONTEXT)
#define ARLAB_FIBER_USES_UCONTEXT 1
#include <ucontext.h>
#else
#define ARLAB_FIBER_USES_UCONTEXT 0
#endif

namespace arlab::emulator {

/// A stack that grows down, with one page below it that faults. Memory is taken when touched. For
/// ThreadSanitizer it belongs to one thread, which all fibers on it are.
class Stack {
 public:
  /// `bytes`: a multiple of the page size, the guard page included.
  explicit Stack(std::size_t bytes);
  ~Stack();
  Stack(Stack&& other) noexcept;
  Stack& operator=(Stack&&) = delete;

  char* bottom() const { return memory_; }
  std::size_t bytes() const { return bytes_; }
  void* thread_of_tsan() const { return thread_of_tsan_; }

 private:
  char* memory_;
  std::size_t bytes_;
  void* thread_of_tsan_ = nullptr;
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
  void prepare(Stack& stack, std::size_t colour, void (*entry)());

  /// Saves the running fiber, which must be this one, and runs `next`.
  void switch_to(Fiber& next);

  /// As switch_to, for the last time.
  [[noreturn]] void leave_to(Fiber& next);

  /// To be called first thing in `entry`.
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
  void* fake_stack_of_asan_ = nullptr;
};

}  // namespace arlab::emulator

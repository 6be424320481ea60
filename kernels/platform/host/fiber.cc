#include "kernels/platform/host/fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define ARLAB_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARLAB_FIBER_ASAN 1
#endif
#endif

#ifdef ARLAB_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef ARLAB_EMULATOR_FOR_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if !ARLAB_FIBER_USES_UCONTEXT
// Saves the registers that a call preserves on the running stack, and takes those of the other.
// "pop, jmp" instead of "ret": a return address that no call pushed is always mispredicted.
extern "C" void arlab_switch_stack(void** save_stack_pointer, void* load_stack_pointer);
__asm__(R"(
.text
.globl arlab_switch_stack
.type arlab_switch_stack,@function
arlab_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size arlab_switch_stack,.-arlab_switch_stack
.section .note.GNU-stack,"",@progbits
.text
)");
#endif

namespace arlab::emulator {

Stack::Stack(std::size_t bytes) : memory_(nullptr), bytes_(bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  mprotect(memory_, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);
#ifdef ARLAB_EMULATOR_FOR_TSAN
  thread_of_tsan_ = __tsan_create_fiber(0);
#endif
}

Stack::~Stack() {
  if (memory_ == nullptr) return;
#ifdef ARLAB_EMULATOR_FOR_TSAN
  __tsan_destroy_fiber(thread_of_tsan_);
#endif
#ifdef ARLAB_FIBER_ASAN
  __asan_unpoison_memory_region(memory_, bytes_);
#endif
  munmap(memory_, bytes_);
}

Stack::Stack(Stack&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_),
      thread_of_tsan_(other.thread_of_tsan_) {}

void Fiber::adopt_current() {
#ifdef ARLAB_EMULATOR_FOR_TSAN
  thread_of_tsan_ = __tsan_get_current_fiber();
#endif
#ifdef ARLAB_FIBER_ASAN
  pthread_attr_t attributes;
  pthread_getattr_np(pthread_self(), &attributes);
  void* bottom = nullptr;
  pthread_attr_getstack(&attributes, &bottom, &stack_bytes_);
  pthread_attr_destroy(&attributes);
  stack_bottom_ = bottom;
#endif
}

void Fiber::prepare(Stack& stack, std::size_t colour, void (*entry)()) {
  stack_bottom_ = stack.bottom();
  stack_bytes_ = stack.bytes();
  const std::size_t used = stack.bytes() - colour * 1088 % (stack.bytes() / 4) / 64 * 64;
  thread_of_tsan_ = stack.thread_of_tsan();
#if ARLAB_FIBER_USES_UCONTEXT
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack.bottom();
  context_.uc_stack.ss_size = used;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
#else
  auto* top = reinterpret_cast<void**>(stack.bottom() + used / 16 * 16);
  *--top = nullptr;  // a return address, so that the stack is aligned as after a call
  *--top = reinterpret_cast<void*>(entry);
  for (int saved_register = 0; saved_register < 6; ++saved_register) *--top = nullptr;
  stack_pointer_ = top;
#endif
}

void Fiber::jump(Fiber& next, [[maybe_unused]] bool last_time) {
#ifdef ARLAB_EMULATOR_FOR_TSAN
  __tsan_switch_to_fiber(next.thread_of_tsan_, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef ARLAB_FIBER_ASAN
  __sanitizer_start_switch_fiber(last_time ? nullptr : &fake_stack_of_asan_, next.stack_bottom_,
                                 next.stack_bytes_);
#endif
#if ARLAB_FIBER_USES_UCONTEXT
  swapcontext(&context_, &next.context_);
#else
  arlab_switch_stack(&stack_pointer_, next.stack_pointer_);
#endif
#ifdef ARLAB_FIBER_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_of_asan_, nullptr, nullptr);
#endif
}

void Fiber::switch_to(Fiber& next) { jump(next, false); }

void Fiber::leave_to(Fiber& next) {
  jump(next, true);
  std::abort();  // a fiber that left was switched to
}

void Fiber::entered() {
#ifdef ARLAB_FIBER_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

}  // namespace arlab::emulator

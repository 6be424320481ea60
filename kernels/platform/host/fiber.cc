#include "kernels/platform/host/fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

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

namespace {

constexpr std::size_t kStackBytes = std::size_t{128} * 1024;  // with the page below
constexpr std::uint64_t kPattern = 0xB0770B0770B0770B;

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

/// How many stacks have a guard page, of all that are there.
std::size_t guarded_stacks = 0;

}  // namespace

std::unique_ptr<Stacks> Stacks::make(std::size_t count, std::size_t guarded) {
  void* memory = mmap(nullptr, count * kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::unique_ptr<Stacks> stacks(new (std::nothrow) Stacks(static_cast<char*>(memory), count));
  if (stacks == nullptr) {
    munmap(memory, count * kStackBytes);
    return nullptr;
  }
  if (guarded_stacks + count > guarded || !stacks->guard(count)) {
    // Below the lowest there is another's memory.
    if (!stacks->guard(1)) return nullptr;
    for (std::size_t i = 1; i < count; ++i) {
      std::fill_n(reinterpret_cast<std::uint64_t*>((*stacks)[i].bottom),
                  page_size() / sizeof(kPattern), kPattern);
    }
  }
#ifdef ARLAB_EMULATOR_FOR_TSAN
  stacks->threads_of_tsan_.resize(count);
  for (void*& thread : stacks->threads_of_tsan_) thread = __tsan_create_fiber(0);
#endif
  return stacks;
}

/// The first `count` of them. False when the system allows no more mappings.
bool Stacks::guard(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (mprotect(memory_ + i * kStackBytes, page_size(), PROT_NONE) != 0) {
      mprotect(memory_, count_ * kStackBytes, PROT_READ | PROT_WRITE);
      return false;
    }
  }
  guarded_ = count;
  guarded_stacks += count;
  return true;
}

Stacks::~Stacks() {
#ifdef ARLAB_EMULATOR_FOR_TSAN
  for (void* const thread : threads_of_tsan_) __tsan_destroy_fiber(thread);
#endif
#ifdef ARLAB_FIBER_ASAN
  __asan_unpoison_memory_region(memory_, count_ * kStackBytes);
#endif
  guarded_stacks -= guarded_;
  munmap(memory_, count_ * kStackBytes);
}

Stack Stacks::operator[](std::size_t index) const {
  return {memory_ + index * kStackBytes, kStackBytes,
          threads_of_tsan_.empty() ? nullptr : threads_of_tsan_[index]};
}

bool Stacks::overflowed() const {
  for (std::size_t i = guarded_; i < count_; ++i) {
    const auto* pattern = reinterpret_cast<const std::uint64_t*>((*this)[i].bottom);
    if (std::any_of(pattern, pattern + page_size() / sizeof(kPattern),
                    [](std::uint64_t word) { return word != kPattern; })) {
      return true;
    }
  }
  return false;
}

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

void Fiber::prepare(const Stack& stack, std::size_t colour, void (*entry)()) {
  stack_bottom_ = stack.bottom;
  stack_bytes_ = stack.bytes;
  const std::size_t used = stack.bytes - colour * 1088 % (stack.bytes / 4) / 64 * 64;
  thread_of_tsan_ = stack.thread_of_tsan;
#if ARLAB_FIBER_USES_UCONTEXT
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack.bottom;
  context_.uc_stack.ss_size = used;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
#else
  auto* top = reinterpret_cast<void**>(stack.bottom + used / 16 * 16);
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

// Functions that only the real library has. We have to have them, too, where a program is given this library in the place of
// that one: a jump to the real function, with whatever arguments it has been called with. Communicators are the same pointers.
#include <fmt/format.h>

#include "kernels/nccl/communicator.h"
#include "kernels/nccl/real_library.h"

namespace arlab::nccl {
namespace {

int is_missing() { return kInvalidUsage; }

}  // namespace
}  // namespace arlab::nccl

/// Where to jump to.
extern "C" __attribute__((visibility("hidden"), used)) void* arlab_nccl_real_function(
    const char* name) {
  using namespace arlab::nccl;
  std::string why;
  try {
    (void)platform();
    if (RealLibrary::find() == nullptr) {
      why = RealLibrary::missing();
    } else if (void* const function = RealLibrary::find()->symbol(name)) {
      return function;
    } else {
      why = "it has no such function";
    }
  } catch (const std::exception& exception) {
    why = exception.what();
  }
  fmt::print(stderr, "arlab: {}: only the real library has it: {}\n", name, why);
  return reinterpret_cast<void*>(&is_missing);
}

// A place for the function's address, and a jump there; at first to find it, with all registers that may hold arguments kept.
#if defined(__x86_64__)
#define ARLAB_JUMP                                                                     \
  "  movq arlab_slot_\\name(%rip), %r11\n"                                             \
  "  testq %r11, %r11\n"                                                               \
  "  jnz 1f\n"                                                                         \
  "  pushq %rdi\n  pushq %rsi\n  pushq %rdx\n  pushq %rcx\n  pushq %r8\n  pushq %r9\n" \
  "  subq $8, %rsp\n"                                                                  \
  "  leaq arlab_name_\\name(%rip), %rdi\n"                                             \
  "  call arlab_nccl_real_function\n"                                                  \
  "  movq %rax, %r11\n"                                                                \
  "  movq %r11, arlab_slot_\\name(%rip)\n"                                             \
  "  addq $8, %rsp\n"                                                                  \
  "  popq %r9\n  popq %r8\n  popq %rcx\n  popq %rdx\n  popq %rsi\n  popq %rdi\n"       \
  "1: jmp *%r11\n"
#elif defined(__aarch64__)
#define ARLAB_JUMP                                     \
  "  adrp x16, arlab_slot_\\name\n"                    \
  "  ldr x16, [x16, :lo12:arlab_slot_\\name]\n"        \
  "  cbnz x16, 1f\n"                                   \
  "  stp x29, x30, [sp, #-80]!\n"                      \
  "  stp x0, x1, [sp, #16]\n  stp x2, x3, [sp, #32]\n" \
  "  stp x4, x5, [sp, #48]\n  stp x6, x7, [sp, #64]\n" \
  "  adrp x0, arlab_name_\\name\n"                     \
  "  add x0, x0, :lo12:arlab_name_\\name\n"            \
  "  bl arlab_nccl_real_function\n"                    \
  "  mov x16, x0\n"                                    \
  "  adrp x17, arlab_slot_\\name\n"                    \
  "  str x16, [x17, :lo12:arlab_slot_\\name]\n"        \
  "  ldp x0, x1, [sp, #16]\n  ldp x2, x3, [sp, #32]\n" \
  "  ldp x4, x5, [sp, #48]\n  ldp x6, x7, [sp, #64]\n" \
  "  ldp x29, x30, [sp], #80\n"                        \
  "1: br x16\n"
#else
#error "no jump is written for this processor"
#endif

__asm__(
    ".macro arlab_forward name\n"
    "  .pushsection .bss\n"
    "  .balign 8\n"
    "arlab_slot_\\name: .skip 8\n"
    "  .popsection\n"
    "  .pushsection .rodata\n"
    "arlab_name_\\name: .asciz \"\\name\"\n"
    "  .popsection\n"
    "  .pushsection .text\n"
    "  .balign 16\n"
    "  .globl \\name\n"
    "  .type \\name, %function\n"
    "\\name:\n" ARLAB_JUMP
    "  .size \\name, . - \\name\n"
    "  .popsection\n"
    ".endm\n"
    ".irp name, ncclAlltoAll, ncclGather, ncclScatter, ncclPutSignal, ncclSignal, ncclWaitSignal, "
    "ncclCommInitRankScalable, ncclCommShrink, ncclCommGrow, ncclCommGetUniqueId, ncclCommRevoke, "
    "ncclCommSuspend, ncclCommResume, ncclCommMemStats, ncclCommQueryProperties, ncclCommDump, "
    "ncclCommWindowRegister, ncclCommWindowDeregister, ncclWinGetUserPtr, ncclDevCommCreate, "
    "ncclDevCommDestroy, ncclGetLsaDevicePointer, ncclGetLsaMultimemDevicePointer, "
    "ncclGetMultimemDevicePointer, ncclGetPeerDevicePointer, ncclGroupSimulateEnd, "
    "ncclAllReduceConfig, ncclReduceConfig, ncclReduceScatterConfig, ncclAllGatherConfig, "
    "ncclBroadcastConfig, ncclAlltoAllConfig, ncclGatherConfig, ncclScatterConfig, ncclAllToAll, "
    "ncclAllToAllv, ncclResetDebugInit\n"
    "  arlab_forward \\name\n"
    ".endr\n");

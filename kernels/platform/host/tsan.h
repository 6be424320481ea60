// Messages of the emulator to ThreadSanitizer. The emulator itself is never compiled with
// -fsanitize=thread, since it is the scheduler under the threads (ARLAB_EMULATOR_FOR_TSAN is
// defined instead). Only launches, streams, block barriers and the kernel's own atomics order
// anything.
#pragma once

#ifdef ARLAB_EMULATOR_FOR_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace arlab::emulator {

#ifdef ARLAB_EMULATOR_FOR_TSAN
inline constexpr bool kTsan = true;
inline void tsan_acquire(void* address) { __tsan_acquire(address); }
inline void tsan_release(void* address) { __tsan_release(address); }

/// Allocating for the emulator's own books orders no lanes.
class IgnoredByTsan {
 public:
  IgnoredByTsan() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~IgnoredByTsan() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  IgnoredByTsan(const IgnoredByTsan&) = delete;
  IgnoredByTsan& operator=(const IgnoredByTsan&) = delete;
};
#else
inline constexpr bool kTsan = false;
inline void tsan_acquire(void*) {}
inline void tsan_release(void*) {}

class IgnoredByTsan {
 public:
  IgnoredByTsan() {}
};
#endif

}  // namespace arlab::emulator

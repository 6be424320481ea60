// Loops that a compiler turns into vectors, compiled a second time for wider ones.
//
// x86-64 promises vectors of 128 bits only, so that a build which runs everywhere leaves half or more of
// a processor idle. A function marked ARLAB_WIDE is there three times: for all processors, for those with AVX2 and for those
// with AVX-512; the loader takes the one that fits. AVX-512 multiplies integers of 64 bits at once and has masks. Others
// (aarch64) have their widest promised vectors anyway. What such a function calls must be inline to profit. Operations are
// rounded one by one in all of them (no contraction), so the bits are the same.
#pragma once

// Sanitizers instrument the choice, too, which runs before they are ready.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ARLAB_WIDE __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define ARLAB_WIDE
#endif

// Which of Highway's targets the codecs are compiled for. Include before anything of Highway.
#pragma once

// Not AVX-512: no machine that tests this has it, its conversions to bf16 flush subnormals, and with
// at most 256 bits (see lanes-inl.h) it would gain little. Such processors run the code for AVX2.
//
// Every target costs a compilation, under a sanitizer minutes; there, one target for each width of
// vectors sees the same code.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_AVX3 | HWY_SSSE3)
#else
#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_AVX3)
#endif

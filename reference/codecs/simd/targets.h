// Which of Highway's targets the codecs are compiled for. Include before anything of Highway.
#pragma once

// AVX3_DL adds nothing that the codecs use, and every target costs a compilation. Under a sanitizer
// that costs minutes; there, one target for each width of vectors sees the same code.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HWY_DISABLED_TARGETS (HWY_AVX3_DL | HWY_AVX3 | HWY_SSSE3)
#else
#define HWY_DISABLED_TARGETS HWY_AVX3_DL
#endif

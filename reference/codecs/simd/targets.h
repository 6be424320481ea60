// Which of Highway's targets the codecs are compiled for. Include before anything of Highway.
#pragma once

// AVX2; older processors and others than x86 run the scalar codecs. Vectors have at most 256 bits,
// so AVX-512 would add little; no machine that tests this has it, and what was not run is not
// shipped. Every target costs a compilation of all kernels: half a minute, under a sanitizer minutes.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)

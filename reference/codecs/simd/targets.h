// Which of Highway's targets the codecs are compiled for. Include before anything of Highway.
#pragma once

// SSE2, SSE4 and AVX2: one for every x86-64, one for machines without fp16 conversions, one for all
// others. Vectors have at most 256 bits, so AVX-512 would add little; nobody here can run it, and
// what was not run is not shipped. Every target costs a compilation of all kernels.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3 | HWY_AVX3_DL)

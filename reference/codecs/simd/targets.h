// Which of Highway's targets the codecs are compiled for. Include before anything of Highway.
#pragma once

// AVX2, and NEON on aarch64; older processors and others run the scalar codecs. Vectors have at most
// 256 bits, so AVX-512 would add little. A vector of SVE has no size that a compiler knows and can be
// no member and no array's element, which the codecs need; processors with SVE have NEON, too. Every
// target costs a compilation of all kernels: half a minute, under a sanitizer minutes.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

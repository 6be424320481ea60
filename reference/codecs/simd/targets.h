// Targets of Highway that the codecs are compiled for. Include before anything of Highway.
#pragma once

// AVX2, and NEON on aarch64; older processors and others run the scalar codecs. Vectors have at most
// 256 bits, so AVX-512 would add little. A vector of SVE has no size that a compiler knows and can be
// no member and no array's element, which the codecs need; processors with SVE have NEON, too. Every
// target costs a compilation of all kernels: half a minute, under a sanitizer minutes.
//
// The targets that are wanted are named, and all others disabled: Highway gets new ones, and its
// dispatch prefers the newest. lanes-inl.h refuses to compile one that is not wanted.
#if defined(__aarch64__)
// A better target has a lower bit, so these are NEON and its form without AES.
#define HWY_DISABLED_TARGETS (HWY_NEON - 1)
#else
#define HWY_DISABLED_TARGETS (~(HWY_AVX2 | HWY_EMU128 | HWY_SCALAR))
#endif

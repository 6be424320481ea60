// What kernels call on AMD GPUs that hipRTC does not declare by itself. Ahead of time, <hip/hip_runtime.h> has it all.
#pragma once

#if defined(ARLAB_COMPILES_ON_DEMAND)
#if !defined(__HIP_PLATFORM_AMD__)
#define __HIP_PLATFORM_AMD__ 1
#endif
#if !defined(__forceinline__)
#define __forceinline__ inline __attribute__((always_inline))
#endif
#endif

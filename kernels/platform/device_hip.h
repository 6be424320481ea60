// Functions of kernels on AMD GPUs that hipRTC does not declare by itself. Ahead of time, <hip/hip_runtime.h> has them all.
#pragma once

#if defined(ARLAB_COMPILES_ON_DEMAND)
#if !defined(__HIP_PLATFORM_AMD__)
#define __HIP_PLATFORM_AMD__ 1
#endif
#if !defined(__HIP_MEMORY_SCOPE_SYSTEM)
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
#endif
#if !defined(__forceinline__)
#define __forceinline__ inline __attribute__((always_inline))
#endif
#if !__has_builtin(__builtin_amdgcn_logf)  // before clang 17
__device__ __forceinline__ float arlab_amdgcn_log2(float x) {
  float result;
  asm("v_log_f32 %0, %1" : "=v"(result) : "v"(x));
  return result;
}
__device__ __forceinline__ float arlab_amdgcn_exp2(float x) {
  float result;
  asm("v_exp_f32 %0, %1" : "=v"(result) : "v"(x));
  return result;
}
#define __builtin_amdgcn_logf arlab_amdgcn_log2
#define __builtin_amdgcn_exp2f arlab_amdgcn_exp2
#endif
#endif

// Functions of kernels on NVIDIA GPUs, by nvcc and, on demand, by NVRTC, whose package has no header of CUDA: conversions
// and arithmetic of pairs of 16-bit floats are PTX, and so is what kernels ask of the order of launches.
#pragma once

#include "kernels/platform/device_std.h"

#if defined(ARLAB_COMPILES_ON_DEMAND)
#define __HIP_PLATFORM_NVIDIA__ 1
#define __ATOMIC_RELAXED 0
#define __ATOMIC_ACQUIRE 2
#define __ATOMIC_RELEASE 3
#define __ATOMIC_ACQ_REL 4
#define __builtin_fabsf fabsf
#define __builtin_fmaxf fmaxf
#endif

// ---- shuffles without a mask: all lanes of the warp take part

template <class T>
__device__ __forceinline__ T __shfl_xor(T value, int mask, int width) {
  return __shfl_xor_sync(0xFFFFFFFFu, value, mask, width);
}

// ---- scoped atomics: HIP's macros on nvcc's builtins (CUDA 12.8 and later)

#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5

#if defined(__CUDA_ARCH__)
#define ARLAB_CUDA_SCOPE(scope) \
  ((scope) == __HIP_MEMORY_SCOPE_SYSTEM ? __NV_THREAD_SCOPE_SYSTEM : __NV_THREAD_SCOPE_DEVICE)
#define ARLAB_CUDA_ORDER(order)                        \
  ((order) == __ATOMIC_RELAXED   ? __NV_ATOMIC_RELAXED \
   : (order) == __ATOMIC_ACQUIRE ? __NV_ATOMIC_ACQUIRE \
   : (order) == __ATOMIC_RELEASE ? __NV_ATOMIC_RELEASE \
                                 : __NV_ATOMIC_ACQ_REL)
#define __hip_atomic_load(address, order, scope)                                                \
  __nv_atomic_load_n(                                                                           \
      const_cast<std::remove_const_t<std::remove_reference_t<decltype(*(address))>>*>(address), \
      ARLAB_CUDA_ORDER(order), ARLAB_CUDA_SCOPE(scope))
#define __hip_atomic_store(address, value, order, scope) \
  __nv_atomic_store_n((address), (value), ARLAB_CUDA_ORDER(order), ARLAB_CUDA_SCOPE(scope))
#define __hip_atomic_fetch_add(address, value, order, scope) \
  __nv_atomic_fetch_add((address), (value), ARLAB_CUDA_ORDER(order), ARLAB_CUDA_SCOPE(scope))
#define __hip_atomic_fetch_max(address, value, order, scope) \
  __nv_atomic_fetch_max((address), (value), ARLAB_CUDA_ORDER(order), ARLAB_CUDA_SCOPE(scope))
#else  // nvcc's pass for the host: device functions are parsed, never run
#define __hip_atomic_load(address, order, scope) (*(address))
#define __hip_atomic_store(address, value, order, scope) ((void)(*(address) = (value)))
#define __hip_atomic_fetch_add(address, value, order, scope) (*(address))
#define __hip_atomic_fetch_max(address, value, order, scope) ((void)(*(address)))
#endif

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

// ---- launches that may begin while the kernel before them ends: from sm_90 on

__device__ __forceinline__ void pdl_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void pdl_trigger() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- fp16 and bf16: a number in 16 bits, or two of them in a word, whose low half is the first

__device__ __forceinline__ float float_of_half(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ __forceinline__ std::uint16_t half_of_float(float value) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

/// A function of two words, by an instruction.
#define ARLAB_PTX_OF_PAIRS(name, instruction)                                       \
  __device__ __forceinline__ std::uint32_t name(std::uint32_t a, std::uint32_t b) { \
    std::uint32_t result;                                                           \
    asm("{ " instruction " %0, %1, %2; }" : "=r"(result) : "r"(a), "r"(b));         \
    return result;                                                                  \
  }
/// Packs two floats, of which the first becomes the low half.
#define ARLAB_PTX_OF_FLOATS(name, instruction)                                   \
  __device__ __forceinline__ std::uint32_t name(float low, float high) {         \
    std::uint32_t result;                                                        \
    asm("{ " instruction " %0, %1, %2; }" : "=r"(result) : "f"(high), "f"(low)); \
    return result;                                                               \
  }

// With .rn, so that no sum is fused with a product.
ARLAB_PTX_OF_PAIRS(add_half2, "add.rn.f16x2")
ARLAB_PTX_OF_PAIRS(multiply_half2, "mul.rn.f16x2")
ARLAB_PTX_OF_PAIRS(min_half2, "min.NaN.f16x2")
ARLAB_PTX_OF_PAIRS(max_half2, "max.NaN.f16x2")
ARLAB_PTX_OF_PAIRS(min_number_half2, "min.f16x2")
ARLAB_PTX_OF_PAIRS(max_number_half2, "max.f16x2")
ARLAB_PTX_OF_PAIRS(equal_half2, "set.eq.u32.f16x2")
ARLAB_PTX_OF_FLOATS(half2_of_floats, "cvt.rn.f16x2.f32")
ARLAB_PTX_OF_PAIRS(min_bfloat2, "min.NaN.bf16x2")
ARLAB_PTX_OF_PAIRS(max_bfloat2, "max.NaN.bf16x2")
ARLAB_PTX_OF_FLOATS(bfloat2_of_floats, "cvt.rn.bf16x2.f32")

/// a * b + c, rounded once.
__device__ __forceinline__ std::uint32_t fused_multiply_add_half2(std::uint32_t a, std::uint32_t b,
                                                                  std::uint32_t c) {
  std::uint32_t result;
  asm("{ fma.rn.f16x2 %0, %1, %2, %3; }" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}
__device__ __forceinline__ std::uint32_t fused_multiply_add_bfloat2(std::uint32_t a,
                                                                    std::uint32_t b,
                                                                    std::uint32_t c) {
  std::uint32_t result;
  asm("{ fma.rn.bf16x2 %0, %1, %2, %3; }" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
ARLAB_PTX_OF_PAIRS(add_bfloat2, "add.rn.bf16x2")
ARLAB_PTX_OF_PAIRS(multiply_bfloat2, "mul.rn.bf16x2")
ARLAB_PTX_OF_PAIRS(equal_bfloat2, "set.eq.u32.bf16x2")
#else
// 1 * a + b and a * b - 0 are rounded as the sum and the product are.
__device__ __forceinline__ std::uint32_t add_bfloat2(std::uint32_t a, std::uint32_t b) {
  return fused_multiply_add_bfloat2(a, 0x3F803F80u, b);
}
__device__ __forceinline__ std::uint32_t multiply_bfloat2(std::uint32_t a, std::uint32_t b) {
  return fused_multiply_add_bfloat2(a, b, 0x80008000u);
}
__device__ __forceinline__ std::uint32_t equal_bfloat2(std::uint32_t a, std::uint32_t b) {
  const auto low = [](std::uint32_t x) { return __uint_as_float(x << 16); };
  const auto high = [](std::uint32_t x) { return __uint_as_float(x & 0xFFFF0000u); };
  return (low(a) == low(b) ? 0xFFFFu : 0) | (high(a) == high(b) ? 0xFFFF0000u : 0);
}
#endif
#undef ARLAB_PTX_OF_PAIRS
#undef ARLAB_PTX_OF_FLOATS

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// Traits of the platform that kernels are compiled for; everything else is HIP. The device code
// has no other #if per platform, but for the conversions of fp16 in codecs/payload.h, the product
// of bytes in layers/int8_kernels.h, and the sizes of work in runtime/between.cc.
//
//   host   __HIP_PLATFORM_HOST__     g++ or clang++, with host/hip/hip_runtime.h
//   cuda   __HIP_PLATFORM_NVIDIA__   NVRTC (__CUDACC__), with cuda/device.h
//   rocm   __HIP_PLATFORM_AMD__      hipRTC, or clang -x hip (__HIP__), with device_hip.h
//
// The host's code of cuda and rocm is compiled by g++ or clang++, with driver/hip/hip_runtime.h of the platform: these parse
// device code for its types and constants, with device_declarations.h, and run none of it.
//
// Numbers: compiled with -ffp-contract=off (NVRTC: -fmad=false), plain float arithmetic rounds once
// per operation on all three, division included, and keeps subnormals. Half2 operations below round
// once per element and keep subnormals; the sign and payload of a NaN are the platform's.
#pragma once

#include "kernels/platform/device_std.h"

#if !defined(ARLAB_COMPILES_ON_DEMAND)
#include <hip/hip_runtime.h>
#endif

#if defined(__CUDACC__)
#include "kernels/platform/cuda/device.h"
#elif defined(__HIP__)
#include "kernels/platform/device_hip.h"
#elif !defined(__HIP_PLATFORM_HOST__)
#include "kernels/platform/device_declarations.h"
#else
#include "reference/formats/fp8.h"
#include "reference/formats/half.h"
#include "reference/tails/gpu_rsqrt.h"
#endif

#if !defined(ARLAB_PLATFORM)
#error "ARLAB_PLATFORM must be defined as host, cuda or rocm"
#endif

/// A function of kernels, always inlined.
#define ARLAB_DEVICE __device__ __forceinline__
/// A function of kernels that is rare and long, and would stand in the way of the rest: on NVIDIA
/// it is called. AMD's compilers pass what they call by way of scratch memory.
#if defined(__HIP_PLATFORM_NVIDIA__)
#define ARLAB_DEVICE_RARE __device__ __noinline__ inline
#else
#define ARLAB_DEVICE_RARE ARLAB_DEVICE
#endif
/// A function of kernels and of the host.
#define ARLAB_HOST_DEVICE __host__ __device__ __forceinline__

/// Between a lambda's parameters and its body. What clang leaves as a call, it passes by way of
/// scratch memory.
#if defined(__HIP__)
#define ARLAB_INLINED_LAMBDA __attribute__((always_inline))
#else
#define ARLAB_INLINED_LAMBDA
#endif

/// Declares `T name[count]`, shared by the block.
#if defined(__HIP_PLATFORM_HOST__)
// NOLINTBEGIN(bugprone-macro-parentheses): it declares the name
#define ARLAB_SHARED_ARRAY(T, name, count) \
  T(&name)[count] = ::arlab::emulator::shared_array<T, count>([] {})
// NOLINTEND(bugprone-macro-parentheses)
#else
#define ARLAB_SHARED_ARRAY(T, name, count) __shared__ T name[count]
#endif

/// Stands before a kernel's parameter: without it, nvcc copies a struct whose arrays are indexed at
/// run time into local memory.
#if defined(__HIP_PLATFORM_NVIDIA__)
#define ARLAB_KERNEL_PARAMETER const __grid_constant__
#else
#define ARLAB_KERNEL_PARAMETER const
#endif

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Lanes that exchange values are aligned groups of 2, 4, 8, 16 or 32, so that a wave of 32 and
/// one of 64 never make a difference.
inline constexpr int kThreads = 256;

/// How many blocks of the kernels that are tuned most fit on a multiprocessor, by their registers,
/// and how many tiles each works on at once. Of AMD's nothing is measured; arrays of tiles would
/// not stay in registers there.
#if defined(__HIP_PLATFORM_AMD__)
inline constexpr int kFastBlocks = 3;
inline constexpr int kSpikedBlocks = 2;  // for codecs that reserve spikes
inline constexpr int kFastBatch = 1;
inline constexpr bool kHasSentinels =
    false;  // with that little shared memory, a block or two of them would fit
inline constexpr std::size_t kSharedBytes = 64 << 10;  // in a compute unit of CDNA 2 and 3
#else
inline constexpr int kFastBlocks = 4;
inline constexpr int kSpikedBlocks = 4;
inline constexpr int kFastBatch = 4;
inline constexpr bool kHasSentinels = true;
inline constexpr std::size_t kSharedBytes = 227 << 10;  // in a multiprocessor of sm_90
#endif

/// How often a word is looked at before whatever else ends a wait is.
#if defined(__HIP_PLATFORM_HOST__)
inline constexpr int kPollsInARow = 1;  // others run when this one gives way
#else
inline constexpr int kPollsInARow = 32;
#endif

#if defined(__HIP__) || defined(__HIP_PLATFORM_HOST__)
/// The first act of a kernel that launch_pdl() starts: until the kernel before it on the stream has ended.
ARLAB_DEVICE void pdl_wait() {}
/// To be called once the kernel waits for no other rank any more: the next one may take the place
/// of what another rank needs.
ARLAB_DEVICE void pdl_trigger() {}
#endif

/// Reads a kernel's parameter, a word of every 64 bytes, so that it is in the multiprocessor's cache
/// where it is needed. Of use ahead of pdl_wait(): parameters of a launch are in no
/// cache at first.
template <class Parameter>
ARLAB_DEVICE void touch_parameter([[maybe_unused]] const Parameter& parameter) {
#if defined(__CUDA_ARCH__)
  const auto* words = reinterpret_cast<const std::uint32_t*>(&parameter);
#pragma unroll
  for (unsigned i = 0; i < sizeof(Parameter) / 4; i += 16) asm volatile("" ::"r"(words[i]));
#endif
}

/// threadIdx.x, which compilers do not know to be below kThreads.
ARLAB_DEVICE unsigned thread_index() {
  const unsigned index = threadIdx.x;
#if defined(__CUDA_ARCH__) || defined(__HIP__)
  __builtin_assume(index < kThreads);
#endif
  return index;
}

// ---------------------------------------------------------------- 128-bit accesses

/// A pointer that came out of a struct, known to be to global memory: on AMD this makes the
/// difference between global and (slower) flat instructions.
template <class T>
ARLAB_DEVICE T* global_pointer(T* pointer) {
#if defined(__HIP__)
  // By way of an integer: casts between address spaces and back cancel out.
  return (T*)(__attribute__((address_space(1))) T*)reinterpret_cast<std::uintptr_t>(pointer);
#else
  return pointer;
#endif
}

struct alignas(16) Uint4 {
  std::uint32_t word[4];
};

#if defined(__HIP__)
using NativeWords4 = std::uint32_t __attribute__((ext_vector_type(4)));
#endif

/// `address` must be a multiple of 16.
ARLAB_DEVICE Uint4 load_128(const void* address) {
#if defined(__HIP__)
  return __builtin_bit_cast(Uint4, *static_cast<const NativeWords4*>(address));
#else
#if defined(__HIP_PLATFORM_HOST__)
  emulator::require_aligned(address, 16);
#endif
  return *static_cast<const Uint4*>(address);
#endif
}
ARLAB_DEVICE void store_128(void* address, Uint4 words) {
#if defined(__HIP__)
  *static_cast<NativeWords4*>(address) = __builtin_bit_cast(NativeWords4, words);
#else
#if defined(__HIP_PLATFORM_HOST__)
  emulator::require_aligned(address, 16);
#endif
  *static_cast<Uint4*>(address) = words;
#endif
}

/// The same, of data that is used once: it takes less room in caches.
ARLAB_DEVICE Uint4 load_128_once(const void* address) {
#if defined(__HIP__)
  return __builtin_bit_cast(Uint4,
                            __builtin_nontemporal_load(static_cast<const NativeWords4*>(address)));
#elif !defined(__HIP_PLATFORM_HOST__)
  return __builtin_bit_cast(Uint4, __ldcs(static_cast<const uint4*>(address)));
#else
  return load_128(address);
#endif
}
ARLAB_DEVICE void store_128_once(void* address, Uint4 words) {
#if defined(__HIP__)
  __builtin_nontemporal_store(__builtin_bit_cast(NativeWords4, words),
                              static_cast<NativeWords4*>(address));
#elif !defined(__HIP_PLATFORM_HOST__)
  __stcs(static_cast<uint4*>(address), __builtin_bit_cast(uint4, words));
#else
  store_128(address, words);
#endif
}

/// Words that another GPU may store or look at meanwhile: each is seen whole, old or new, in any
/// order. `address` must be a multiple of 16.
ARLAB_DEVICE Uint4 load_relaxed_v4(const void* address) {
  Uint4 words;
#if defined(__CUDA_ARCH__)
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.word[0]), "=r"(words.word[1]), "=r"(words.word[2]), "=r"(words.word[3])
               : "l"(address)
               : "memory");
#else
  for (int i = 0; i < 4; ++i) {
    words.word[i] = __hip_atomic_load(static_cast<const std::uint32_t*>(address) + i,
                                      __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  }
#endif
  return words;
}
ARLAB_DEVICE void store_relaxed_v4(void* address, Uint4 words) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address),
               "r"(words.word[0]), "r"(words.word[1]), "r"(words.word[2]), "r"(words.word[3])
               : "memory");
#elif defined(__gfx942__) || defined(__gfx950__)
  // Written through to the system, as a relaxed atomic store of each word is, but in one instruction. The
  // next one may overwrite the registers, which the hardware lets it do a cycle too early.
  asm volatile("global_store_dwordx4 %0, %1, off sc0 sc1\n\ts_nop 0" ::"v"(address),
               "v"(__builtin_bit_cast(NativeWords4, words))
               : "memory");
#else
  for (int i = 0; i < 4; ++i) {
    __hip_atomic_store(static_cast<std::uint32_t*>(address) + i, words.word[i], __ATOMIC_RELAXED,
                       __HIP_MEMORY_SCOPE_SYSTEM);
  }
#endif
}

// ---------------------------------------------------------------- copies into shared memory
// For kernels of platforms with kHasSentinels only.

/// Starts a copy of 16 bytes from global to shared memory, for this thread only, of the group that
/// its next cp_async_commit() ends.
ARLAB_DEVICE void cp_async_128([[maybe_unused]] Uint4* shared,
                               [[maybe_unused]] const void* global) {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
#elif defined(__HIP_PLATFORM_HOST__)
  emulator::require_aligned(global, 16);
  emulator::start_fetch({shared, global});
#endif
}
ARLAB_DEVICE void cp_async_commit() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(__HIP_PLATFORM_HOST__)
  emulator::cp_async_commit();
#endif
}
/// Until only the last kGroups groups of this thread may be under way.
template <int kGroups>
ARLAB_DEVICE void cp_async_wait() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#elif defined(__HIP_PLATFORM_HOST__)
  emulator::Fetch fetch{};
  while (emulator::next_fetch_to_end(kGroups, fetch)) {
    store_128(fetch.to, load_128(fetch.from));
  }
#endif
}

// ---------------------------------------------------------------- two 16-bit values in a word
// Pairs of fp16 are words whose low half is the first element.

#if defined(__HIP__)
using NativeHalf2 = _Float16 __attribute__((ext_vector_type(2)));
using NativeShort2 = short __attribute__((ext_vector_type(2)));
using NativeUshort2 = unsigned short __attribute__((ext_vector_type(2)));
#define ARLAB_AMD_PAIR(Type, a, operation, b) \
  __builtin_bit_cast(std::uint32_t,           \
                     __builtin_bit_cast(Type, a) operation __builtin_bit_cast(Type, b))
#define ARLAB_AMD_SELECT(Type, function, a, b) \
  __builtin_bit_cast(std::uint32_t,            \
                     function(__builtin_bit_cast(Type, a), __builtin_bit_cast(Type, b)))
#elif defined(__HIP_PLATFORM_HOST__)
template <class Operation>
std::uint32_t for_both(std::uint32_t a, std::uint32_t b, Operation operation) {
  const auto low = static_cast<std::uint16_t>(
      operation(static_cast<std::uint16_t>(a & 0xFFFF), static_cast<std::uint16_t>(b & 0xFFFF)));
  const auto high = static_cast<std::uint16_t>(
      operation(static_cast<std::uint16_t>(a >> 16), static_cast<std::uint16_t>(b >> 16)));
  return low | static_cast<std::uint32_t>(high) << 16;
}
#endif

#if defined(__HIP__)
ARLAB_DEVICE std::uint32_t add_half2(std::uint32_t a, std::uint32_t b) {
  return ARLAB_AMD_PAIR(NativeHalf2, a, +, b);
}
ARLAB_DEVICE std::uint32_t multiply_half2(std::uint32_t a, std::uint32_t b) {
  return ARLAB_AMD_PAIR(NativeHalf2, a, *, b);
}
#elif defined(__HIP_PLATFORM_HOST__)
inline std::uint32_t add_half2(std::uint32_t a, std::uint32_t b) {
  return for_both(a, b, [](std::uint16_t x, std::uint16_t y) {
    return half_from_float(half_to_float(x) + half_to_float(y));
  });
}
inline std::uint32_t multiply_half2(std::uint32_t a, std::uint32_t b) {
  return for_both(a, b, [](std::uint16_t x, std::uint16_t y) {
    return half_from_float(half_to_float(x) * half_to_float(y));
  });
}
#endif

/// The larger, or smaller, as signed or unsigned 16-bit integers.
ARLAB_DEVICE std::uint32_t max_s16x2(std::uint32_t a, [[maybe_unused]] std::uint32_t b) {
#if defined(__HIP__)
  return ARLAB_AMD_SELECT(NativeShort2, __builtin_elementwise_max, a, b);
#elif defined(__CUDA_ARCH__)
  return __vmaxs2(a, b);
#elif !defined(__HIP_PLATFORM_HOST__)
  return a;  // for the host's compiler: parsed, never run
#else
  return for_both(a, b, [](std::uint16_t x, std::uint16_t y) {
    return static_cast<std::int16_t>(x) > static_cast<std::int16_t>(y) ? x : y;
  });
#endif
}
ARLAB_DEVICE std::uint32_t min_s16x2(std::uint32_t a, [[maybe_unused]] std::uint32_t b) {
#if defined(__HIP__)
  return ARLAB_AMD_SELECT(NativeShort2, __builtin_elementwise_min, a, b);
#elif defined(__CUDA_ARCH__)
  return __vmins2(a, b);
#elif !defined(__HIP_PLATFORM_HOST__)
  return a;
#else
  return for_both(a, b, [](std::uint16_t x, std::uint16_t y) {
    return static_cast<std::int16_t>(x) < static_cast<std::int16_t>(y) ? x : y;
  });
#endif
}
ARLAB_DEVICE std::uint32_t max_u16x2(std::uint32_t a, [[maybe_unused]] std::uint32_t b) {
#if defined(__HIP__)
  return ARLAB_AMD_SELECT(NativeUshort2, __builtin_elementwise_max, a, b);
#elif defined(__CUDA_ARCH__)
  return __vmaxu2(a, b);
#elif !defined(__HIP_PLATFORM_HOST__)
  return a;
#else
  return for_both(a, b, [](std::uint16_t x, std::uint16_t y) { return x > y ? x : y; });
#endif
}

/// Bits of a where the mask is 1, of b where it is 0.
ARLAB_DEVICE std::uint32_t select_bits(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  std::uint32_t result;  // nvcc makes two instructions of the expression below
  asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(result) : "r"(mask), "r"(a), "r"(b));
  return result;
#else
  return (a & mask) | (b & ~mask);
#endif
}

/// Both low halves, a's below b's; both high halves.
ARLAB_DEVICE std::uint32_t low_halves(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(a, b, 0x5410);  // nvcc makes two instructions of the expressions below
#else
  return (a & 0xFFFF) | b << 16;
#endif
}
ARLAB_DEVICE std::uint32_t high_halves(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(a, b, 0x7632);
#else
  return a >> 16 | (b & 0xFFFF0000u);
#endif
}

/// Bytes 0 and 2 of a word, each in a half of its own; side by side in the low half.
ARLAB_DEVICE std::uint32_t even_bytes(std::uint32_t word) {
  std::uint32_t bytes = word & 0x00FF00FF;
#if defined(__CUDA_ARCH__)
  asm("" : "+r"(bytes));  // else nvcc goes on to take both apart, with an instruction for each
#endif
  return bytes;
}
ARLAB_DEVICE std::uint32_t even_bytes_adjacent(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(word, 0, 0x4420);
#else
  return (word & 0xFF) | (word >> 8 & 0xFF00);
#endif
}

/// Four bytes of two words: digit i of the selector, from 0 (the lowest byte of a) to 7 (the highest of b), says
/// which is byte i.
ARLAB_DEVICE std::uint32_t permute_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(a, b, selector);
#elif defined(__HIP__)
  return __builtin_amdgcn_perm(b, a,
                               (selector & 0xF) | (selector & 0xF0) << 4 | (selector & 0xF00) << 8 |
                                   (selector & 0xF000) << 12);
#else
  const std::uint64_t bytes = a | static_cast<std::uint64_t>(b) << 32;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<std::uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xFF)
              << (8 * i);
  }
  return result;
#endif
}

/// x inside -65504 .. 65504, which leaves out infinities only. Any result for a NaN.
ARLAB_DEVICE std::uint32_t clamp_finite_half2(std::uint32_t x) {
#if defined(__HIP__)
  const NativeHalf2 most = __builtin_bit_cast(NativeHalf2, 0x7BFF7BFFu);
  const NativeHalf2 least = __builtin_bit_cast(NativeHalf2, 0xFBFFFBFFu);
  return __builtin_bit_cast(
      std::uint32_t,
      __builtin_elementwise_min(
          __builtin_elementwise_max(__builtin_bit_cast(NativeHalf2, x), least), most));
#elif !defined(__HIP_PLATFORM_HOST__)
  return min_number_half2(max_number_half2(x, 0xFBFFFBFFu), 0x7BFF7BFFu);
#else
  return for_both(x, x, [](std::uint16_t h, std::uint16_t) {
    return static_cast<std::uint16_t>((h & 0x7FFF) == 0x7C00 ? h - 1 : h);
  });
#endif
}

/// 1 / x of both, correctly rounded; what overflows, 1 / 0 too, becomes +-65504. Any result for
/// infinities and NaN. The reciprocals of fp16 numbers are so far from rounding boundaries that an
/// fp32 reciprocal within 1 ulp rounds to the same fp16 (a test tries all); GPUs have an instruction
/// for that.
ARLAB_DEVICE std::uint32_t reciprocal_half2(std::uint32_t pair) {
#if defined(__HIP__)
  const NativeHalf2 x = __builtin_bit_cast(NativeHalf2, pair);
  const NativeHalf2 reciprocals = {
      static_cast<_Float16>(__builtin_amdgcn_rcpf(static_cast<float>(x[0]))),
      static_cast<_Float16>(__builtin_amdgcn_rcpf(static_cast<float>(x[1])))};
  return clamp_finite_half2(__builtin_bit_cast(std::uint32_t, reciprocals));
#elif defined(__CUDA_ARCH__)
  const auto reciprocal = [](std::uint32_t half) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;"
        : "=f"(result)
        : "f"(float_of_half(static_cast<std::uint16_t>(half))));
    return result;
  };
  return clamp_finite_half2(half2_of_floats(reciprocal(pair & 0xFFFF), reciprocal(pair >> 16)));
#elif !defined(__HIP_PLATFORM_HOST__)
  return pair;
#else
  return clamp_finite_half2(for_both(pair, pair, [](std::uint16_t x, std::uint16_t) {
    return half_from_float(1.0f / half_to_float(x));
  }));
#endif
}

#if __CUDA_ARCH__ >= 890
#define ARLAB_HAS_E4M3FN 1
/// e4m3fn codes of a pair of fp16, in the low bytes of the halves; saturating at 448.
ARLAB_DEVICE std::uint32_t e4m3fn_of_half2(std::uint32_t pair) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(codes) : "r"(pair));
  return __byte_perm(codes, 0, 0x4140);
}
/// The codes of a pair of bf16 elements.
ARLAB_DEVICE std::uint32_t e4m3fn_of_bfloat2(std::uint32_t pair) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
      : "=h"(codes)
      : "f"(__uint_as_float(pair & 0xFFFF0000u)), "f"(__uint_as_float(pair << 16)));
  return __byte_perm(codes, 0, 0x4140);
}

#define ARLAB_HAS_FP8_CONVERSIONS 1
// Two codes of fp8 in the low half of a word: the nearest, ties to even, saturating; and their values, which are exact.
ARLAB_DEVICE std::uint32_t e4m3fn_of_floats(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}
ARLAB_DEVICE std::uint32_t e5m2_of_floats(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}
ARLAB_DEVICE std::uint32_t half2_of_e4m3fn(std::uint32_t codes) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<std::uint16_t>(codes)));
  return pair;
}
ARLAB_DEVICE std::uint32_t half2_of_e5m2(std::uint32_t codes) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(pair) : "h"(static_cast<std::uint16_t>(codes)));
  return pair;
}
#elif defined(__HIP_PLATFORM_HOST__)
#define ARLAB_HAS_FP8_CONVERSIONS 1
inline std::uint32_t fp8_of_floats(const Minifloat& format, float low, float high) {
  return minifloat_from_float(format, low, Overflow::saturate) |
         minifloat_from_float(format, high, Overflow::saturate) << 8;
}
inline std::uint32_t half2_of_fp8(const Minifloat& format, std::uint32_t codes) {
  return half_from_float(minifloat_to_float(format, codes & 0xFF)) |
         static_cast<std::uint32_t>(half_from_float(minifloat_to_float(format, codes >> 8 & 0xFF)))
             << 16;
}
inline std::uint32_t e4m3fn_of_floats(float low, float high) {
  return fp8_of_floats(kE4m3fn, low, high);
}
inline std::uint32_t e5m2_of_floats(float low, float high) {
  return fp8_of_floats(kE5m2, low, high);
}
inline std::uint32_t half2_of_e4m3fn(std::uint32_t codes) { return half2_of_fp8(kE4m3fn, codes); }
inline std::uint32_t half2_of_e5m2(std::uint32_t codes) { return half2_of_fp8(kE5m2, codes); }
#endif

/// a * b + c of fp32, rounded once.
ARLAB_DEVICE float fused_multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/// Rounded once.
ARLAB_DEVICE float square_root(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

/// 1 / sqrt(x) as an H200 approximates it (reference/tails/gpu_rsqrt.h); other GPUs may have other bits.
ARLAB_DEVICE float approximate_rsqrt(float x) {
#if defined(__HIP__)
  return __builtin_amdgcn_rsqf(x);
#elif defined(__CUDA_ARCH__)
  float result;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#elif defined(__HIP_PLATFORM_HOST__)
  return gpu_rsqrt(x);
#else
  return 1.0f / __builtin_sqrtf(x);  // only declared, never run
#endif
}

/// 1 / x within 1 ulp; infinity for 0. Any result where it, or x, is subnormal.
ARLAB_DEVICE float approximate_reciprocal(float x) {
#if defined(__HIP__)
  return __builtin_amdgcn_rcpf(x);
#elif defined(__CUDA_ARCH__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return 1.0f / x;
#endif
}

/// log2(x) of a positive normal number to 2^-20 of it or of 1; below every number for 0 and subnormal ones.
ARLAB_DEVICE float approximate_log2(float x) {
#if defined(__HIP__)
  return __builtin_amdgcn_logf(x);
#elif defined(__CUDA_ARCH__)
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return __builtin_log2f(x);
#endif
}

/// 2^x, where that is a normal number, to 2^-22 of it.
ARLAB_DEVICE float approximate_exp2(float x) {
#if defined(__HIP__)
  return __builtin_amdgcn_exp2f(x);
#elif defined(__CUDA_ARCH__)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return __builtin_exp2f(x);
#endif
}

/// The smaller, or larger; a NaN where one of them is.
ARLAB_DEVICE float min_or_nan(float a, float b) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a != a || a < b ? a : b;
#endif
}
ARLAB_DEVICE float max_or_nan(float a, float b) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a != a || a > b ? a : b;
#endif
}

/// a * b, rounded, then inside 0 .. 1; 0 for a NaN.
ARLAB_DEVICE float multiply_saturated(float a, float b) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("mul.rn.sat.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#elif defined(__HIP__)
  return __builtin_amdgcn_fmed3f(a * b, 0.0f, 1.0f);  // a NaN is the least
#else
  const float product = a * b;
  return product > 0 ? product < 1 ? product : 1.0f : 0.0f;
#endif
}

// Pairs of fp16, and of bf16, by one instruction where there is one. The smaller, or larger, is a
// NaN where one of them is (of fp16 only with kMinimumsKeepNans); of zeros with both signs it is
// any. equal_*: 0xFFFF where both are equal. *_of_floats: RN; any NaN for a NaN.

#if defined(__HIP__)
inline constexpr bool kMinimumsKeepNans = false;
ARLAB_DEVICE std::uint32_t min_half2(std::uint32_t a, std::uint32_t b) {
  return ARLAB_AMD_SELECT(NativeHalf2, __builtin_elementwise_min, a, b);
}
ARLAB_DEVICE std::uint32_t max_half2(std::uint32_t a, std::uint32_t b) {
  return ARLAB_AMD_SELECT(NativeHalf2, __builtin_elementwise_max, a, b);
}
ARLAB_DEVICE std::uint32_t equal_half2(std::uint32_t a, std::uint32_t b) {
  return __builtin_bit_cast(
      std::uint32_t, __builtin_bit_cast(NativeHalf2, a) == __builtin_bit_cast(NativeHalf2, b));
}
ARLAB_DEVICE std::uint32_t half2_of_floats(float low, float high) {
  const NativeHalf2 pair = {static_cast<_Float16>(low), static_cast<_Float16>(high)};
  return __builtin_bit_cast(std::uint32_t, pair);
}
#elif !defined(__HIP_PLATFORM_HOST__)
inline constexpr bool kMinimumsKeepNans = true;
#else
inline constexpr bool kMinimumsKeepNans = true;
inline std::uint32_t min_half2(std::uint32_t a, std::uint32_t b) {
  return for_both(a, b, [](std::uint16_t x, std::uint16_t y) {
    const bool x_is_nan = (x & 0x7FFF) > 0x7C00;
    return x_is_nan || half_to_float(x) < half_to_float(y) ? x : y;
  });
}
inline std::uint32_t max_half2(std::uint32_t a, std::uint32_t b) {
  return for_both(a, b, [](std::uint16_t x, std::uint16_t y) {
    const bool x_is_nan = (x & 0x7FFF) > 0x7C00;
    return x_is_nan || half_to_float(x) > half_to_float(y) ? x : y;
  });
}
inline std::uint32_t equal_half2(std::uint32_t a, std::uint32_t b) {
  return for_both(a, b, [](std::uint16_t x, std::uint16_t y) {
    return half_to_float(x) == half_to_float(y) ? 0xFFFF : 0;
  });
}
inline std::uint32_t half2_of_floats(float low, float high) {
  return half_from_float(low) | static_cast<std::uint32_t>(half_from_float(high)) << 16;
}
#endif

// Sums and products of pairs of bf16 where there are instructions for them, and on the emulator. One
// rounding gives the bits of the definition, an fp32 operation that is rounded once more: 24 bits are
// more than twice 8 and 2, and what is subnormal is exact in fp32 (a test on the GPU tries all pairs).
// Any NaN for a NaN.
#if defined(__HIP__)
inline constexpr bool kHasBfloat2Arithmetic = false;
#else
inline constexpr bool kHasBfloat2Arithmetic = true;
#endif

#if defined(__HIP__) || defined(__HIP_PLATFORM_HOST__)
/// operation(x, y) of the values of both halves: 16 bits.
template <class Operation>
ARLAB_DEVICE std::uint32_t for_both_bfloats(std::uint32_t a, std::uint32_t b, Operation operation) {
  const auto value = [](std::uint32_t bits)
                         ARLAB_INLINED_LAMBDA { return __builtin_bit_cast(float, bits); };
  return operation(value(a << 16), value(b << 16)) |
         operation(value(a & 0xFFFF0000u), value(b & 0xFFFF0000u)) << 16;
}
ARLAB_DEVICE std::uint32_t min_bfloat2(std::uint32_t a, std::uint32_t b) {
  return for_both_bfloats(a, b, [](float x, float y) ARLAB_INLINED_LAMBDA {
    return __builtin_bit_cast(std::uint32_t, x != x || x < y ? x : y) >> 16;
  });
}
ARLAB_DEVICE std::uint32_t max_bfloat2(std::uint32_t a, std::uint32_t b) {
  return for_both_bfloats(a, b, [](float x, float y) ARLAB_INLINED_LAMBDA {
    return __builtin_bit_cast(std::uint32_t, x != x || x > y ? x : y) >> 16;
  });
}
ARLAB_DEVICE std::uint32_t equal_bfloat2(std::uint32_t a, std::uint32_t b) {
  return for_both_bfloats(
      a, b, [](float x, float y) ARLAB_INLINED_LAMBDA { return x == y ? 0xFFFFu : 0u; });
}
ARLAB_DEVICE std::uint32_t bfloat2_of_floats(float low, float high) {
  const auto round = [](float x) ARLAB_INLINED_LAMBDA {
    const auto bits = __builtin_bit_cast(std::uint32_t, x);
    return x == x ? (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 : 0x7FC0;
  };
  return round(low) | round(high) << 16;
}
ARLAB_DEVICE std::uint32_t add_bfloat2(std::uint32_t a, std::uint32_t b) {
  return for_both_bfloats(
      a, b, [](float x, float y) ARLAB_INLINED_LAMBDA { return bfloat2_of_floats(x + y, 0); });
}
ARLAB_DEVICE std::uint32_t multiply_bfloat2(std::uint32_t a, std::uint32_t b) {
  return for_both_bfloats(
      a, b, [](float x, float y) ARLAB_INLINED_LAMBDA { return bfloat2_of_floats(x * y, 0); });
}
/// a * b + c, rounded once: to fp32 first, to odd where that is not exact, so that the second rounding
/// sees on which side of a tie it is.
ARLAB_DEVICE std::uint32_t fused_multiply_add_bfloat2(std::uint32_t a, std::uint32_t b,
                                                      std::uint32_t c) {
  const auto of = [](std::uint32_t x, std::uint32_t y, std::uint32_t z) ARLAB_INLINED_LAMBDA {
    const double product =
        static_cast<double>(__builtin_bit_cast(float, x)) * __builtin_bit_cast(float, y);
    const double term = __builtin_bit_cast(float, z);
    const double sum = product + term;
    const double part = sum - product;
    const double lost = (product - (sum - part)) + (term - part);
    const auto rounded = static_cast<float>(sum);
    const double rest = (sum - rounded) + lost;
    auto bits = __builtin_bit_cast(std::uint32_t, rounded);
    if ((rest > 0 || rest < 0) && (bits & 1) == 0) bits += (rest > 0) == (rounded > 0) ? 1u : ~0u;
    return __builtin_bit_cast(float, bits);
  };
  return bfloat2_of_floats(of(a << 16, b << 16, c << 16),
                           of(a & 0xFFFF0000u, b & 0xFFFF0000u, c & 0xFFFF0000u));
}
#endif

/// 1 / x of both, correctly rounded; infinity of its sign for 0. Any result where it, or x, is
/// subnormal or no number. As of fp16, an fp32 reciprocal within 1 ulp rounds to the same (a test tries
/// all).
ARLAB_DEVICE std::uint32_t reciprocal_bfloat2(std::uint32_t pair) {
  const auto of = [](std::uint32_t bits) ARLAB_INLINED_LAMBDA {
    return approximate_reciprocal(__builtin_bit_cast(float, bits));
  };
  return bfloat2_of_floats(of(pair << 16), of(pair & 0xFFFF0000u));
}

/// The same pair in fp16; exact where it is a number that fp16 has.
ARLAB_DEVICE std::uint32_t half2_of_bfloat2(std::uint32_t pair) {
  return half2_of_floats(__builtin_bit_cast(float, pair << 16),
                         __builtin_bit_cast(float, pair & 0xFFFF0000u));
}

/// True when a half of any of four words is a bf16 infinity or NaN.
ARLAB_DEVICE bool any_non_finite_bfloats(const std::uint32_t (&word)[4]) {
#if defined(__CUDA_ARCH__)
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum = fused_multiply_add_bfloat2(word[i], 0, sum);
  return equal_bfloat2(sum, sum) != 0xFFFFFFFFu;
#else
  std::uint32_t carries = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) carries |= (word[i] & 0x7F807F80u) + 0x00800080u;
  return (carries & 0x80008000u) != 0;
#endif
}

/// True when a half of any of four words is an fp16 infinity or NaN.
ARLAB_DEVICE bool any_non_finite_halves(const std::uint32_t (&word)[4]) {
#if defined(__CUDA_ARCH__)
  // Zero times each, added up: the pipe for this is less busy than that for integers.
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum = fused_multiply_add_half2(word[i], 0, sum);
  return equal_half2(sum, sum) != 0xFFFFFFFFu;
#else
  // Adding the least exponent to the largest carries into the place of the sign.
  std::uint32_t carries = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) carries |= (word[i] & 0x7C007C00u) + 0x04000400u;
  return (carries & 0x80008000u) != 0;
#endif
}

// ---------------------------------------------------------------- lanes

/// Lanes of a wave, at most.
#if defined(__CUDA_ARCH__)
inline constexpr unsigned kMostLanes = 32;
#else
inline constexpr unsigned kMostLanes = 64;
#endif
// All lanes of the wave must take part.

/// The value of the lane whose number differs by `mask`, inside aligned groups of `width` lanes.
/// An exchange inside 4 lanes, or the mirror image of 8 (mask 7), costs one instruction on AMD.
template <int Mask, int Width>
ARLAB_DEVICE std::uint32_t shuffle_xor(std::uint32_t value) {
  static_assert(Width >= 2 && Width <= 32 && Mask < Width);
#if defined(__HIP__)
  constexpr int kControl = Mask == 1   ? 0xB1   // quad_perm 1 0 3 2
                           : Mask == 2 ? 0x4E   // quad_perm 2 3 0 1
                           : Mask == 3 ? 0x1B   // quad_perm 3 2 1 0
                           : Mask == 7 ? 0x141  // row_half_mirror
                                       : 0;
  if constexpr (kControl != 0) {
    return static_cast<std::uint32_t>(
        __builtin_amdgcn_update_dpp(0, static_cast<int>(value), kControl, 0xF, 0xF, true));
  }
#endif
  return static_cast<std::uint32_t>(__shfl_xor(static_cast<int>(value), Mask, Width));
}
ARLAB_DEVICE std::uint32_t shuffle_xor(std::uint32_t value, int mask, int width) {
  return static_cast<std::uint32_t>(__shfl_xor(static_cast<int>(value), mask, width));
}
ARLAB_DEVICE float shuffle_xor(float value, int mask, int width) {
  return __shfl_xor(value, mask, width);
}

/// Whether it is so for one lane of the wave.
ARLAB_DEVICE bool any_of_wave(bool value) {
#if defined(__HIP__)
  return __any(value);
#elif defined(__CUDA_ARCH__)
  return __any_sync(0xFFFFFFFFu, value);
#elif defined(__HIP_PLATFORM_HOST__)
  std::uint32_t any = value ? 1 : 0;
  for (int mask = 1; mask < emulator::wave_size(); mask *= 2) {
    any |= shuffle_xor(any, mask, emulator::wave_size());
  }
  return any != 0;
#else
  return value;
#endif
}

// ---------------------------------------------------------------- flags between GPUs
// System scope: seen by every GPU and by the host. Bytes, words or pairs of words.

template <class Flag>
ARLAB_DEVICE Flag load_relaxed(const Flag* flag) {
  return __hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class Flag>
ARLAB_DEVICE Flag load_acquire(const Flag* flag) {
  return __hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class Flag>
ARLAB_DEVICE void store_relaxed(Flag* flag, std::type_identity_t<Flag> value) {
  __hip_atomic_store(flag, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
/// Everything that this thread, and threads it was ordered after, stored is seen by who reads the
/// flag with load_acquire.
template <class Flag>
ARLAB_DEVICE void store_release(Flag* flag, std::type_identity_t<Flag> value) {
#if defined(__HIP__)
  // Not one release store: clang 19 to 22 leave out the s_waitcnt between the write-back of the L2
  // cache and the store when they know of no access in flight (llvm-project #178316). The ISA test
  // guards it.
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
  store_relaxed(flag, value);
#else
  __hip_atomic_store(flag, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
#endif
}

/// Loads a flag that a thread polls: after_polling() orders what it has seen last. On AMD every
/// load that acquires empties caches, so there only that one does; elsewhere it would only be
/// another wait for memory.
template <class Flag>
ARLAB_DEVICE Flag load_polled(const Flag* flag) {
#if defined(__CUDA_ARCH__)
  return load_acquire(flag);
#else
  return load_relaxed(flag);
#endif
}
template <class Flag>
ARLAB_DEVICE void after_polling([[maybe_unused]] const Flag* flag) {
#if !defined(__CUDA_ARCH__)
  (void)load_acquire(flag);
#endif
}

/// To be called by every thread that stored to a peer, before the block barrier ahead of the flag:
/// on AMD that barrier does not wait for the stores of the block's other waves.
ARLAB_DEVICE void finish_stores() {
#if defined(__HIP__)
  asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
#endif
}

/// Gives way while a flag is polled.
ARLAB_DEVICE void pause() {
#if defined(__HIP__)
  __builtin_amdgcn_s_sleep(1);
#elif defined(__CUDA_ARCH__)
  __nanosleep(20);
#elif defined(__HIP_PLATFORM_HOST__)
  emulator::give_way();
#endif
}

/// Nanoseconds of a clock that runs steadily; only differences mean something.
ARLAB_DEVICE std::uint64_t clock_nanoseconds() {
#if defined(__HIP__)
  return __builtin_amdgcn_s_memrealtime() * 10;  // 100 MHz on CDNA 2 and 3
#elif defined(__CUDA_ARCH__)
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#elif defined(__HIP_PLATFORM_HOST__)
  return emulator::clock_nanoseconds();
#else
  return 0;
#endif
}

/// *address += value, from any block of the device; the value before.
ARLAB_DEVICE std::uint32_t atomic_add(std::uint32_t* address, std::uint32_t value) {
  return __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
/// Likewise. Whoever adds sees what those who added before have stored until then.
ARLAB_DEVICE std::uint32_t atomic_add_in_order(std::uint32_t* address, std::uint32_t value) {
  return __hip_atomic_fetch_add(address, value, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
/// *address = max(*address, value), from any block of the device; the order does not matter.
ARLAB_DEVICE void atomic_max(std::uint32_t* address, std::uint32_t value) {
  __hip_atomic_fetch_max(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

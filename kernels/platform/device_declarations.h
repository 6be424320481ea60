// Functions of device code on GPUs, declared for the host's compiler, which parses that code for its types and compiles none
// of it: nothing here is defined. Names are those of NVIDIA's, for AMD's as well.
#pragma once

#include <cstdint>

struct uint4 {
  unsigned x, y, z, w;
};
template <class T>
T __shfl_xor(T value, int mask, int width);
template <class T>
T __ldcs(const T* address);
template <class T>
void __stcs(T* address, T value);
int __dp4a(int a, int b, int sum);

#define __HIP_MEMORY_SCOPE_AGENT 4
#define __HIP_MEMORY_SCOPE_SYSTEM 5
#define __hip_atomic_load(address, order, scope) (*(address))
#define __hip_atomic_store(address, value, order, scope) ((void)(*(address) = (value)))
#define __hip_atomic_fetch_add(address, value, order, scope) (*(address) + (value))
#define __hip_atomic_fetch_max(address, value, order, scope) (*(address) = (value))

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

void pdl_wait();
void pdl_trigger();

float float_of_half(std::uint16_t bits);
std::uint16_t half_of_float(float value);

#define ARLAB_DECLARED(name) std::uint32_t name(std::uint32_t a, std::uint32_t b);
ARLAB_DECLARED(add_half2)
ARLAB_DECLARED(multiply_half2)
ARLAB_DECLARED(min_half2)
ARLAB_DECLARED(max_half2)
ARLAB_DECLARED(min_number_half2)
ARLAB_DECLARED(max_number_half2)
ARLAB_DECLARED(equal_half2)
ARLAB_DECLARED(add_bfloat2)
ARLAB_DECLARED(multiply_bfloat2)
ARLAB_DECLARED(min_bfloat2)
ARLAB_DECLARED(max_bfloat2)
ARLAB_DECLARED(equal_bfloat2)
#undef ARLAB_DECLARED
std::uint32_t half2_of_floats(float low, float high);
std::uint32_t bfloat2_of_floats(float low, float high);
std::uint32_t fused_multiply_add_half2(std::uint32_t a, std::uint32_t b, std::uint32_t c);
std::uint32_t fused_multiply_add_bfloat2(std::uint32_t a, std::uint32_t b, std::uint32_t c);

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

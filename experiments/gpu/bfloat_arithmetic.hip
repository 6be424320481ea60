// Do a GPU's instructions for pairs of bf16 give the bits of the definition, an fp32 operation that is
// rounded to bf16? All 2^32 pairs of operands for sums and products, subnormal numbers, infinities
// and NaNs among them, and all 2^16 numbers for what takes one. Any NaN is as good as another.
// And are its logarithm and its power of two as near those of the specification as kernels/codecs/logfmt.h
// takes them to be, and by half of that? All fp32 numbers for which it asks.
//
//   nvcc -x cu -O3 -std=c++20 -arch=sm_90 -fmad=false --expt-relaxed-constexpr -diag-suppress 2810 \
//       -DARLAB_PLATFORM=cuda -DFMT_CONSTEVAL= -DFMT_USE_CONSTEXPR=1 -DFMT_HEADER_ONLY -I. \
//       -Ikernels/platform/cuda experiments/gpu/bfloat_arithmetic.hip -o bfloat_arithmetic
//   ./bfloat_arithmetic > bfloat_arithmetic.csv
//
// Prints CSV, a row per operation: how many results were compared, how many differ, and the operands of
// the last of them. Exit code 1 where some do.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "kernels/codecs/payload.h"
#include "reference/formats/portable_log.h"

namespace {

using namespace arlab::kernels;

constexpr unsigned kNumbers = 65536;
constexpr unsigned kBlockThreads = 256;

enum class Operation { add, multiply, reciprocal, to_half, log2, exp2 };

struct Differences {
  unsigned long long count;
  std::uint32_t operands;
};

ARLAB_DEVICE bool is_nan(std::uint32_t bits) { return (bits & 0x7FFF) > 0x7F80; }
ARLAB_DEVICE bool same(std::uint32_t a, std::uint32_t b) {
  return a == b || (is_nan(a) && is_nan(b));
}

/// Compares with the exact result for an fp32 number.
ARLAB_DEVICE bool is_near(Operation operation, float x) {
  if (operation == Operation::log2) {
    if (!(x >= 0x1p-126f && is_finite(x))) return true;
    const float expected = arlab::log2_fp32(x);
    return magnitude_of(approximate_log2(x) - expected) <= (magnitude_of(expected) + 4) * 0x1p-22f;
  }
  if (!(x > -121 && x < 127)) return true;
  const float expected = arlab::exp2_fp32(x);
  return magnitude_of(approximate_exp2(x) - expected) <= expected * 0x1p-21f;
}

/// The first operand in both halves of a pair, so that the two instructions' lanes are both tried.
__global__ void __launch_bounds__(kBlockThreads)
    try_pairs(Operation operation, Differences* differences) {
  const std::uint32_t a = blockIdx.x;
  for (std::uint32_t b = threadIdx.x; b < kNumbers; b += kBlockThreads) {
    const std::uint32_t x = a | b << 16;
    if (operation == Operation::log2 || operation == Operation::exp2) {
      if (is_near(operation, float_of(x))) continue;
      atomicAdd(&differences->count, 1ULL);
      differences->operands = x;
      continue;
    }
    const std::uint32_t y = b | a << 16;
    const float f = Bf16::to_float(a);
    const float g = Bf16::to_float(b);
    const bool adds = operation == Operation::add;
    const std::uint32_t got = adds ? add_bfloat2(x, y) : multiply_bfloat2(x, y);
    const std::uint32_t expected = Bf16::from_float(adds ? f + g : f * g);
    if (same(got & 0xFFFF, expected) && same(got >> 16, expected)) continue;
    atomicAdd(&differences->count, 1ULL);
    differences->operands = x;
  }
}

/// One operand. Reciprocals: of 0, and of numbers whose reciprocal is normal, as they are.
__global__ void __launch_bounds__(kBlockThreads)
    try_numbers(Operation operation, Differences* differences) {
  const std::uint32_t x = blockIdx.x * kBlockThreads + threadIdx.x;
  const float value = Bf16::to_float(x);
  const float magnitude = magnitude_of(value);
  bool right = true;
  if (operation == Operation::reciprocal) {
    const bool normal = magnitude >= 0x1p-126f && magnitude < 0x1p126f;
    const std::uint32_t expected =
        magnitude == 0 ? Bf16::kInfinity | (x & 0x8000) : Bf16::from_float(1.0f / value);
    right = (!normal && magnitude != 0) ||
            reciprocal_bfloat2(x | x << 16) == (expected | expected << 16);
  } else {
    const std::uint32_t half = Fp16::from_float(value);
    const std::uint32_t got = half2_of_bfloat2(x | x << 16);
    right = is_nan(x) || got == (half | half << 16);
  }
  if (right) return;
  atomicAdd(&differences->count, 1ULL);
  differences->operands = x;
}

void check(hipError_t error, const char* what) {
  if (error == hipSuccess) return;
  std::fprintf(stderr, "bfloat_arithmetic: %s failed with error %d\n", what,
               static_cast<int>(error));
  std::exit(2);
}

}  // namespace

int main() {
  struct Row {
    const char* name;
    Operation operation;
    bool pairs;
  };
  constexpr Row kRows[] = {{"add", Operation::add, true},
                           {"multiply", Operation::multiply, true},
                           {"reciprocal", Operation::reciprocal, false},
                           {"to_half", Operation::to_half, false},
                           {"log2", Operation::log2, true},
                           {"exp2", Operation::exp2, true}};
  Differences* differences = nullptr;
  check(hipMalloc(reinterpret_cast<void**>(&differences), sizeof(Differences)), "hipMalloc");
  std::printf("operation,compared,differ,operands\n");
  bool all_right = true;
  for (const Row& row : kRows) {
    check(hipMemset(differences, 0, sizeof(Differences)), "hipMemset");
    if (row.pairs) {
      try_pairs<<<kNumbers, kBlockThreads>>>(row.operation, differences);
    } else {
      try_numbers<<<kNumbers / kBlockThreads, kBlockThreads>>>(row.operation, differences);
    }
    Differences found{};
    check(hipMemcpy(&found, differences, sizeof(found), hipMemcpyDeviceToHost), row.name);
    std::printf("%s,%llu,%llu,%08x\n", row.name,
                row.pairs ? 2ULL * kNumbers * kNumbers : 0ULL + kNumbers, found.count,
                found.operands);
    all_right = all_right && found.count == 0;
  }
  return all_right ? 0 : 1;
}

#include "reference/collectives/accumulate.h"

#include "reference/formats/payload_arithmetic.h"

namespace arlab {
namespace {

/// fp16 as QuickReduce adds it, with the hardware's overflow clamp.
struct ClampedFp16 : Fp16Arithmetic {
  static constexpr Bits from_float(float value) { return from_float_clamped(value); }
};

template <class Bits>
std::span<const Bits> as(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const Bits*>(bytes.data()), bytes.size() / sizeof(Bits)};
}
template <class Bits>
std::span<Bits> as(std::span<std::byte> bytes) {
  return {reinterpret_cast<Bits*>(bytes.data()), bytes.size() / sizeof(Bits)};
}

/// Calls f with the arithmetic of the dtype.
template <class F>
void with_arithmetic(DType dtype, bool clamp, F&& f) {
  switch (dtype) {
    case DType::fp16:
      return clamp ? f(ClampedFp16{}) : f(Fp16Arithmetic{});
    case DType::bf16:
      return f(Bf16Arithmetic{});
    case DType::fp32:
      return f(Fp32Arithmetic{});
  }
}

}  // namespace

void add_native(DType dtype, bool clamp, std::span<std::byte> sum,
                std::span<const std::byte> addend) {
  if (sum.size() != addend.size()) fail("add: {} and {} bytes", sum.size(), addend.size());
  with_arithmetic(dtype, clamp, [&]<class Arithmetic>(Arithmetic) {
    const auto s = as<typename Arithmetic::Bits>(sum);
    const auto a = as<typename Arithmetic::Bits>(addend);
    for (std::size_t i = 0; i < s.size(); ++i) {
      s[i] = Arithmetic::from_float(Arithmetic::to_float(s[i]) + Arithmetic::to_float(a[i]));
    }
  });
}

void add_fp32(DType dtype, std::span<float> sum, std::span<const std::byte> addend) {
  if (sum.size() * size_of(dtype) != addend.size()) {
    fail("add: {} sums and {} bytes of {}", sum.size(), addend.size(), name_of(dtype));
  }
  with_arithmetic(dtype, false, [&]<class Arithmetic>(Arithmetic) {
    const auto a = as<typename Arithmetic::Bits>(addend);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] = Fp32Arithmetic::from_float(sum[i] + Arithmetic::to_float(a[i]));
    }
  });
}

void round_sum(DType dtype, bool clamp, std::span<const float> sum, std::span<std::byte> out) {
  if (sum.size() * size_of(dtype) != out.size()) {
    fail("round: {} sums and {} bytes of {}", sum.size(), out.size(), name_of(dtype));
  }
  with_arithmetic(dtype, clamp, [&]<class Arithmetic>(Arithmetic) {
    const auto o = as<typename Arithmetic::Bits>(out);
    for (std::size_t i = 0; i < sum.size(); ++i) o[i] = Arithmetic::from_float(sum[i]);
  });
}

}  // namespace arlab

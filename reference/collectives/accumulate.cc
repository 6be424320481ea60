#include "reference/collectives/accumulate.h"

#include "reference/codecs/simd/halves.h"
#include "reference/formats/with_arithmetic.h"

namespace arlab {

void add_fp32(DType dtype, std::span<float> sum, std::span<const std::byte> addend) {
  if (sum.size() * size_of(dtype) != addend.size()) {
    fail("add: {} sums and {} bytes of {}", sum.size(), addend.size(), name_of(dtype));
  }
  if (dtype == DType::fp16) return add_halves(sum, elements_of<std::uint16_t>(addend));
  with_arithmetic(dtype, false, [&]<class Arithmetic>(Arithmetic) {
    const auto a = elements_of<typename Arithmetic::Bits>(addend);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] = Fp32Arithmetic::from_float(sum[i] + Arithmetic::to_float(a[i]));
    }
  });
}

void round_sum(DType dtype, bool clamp, std::span<const float> sum, std::span<std::byte> out) {
  if (sum.size() * size_of(dtype) != out.size()) {
    fail("round: {} sums and {} bytes of {}", sum.size(), out.size(), name_of(dtype));
  }
  if (dtype == DType::fp16) {
    return halves_of_floats(sum, clamp, elements_of<std::uint16_t>(out).data());
  }
  with_arithmetic(dtype, clamp, [&]<class Arithmetic>(Arithmetic) {
    const auto o = elements_of<typename Arithmetic::Bits>(out);
    for (std::size_t i = 0; i < sum.size(); ++i) o[i] = Arithmetic::from_float(sum[i]);
  });
}

}  // namespace arlab

#include "reference/codecs/native_sum.h"

#include "reference/codecs/simd/halves.h"
#include "reference/formats/with_arithmetic.h"
#include "reference/wide.h"

namespace arlab {
namespace {

template <class Arithmetic>
inline void add(std::span<std::byte> sum, std::span<const std::byte> addend) {
  using Bits = typename Arithmetic::Bits;
  Bits* const s = elements_of<Bits>(sum).data();
  const Bits* const a = elements_of<Bits>(addend).data();
  for (std::size_t i = 0; i < sum.size() / sizeof(Bits); ++i) {
    s[i] = Arithmetic::from_float(Arithmetic::to_float(s[i]) + Arithmetic::to_float(a[i]));
  }
}

ARLAB_WIDE void add_any(DType dtype, bool clamp, std::span<std::byte> sum,
                        std::span<const std::byte> addend) {
  switch (dtype) {
    case DType::fp16:
      return add_halves(elements_of<std::uint16_t>(sum), elements_of<std::uint16_t>(addend), clamp);
    case DType::bf16:
      return add<Bf16Arithmetic>(sum, addend);
    case DType::fp32:
      return add<Fp32Arithmetic>(sum, addend);
  }
}

}  // namespace

void add_native(DType dtype, bool clamp, std::span<std::byte> sum,
                std::span<const std::byte> addend) {
  if (sum.size() != addend.size()) fail("add: {} and {} bytes", sum.size(), addend.size());
  add_any(dtype, clamp, sum, addend);
}

}  // namespace arlab

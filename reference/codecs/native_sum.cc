#include "reference/codecs/native_sum.h"

#include "reference/formats/with_arithmetic.h"

namespace arlab {

void add_native(DType dtype, bool clamp, std::span<std::byte> sum,
                std::span<const std::byte> addend) {
  if (sum.size() != addend.size()) fail("add: {} and {} bytes", sum.size(), addend.size());
  with_arithmetic(dtype, clamp, [&]<class Arithmetic>(Arithmetic) {
    const auto s = elements_of<typename Arithmetic::Bits>(sum);
    const auto a = elements_of<typename Arithmetic::Bits>(addend);
    for (std::size_t i = 0; i < s.size(); ++i) {
      s[i] = Arithmetic::from_float(Arithmetic::to_float(s[i]) + Arithmetic::to_float(a[i]));
    }
  });
}

}  // namespace arlab

#include "reference/collectives/accumulate.h"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

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

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class Bits, class Float>
bool is_odd(Float value) {
  return (std::bit_cast<Bits>(value) & 1) != 0;
}

/// The double next to the sum whose last bit is odd, if no double is the sum: it rounds to fewer bits
/// as the sum does. Parts overlap in no bit, and grow.
double rounded_to_odd(std::span<const double> parts) {
  double sum = 0;
  for (std::size_t left = parts.size(); left > 0; --left) {
    const double more = sum + parts[left - 1];
    const double rest = parts[left - 1] - (more - sum);
    sum = more;
    if (rest == 0) continue;
    return is_odd<std::uint64_t>(sum) ? sum : std::nextafter(sum, std::copysign(kInfinity, rest));
  }
  return sum;
}

}  // namespace

void ExactSums::add(std::span<const float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) numbers_[i].add(values[i]);
}

void ExactSums::Number::add(float value) {
  is_negative_zero &= value == 0 && std::signbit(value);
  if (!std::isfinite(value)) special += value;
  if (!std::isfinite(value)) return;
  double sum = value;
  std::size_t kept = 0;
  for (double part : parts) {
    if (std::abs(part) > std::abs(sum)) std::swap(part, sum);
    const double more = sum + part;
    const double rest = part - (more - sum);
    if (rest != 0) parts[kept++] = rest;
    sum = more;
  }
  parts.resize(kept);
  if (sum != 0) parts.push_back(sum);
}

float ExactSums::Number::rounded(bool to_odd) const {
  if (special != 0) return Fp32Arithmetic::from_float(special);
  if (parts.empty()) return is_negative_zero ? -0.0F : 0.0F;
  const double sum = rounded_to_odd(parts);
  const auto nearest = static_cast<float>(sum);
  if (!to_odd || double{nearest} == sum || is_odd<std::uint32_t>(nearest)) return nearest;
  return std::nextafter(nearest,
                        static_cast<float>(double{nearest} < sum ? kInfinity : -kInfinity));
}

void ExactSums::round(std::span<float> out, bool to_odd) const {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = numbers_[i].rounded(to_odd);
}

}  // namespace arlab

// Blocks of edge cases: what codecs and reductions get wrong.
#include <array>
#include <bit>
#include <utility>

#include "reference/formats/bfloat16.h"
#include "reference/formats/half.h"
#include "reference/tensors/counter_random.h"
#include "reference/tensors/distributions.h"
#include "reference/tensors/portable_math.h"

namespace arlab {

namespace {

constexpr std::size_t kBlock = 64;  // elements; two interleaved blocks of QuickReduce

/// Sign, exponent field and mantissa field of a dtype.
struct Layout {
  DType dtype;
  std::uint32_t exponent_bits;
  std::uint32_t mantissa_bits;

  std::uint32_t infinite_exponent() const { return (1u << exponent_bits) - 1; }
  std::uint32_t exponent_of_one() const { return infinite_exponent() / 2; }
  std::uint32_t mantissa_mask() const { return (1u << mantissa_bits) - 1; }

  std::uint32_t pattern(std::uint32_t sign, std::uint32_t exponent, std::uint32_t mantissa) const {
    return (((sign << exponent_bits) | exponent) << mantissa_bits) | (mantissa & mantissa_mask());
  }

  std::uint32_t rounded(double value) const {
    const auto narrow = static_cast<float>(value);
    switch (dtype) {
      case DType::fp16:
        return half_from_float(narrow);
      case DType::bf16:
        return bfloat16_from_float(narrow);
      case DType::fp32:
        return std::bit_cast<std::uint32_t>(narrow);
    }
    return 0;
  }
};

Layout layout_of(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return {dtype, 5, 10};
    case DType::bf16:
      return {dtype, 8, 7};
    case DType::fp32:
      return {dtype, 8, 23};
  }
  return {dtype, 8, 23};
}

/// Independent random fields of one 64-bit word, taken from its low bits up.
class Bits {
 public:
  explicit Bits(std::uint64_t word) : word_(word) {}

  std::uint32_t take(std::uint32_t count) {
    const auto bits = static_cast<std::uint32_t>(word_ & ((std::uint64_t{1} << count) - 1));
    word_ >>= count;
    return bits;
  }

 private:
  std::uint64_t word_;
};

/// One element of a block, and the random words that it is made from.
struct Element {
  const Layout& layout;
  std::uint64_t block;   // the same for all elements of the block
  std::uint64_t own;     // this element's own
  std::size_t position;  // in the block
};

/// Makes the bit pattern of an element.
using Kind = std::uint32_t (*)(const Element& element);

std::uint32_t ordinary(const Element& element) {
  return element.layout.rounded(standard_normal(element.own));
}

std::uint32_t positive_zeros(const Element&) { return 0; }

std::uint32_t signed_zeros(const Element& element) {
  return element.layout.pattern(Bits(element.own).take(1), 0, 0);
}

std::uint32_t subnormals(const Element& element) {
  Bits bits(element.own);
  const std::uint32_t sign = bits.take(1);
  return element.layout.pattern(sign, 0, bits.take(23));
}

std::uint32_t smallest_normals(const Element& element) {
  return element.layout.pattern(Bits(element.own).take(1), 1, 0);
}

/// -L twice, then n + 1/2 with n in [-L, L - 1], all times a power of two: an integer codec whose
/// scale is |min| / L has to round each of them from the middle. Exact in every dtype.
std::uint32_t integer_ties(const Element& element) {
  constexpr std::array<double, 4> kLevels = {4, 8, 32, 128};
  Bits bits(element.block);
  const double levels = kLevels[bits.take(2)];
  const double scale = portable_exp2(static_cast<double>(bits.take(4)) - 11);
  const double n = std::floor(2 * levels * unit_interval(element.own)) - levels;
  return element.layout.rounded(scale * (element.position < 2 ? -levels : n + 0.5));
}

/// Half way between two neighbours of a format with 1, 2 or 3 mantissa bits.
std::uint32_t midpoints(const Element& element) {
  const Layout& layout = element.layout;
  const std::uint32_t kept = 1 + Bits(element.block).take(16) % 3;
  Bits bits(element.own);
  const std::uint32_t sign = bits.take(1);
  const std::uint32_t exponent = layout.exponent_of_one() + bits.take(3) - 5;
  const std::uint32_t mantissa = bits.take(kept) * 2 + 1;
  return layout.pattern(sign, exponent, mantissa << (layout.mantissa_bits - kept - 1));
}

/// Every element is +m or -m: the largest and the smallest have the same magnitude.
std::uint32_t tied_extremes(const Element& element) {
  Bits bits(element.block);
  const std::uint32_t exponent = 1 + bits.take(16) % (element.layout.infinite_exponent() - 1);
  return element.layout.pattern(Bits(element.own).take(1), exponent, bits.take(23));
}

std::uint32_t same_value(const Element& element) {
  return element.layout.rounded(standard_normal(mix_bits(element.block)));
}

/// The largest binade: two of them overflow when added.
std::uint32_t huge(const Element& element) {
  Bits bits(element.own);
  const std::uint32_t sign = bits.take(1);
  return element.layout.pattern(sign, element.layout.infinite_exponent() - 1, bits.take(23));
}

std::uint32_t largest_finite(const Element& element) {
  const Layout& layout = element.layout;
  return layout.pattern(Bits(element.own).take(1), layout.infinite_exponent() - 1,
                        layout.mantissa_mask());
}

std::uint32_t one_large(const Element& element) {
  const double scale = element.position == Bits(element.block).take(6) ? 1000 : 0.001;
  return element.layout.rounded(scale * standard_normal(element.own));
}

std::uint32_t any_finite(const Element& element) {
  Bits bits(element.own);
  const std::uint32_t sign = bits.take(1);
  const std::uint32_t exponent = bits.take(16) % element.layout.infinite_exponent();
  return element.layout.pattern(sign, exponent, bits.take(23));
}

/// Ordinary, but for one NaN with a random sign and payload.
std::uint32_t one_nan(const Element& element) {
  const Layout& layout = element.layout;
  Bits bits(element.block);
  if (element.position != bits.take(6)) return ordinary(element);
  const std::uint32_t sign = bits.take(1);
  const std::uint32_t payload = 1 + bits.take(23) % layout.mantissa_mask();
  return layout.pattern(sign, layout.infinite_exponent(), payload);
}

std::uint32_t one_infinity(const Element& element) {
  Bits bits(element.block);
  if (element.position != bits.take(6)) return ordinary(element);
  return element.layout.pattern(bits.take(1), element.layout.infinite_exponent(), 0);
}

std::uint32_t all_infinities(const Element& element) {
  return element.layout.pattern(Bits(element.own).take(1), element.layout.infinite_exponent(), 0);
}

/// NaNs, and rarely an infinity.
std::uint32_t any_non_finite(const Element& element) {
  Bits bits(element.own);
  const std::uint32_t sign = bits.take(1);
  return element.layout.pattern(sign, element.layout.infinite_exponent(), bits.take(23));
}

constexpr std::array<Kind, 13> kFiniteKinds = {
    ordinary,       positive_zeros, signed_zeros,  subnormals, smallest_normals,
    integer_ties,   midpoints,      tied_extremes, same_value, huge,
    largest_finite, one_large,      any_finite};
constexpr std::array<Kind, 4> kNonFiniteKinds = {one_nan, one_infinity, all_infinities,
                                                 any_non_finite};

}  // namespace

/// Each block of 64 elements is of one kind, drawn by (seed, rank, block).
Fill adversarial(const SyntheticParameters& parameters, const Payload& payload) {
  const std::uint64_t seed = parameters.integer("seed");
  const double non_finite = parameters.number("non_finite");
  return PatternFill([seed, non_finite, layout = layout_of(payload.dtype)](
                         std::size_t rank, std::size_t first, std::span<std::uint32_t> out) {
    const RandomStream elements(seed, rank);
    const RandomStream choices(seed, rank, 1);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t index = first + i;
      const std::uint64_t choice = choices.word(index / kBlock);
      const std::uint64_t block = mix_bits(choice);
      const Kind kind = unit_interval(choice) < non_finite
                            ? kNonFiniteKinds[block >> 62]
                            : kFiniteKinds[(block >> 32) % kFiniteKinds.size()];
      out[i] = kind({layout, block, elements.word(index), index % kBlock});
    }
  });
}

}  // namespace arlab

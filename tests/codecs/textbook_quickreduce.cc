#include "tests/codecs/textbook_quickreduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

namespace arlab::testing {
namespace {

constexpr std::size_t kAtom = 2048;
constexpr std::size_t kGroup = 64;
constexpr std::size_t kBlock = 32;
constexpr std::size_t kBlocks = kAtom / kBlock;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// fp16 or bf16 in exact numbers.
class Type {
 public:
  static const Type& of(DType dtype) {
    static const Type fp16(5, 10, 0x0001, true);
    static const Type bf16(8, 7, 0x33D7, false);
    return dtype == DType::fp16 ? fp16 : bf16;
  }

  double value(std::uint16_t bits) const { return values_[bits]; }

  /// The pattern of a value that the type has.
  std::uint16_t bits(double value) const {
    const unsigned sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return static_cast<std::uint16_t>(infinity_bits_ | quiet_bit_);
    if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity_bits_);
    const double magnitude = std::abs(value);
    if (magnitude < smallest_normal()) {
      return static_cast<std::uint16_t>(
          sign | static_cast<unsigned>(std::ldexp(magnitude, mantissa_bits_ - min_exponent_)));
    }
    const int exponent = std::ilogb(magnitude);
    const auto mantissa = static_cast<unsigned>(std::ldexp(magnitude, mantissa_bits_ - exponent) -
                                                std::ldexp(1.0, mantissa_bits_));
    const auto field = static_cast<unsigned>(exponent - min_exponent_ + 1);
    return static_cast<std::uint16_t>(sign | field << mantissa_bits_ | mantissa);
  }

  double rounded(double exact) const { return on_grid(exact, std::nearbyint); }
  double truncated(double exact) const { return on_grid(exact, std::trunc); }

  /// An operation overflowed, from finite operands: fp16 clamps.
  double clamped(double result) const {
    return clamps_ && std::isinf(result) ? std::copysign(largest_, result) : result;
  }

  double epsilon() const { return epsilon_; }
  double largest() const { return largest_; }
  double smallest_normal() const { return std::ldexp(1.0, min_exponent_); }

 private:
  Type(int exponent_bits, int mantissa_bits, std::uint16_t epsilon, bool clamps)
      : mantissa_bits_(mantissa_bits),
        min_exponent_(2 - (1 << (exponent_bits - 1))),
        infinity_bits_(((1u << exponent_bits) - 1) << mantissa_bits),
        quiet_bit_(1u << (mantissa_bits - 1)),
        clamps_(clamps),
        values_(65536) {
    for (unsigned bits = 0; bits < 65536; ++bits) values_[bits] = decoded(bits);
    epsilon_ = values_[epsilon];
    largest_ = values_[infinity_bits_ - 1];
  }

  double decoded(unsigned bits) const {
    const unsigned field = (bits & infinity_bits_) >> mantissa_bits_;
    const unsigned mantissa = bits & ((1u << mantissa_bits_) - 1);
    const unsigned one = 1u << mantissa_bits_;
    const int exponent = min_exponent_ + static_cast<int>(std::max(field, 1u)) - 1;
    double magnitude =
        std::ldexp(field == 0 ? mantissa : one + mantissa, exponent - mantissa_bits_);
    if ((bits & infinity_bits_) == infinity_bits_) magnitude = mantissa == 0 ? kInfinity : kNaN;
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }

  double on_grid(double exact, double (*to_integer)(double)) const {
    if (exact == 0 || !std::isfinite(exact)) return exact;
    const int exponent = std::max(std::ilogb(exact), min_exponent_);
    const double step = std::ldexp(1.0, exponent - mantissa_bits_);
    const double result = to_integer(exact / step) * step;
    return std::abs(result) > largest_ ? std::copysign(kInfinity, result) : result;
  }

  int mantissa_bits_;
  int min_exponent_;
  unsigned infinity_bits_;
  unsigned quiet_bit_;
  bool clamps_;
  std::vector<double> values_;
  double epsilon_ = 0;
  double largest_ = kInfinity;
};

std::size_t pairs_apart(std::size_t thread, std::size_t element, std::size_t bit) {
  return 32 * thread + 16 * (element % 2) + 4 * (element / 2) + bit;
}

const std::array<TextbookFormat, 6> kFormats = {{
    {"qr-fp8", 8, 240, false, 2048,
     [](std::size_t t, std::size_t j, std::size_t bit) { return 64 * t + 8 * j + bit; }},
    {"qr-q8", 8, 128, true, 2048,
     [](std::size_t t, std::size_t j, std::size_t bit) {
       constexpr std::size_t kByteOfElement[] = {0, 2, 1, 3, 4, 6, 5, 7};
       return 64 * t + 8 * kByteOfElement[j] + bit;
     }},
    {"qr-q6", 6, 32, true, 1536,
     [](std::size_t t, std::size_t j, std::size_t bit) {
       return bit < 4 ? pairs_apart(t, j, bit) : 8192 + 16 * t + 2 * j + (bit - 4);
     }},
    {"qr-q4", 4, 8, true, 1024, pairs_apart},
    {"qr-q3", 3, 4, true, 768,
     [](std::size_t t, std::size_t j, std::size_t bit) {
       return bit < 2 ? 16 * t + 2 * j + bit : 4096 + 8 * t + j;
     }},
    {"qr-fp4", 4, 6, false, 1024,
     [](std::size_t t, std::size_t j, std::size_t bit) { return 32 * t + 4 * j + bit; }},
}};

const TextbookFormat& find_format(std::string_view name) {
  const auto found = std::ranges::find(kFormats, name, &TextbookFormat::name);
  if (found == kFormats.end()) fail("the textbook has no codec '{}'", name);
  return *found;
}

/// The values of a float format without infinities, positive codes first.
std::vector<double> float_values(unsigned exponent_bits, unsigned mantissa_bits, int bias) {
  std::vector<double> values;
  const unsigned steps = 1u << mantissa_bits;
  for (unsigned field = 0; field < 1u << exponent_bits; ++field) {
    for (unsigned mantissa = 0; mantissa < steps; ++mantissa) {
      const double significand = (field == 0 ? 0.0 : 1.0) + double{1} * mantissa / steps;
      values.push_back(std::ldexp(significand, std::max(static_cast<int>(field), 1) - bias));
    }
  }
  for (std::size_t code = 0, half = values.size(); code < half; ++code) {
    values.push_back(-values[code]);
  }
  return values;
}

std::vector<double> code_values(const TextbookFormat& format) {
  if (format.name == "qr-fp4") return float_values(2, 1, 1);
  if (format.name == "qr-fp8") {
    std::vector<double> values = float_values(4, 3, 8);
    values[0x80] = kNaN;
    return values;
  }
  std::vector<double> values;
  for (std::size_t code = 0; code < std::size_t{1} << format.code_bits; ++code) {
    values.push_back(static_cast<double>(code) - format.largest);
  }
  return values;
}

bool bit_at(std::span<const std::byte> bytes, std::size_t place) {
  return (std::to_integer<unsigned>(bytes[place / 8]) >> place % 8 & 1) != 0;
}

/// Sets a bit of bytes that are zero.
void put_bit(std::span<std::byte> bytes, std::size_t place, bool bit) {
  bytes[place / 8] |= static_cast<std::byte>((bit ? 1u : 0u) << place % 8);
}

}  // namespace

struct TextbookQuickReduce::EncodedBlock {
  std::uint16_t scale = 0;
  std::array<unsigned, kBlock> codes = {};
  std::array<bool, kBlock> outside = {};
};

TextbookQuickReduce::TextbookQuickReduce(std::string_view name, Mistake mistake)
    : TextbookQuickReduce(find_format(name), mistake) {}

TextbookQuickReduce::TextbookQuickReduce(const TextbookFormat& format, Mistake mistake)
    : Codec({.name = std::string(format.name),
             .summary = "textbook version",
             .source = "MK1 QuickReduce",
             .dtypes = {DType::fp16, DType::bf16},
             .block = kBlock,
             .alignment = kAtom,
             .clamps_fp16_sums = true}),
      format_(format),
      mistake_(mistake),
      values_(code_values(format)) {}

// Places.

std::size_t TextbookQuickReduce::element_of(std::size_t block, std::size_t place) const {
  const std::size_t group = block / 2 * kGroup;
  return makes(Mistake::consecutive_blocks) ? group + block % 2 * kBlock + place
                                            : group + block % 2 + 2 * place;
}

std::size_t TextbookQuickReduce::place_of(std::size_t element, std::size_t bit) const {
  const std::size_t thread = element / 8;
  const std::size_t j = makes(Mistake::threads_reversed) ? 7 - element % 8 : element % 8;
  return makes(Mistake::bytes_in_element_order) && format_.code_bits == 8
             ? 64 * thread + 8 * j + bit
             : format_.place(thread, j, bit);
}

std::size_t TextbookQuickReduce::place_of_scale(std::size_t block) const {
  const std::size_t written = makes(Mistake::scales_swapped) ? block ^ 1 : block;
  return 8 * format_.scales_at + 16 * written;
}

// Numbers.

double TextbookQuickReduce::extreme(std::span<const double> block) const {
  const auto below = [](double a, double b) {
    return a != b ? a < b : std::signbit(a) && !std::signbit(b);
  };
  const double max = *std::max_element(block.begin(), block.end(), below);
  double min = *std::min_element(block.begin(), block.end(), below);
  if (makes(Mistake::plus_zero_is_smallest) && min == 0) min = max;
  if (format_.name == "qr-fp8") return std::max(std::abs(max), std::abs(min));
  const bool takes_max = makes(Mistake::tie_takes_max) ? std::abs(max) >= std::abs(min)
                                                       : std::abs(max) > std::abs(min);
  const double m = takes_max ? max : min;
  return makes(Mistake::unsigned_scale) ? std::abs(m) : m;
}

bool TextbookQuickReduce::is_outside(double w) const {
  if (makes(Mistake::clamped_not_counted)) return false;
  const double low = -format_.largest;
  const double high = format_.integers ? format_.largest - 1 : format_.largest;
  if (makes(Mistake::clamped_before_rounding)) return !(low <= w && w <= high);
  // The code above an even one, and the float above a largest one with an odd mantissa, get the
  // tie.
  if (!format_.integers) return !(std::abs(w) < (format_.code_bits == 8 ? 248 : 7));
  return !(low <= std::nearbyint(w) && std::nearbyint(w) <= high);
}

unsigned TextbookQuickReduce::integer_code_of(double w) const {
  const double low = -format_.largest + (makes(Mistake::symmetric_code_range) ? 1 : 0);
  const double high = format_.largest - 1;
  double inside = std::isnan(w) ? (makes(Mistake::nan_clamps_to_upper_bound) ? high : low) : w;
  if (!makes(Mistake::codes_wrap)) inside = std::min(std::max(inside, low), high);
  if (std::isinf(inside)) inside = std::copysign(65504, inside);
  const double integer = makes(Mistake::codes_truncated)       ? std::trunc(inside)
                         : makes(Mistake::ties_away_from_zero) ? std::round(inside)
                         : makes(Mistake::halves_rounded_up)   ? std::floor(inside + 0.5)
                                                               : std::nearbyint(inside);
  const double biased = integer + format_.largest + (makes(Mistake::bias_too_large) ? 1 : 0);
  return static_cast<unsigned>(static_cast<int>(biased)) % static_cast<unsigned>(values_.size());
}

unsigned TextbookQuickReduce::float_code_of(double w) const {
  if (std::isnan(w)) return format_.code_bits == 8 ? 0 : 8;  // fp4: -0
  const auto positive = std::span(values_).first(values_.size() / 2);
  const double magnitude = std::min(std::abs(w), format_.largest);
  auto code =
      static_cast<unsigned>(std::ranges::lower_bound(positive, magnitude) - positive.begin());
  if (positive[code] != magnitude) {
    const double middle = (positive[code - 1] + positive[code]) / 2;
    const bool tie_goes_up = makes(Mistake::ties_away_from_zero) ||
                             (makes(Mistake::halves_rounded_up) ? !std::signbit(w) : code % 2 == 0);
    const bool up = magnitude > middle || (magnitude == middle && tie_goes_up);
    if (!up || makes(Mistake::codes_truncated)) --code;
  }
  if (code == 0 && format_.code_bits == 8) return 0;  // fp8 has no -0
  return code + (std::signbit(w) ? static_cast<unsigned>(positive.size()) : 0);
}

unsigned TextbookQuickReduce::code_of(double w) const {
  return format_.integers ? integer_code_of(w) : float_code_of(w);
}

double TextbookQuickReduce::value_of(unsigned code) const {
  const bool shifted = makes(Mistake::bias_too_large) && format_.integers;
  return values_[code] - (shifted ? 1 : 0);
}

TextbookQuickReduce::EncodedBlock TextbookQuickReduce::encode_block(
    DType dtype, std::vector<double> x, std::vector<double> sharing) const {
  const Type& t = Type::of(dtype);
  for (std::vector<double>* block : {&x, &sharing}) {
    for (double& element : *block) {
      if (makes(Mistake::nan_is_zero) && std::isnan(element)) element = 0;
      if (makes(Mistake::infinity_is_largest) && std::isinf(element)) {
        element = std::copysign(t.largest(), element);
      }
      if (makes(Mistake::subnormals_flushed) && std::abs(element) < t.smallest_normal()) {
        element = std::copysign(0.0, element);
      }
    }
  }
  EncodedBlock result;
  const auto is_finite = [](double element) { return std::isfinite(element); };
  const std::vector<double>& spoiling = makes(Mistake::nan_spoils_group) ? sharing : x;
  if (!std::ranges::all_of(spoiling, is_finite)) {
    result.scale = t.bits(kNaN);
    if (makes(Mistake::codes_beside_nan_kept)) result.codes.fill(1);
    return result;
  }
  if (!makes(Mistake::one_block_per_group) || !std::ranges::all_of(sharing, is_finite)) sharing = x;

  const double m = extreme(sharing);
  // The constant is one of fp16; in bf16 it is rounded once more.
  const double exact_k = (format_.integers ? -1 : 1) / format_.largest;
  const double k = t.rounded(
      makes(Mistake::constant_rounded_once) ? exact_k : Type::of(DType::fp16).rounded(exact_k));
  const double d = makes(Mistake::scale_truncated) ? t.truncated(m * k) : t.rounded(m * k);
  const double epsilon = makes(Mistake::no_epsilon)               ? 0
                         : makes(Mistake::epsilon_away_from_zero) ? std::copysign(t.epsilon(), d)
                                                                  : t.epsilon();
  const double divisor = t.rounded(d + epsilon);
  double e = makes(Mistake::reciprocal_truncated)     ? t.truncated(1 / divisor)
             : makes(Mistake::reciprocal_not_rounded) ? 1 / divisor
                                                      : t.rounded(1 / divisor);
  if (!makes(Mistake::reciprocal_overflows_to_infinity)) e = t.clamped(e);

  for (std::size_t i = 0; i < kBlock; ++i) {
    const double exact = makes(Mistake::division_instead_of_reciprocal) ? x[i] / divisor : x[i] * e;
    const double w = makes(Mistake::product_not_rounded) ? exact : t.clamped(t.rounded(exact));
    result.codes[i] = code_of(w);
    result.outside[i] = is_outside(w);
  }
  result.scale = t.bits(makes(Mistake::reciprocal_on_the_wire) ? t.clamped(t.rounded(e)) : d);
  return result;
}

// Atoms.

std::size_t TextbookQuickReduce::do_wire_bytes(DType, std::size_t elements) const {
  return (elements + kAtom - 1) / kAtom * atom_bytes();
}

void TextbookQuickReduce::do_encode(DType dtype, std::span<const std::byte> payload,
                                    std::span<std::byte> wire, EncodeCounts& counts) const {
  const std::span<const std::uint16_t> elements = as_u16(payload);
  std::ranges::fill(wire, std::byte{0});
  for (std::size_t first = 0; first < elements.size(); first += kAtom) {
    const auto atom = wire.subspan(first / kAtom * atom_bytes(), atom_bytes());
    const std::size_t here = std::min(kAtom, elements.size() - first);
    std::vector<double> x(kAtom, makes(Mistake::stale_padding) ? 1.0 : 0.0);
    for (std::size_t i = 0; i < here; ++i) x[i] = Type::of(dtype).value(elements[first + i]);

    const auto block_of = [&](std::size_t block) {
      std::vector<double> values(kBlock);
      for (std::size_t i = 0; i < kBlock; ++i) values[i] = x[element_of(block, i)];
      return values;
    };
    for (std::size_t block = 0; block < kBlocks; ++block) {
      std::vector<double> group = block_of(block);
      std::ranges::copy(block_of(block ^ 1), std::back_inserter(group));
      const EncodedBlock encoded = encode_block(dtype, block_of(block), std::move(group));
      for (std::size_t i = 0; i < kBlock; ++i) {
        const std::size_t element = element_of(block, i);
        for (std::size_t bit = 0; bit < format_.code_bits; ++bit) {
          put_bit(atom, place_of(element, bit), (encoded.codes[i] >> bit & 1) != 0);
        }
        const bool counts_here = element < here || makes(Mistake::padding_counted);
        counts.clamped += encoded.outside[i] && counts_here ? 1 : 0;
      }
      for (std::size_t bit = 0; bit < 16; ++bit) {
        put_bit(atom, place_of_scale(block) + bit, (encoded.scale >> bit & 1) != 0);
      }
    }
  }
}

void TextbookQuickReduce::do_decode(DType dtype, std::span<const std::byte> wire,
                                    std::span<std::byte> payload) const {
  const Type& t = Type::of(dtype);
  const std::span<std::uint16_t> elements = as_u16(payload);
  for (std::size_t first = 0; first < elements.size(); first += kAtom) {
    const auto atom = wire.subspan(first / kAtom * atom_bytes(), atom_bytes());
    for (std::size_t block = 0; block < kBlocks; ++block) {
      unsigned scale = 0;
      for (std::size_t bit = 0; bit < 16; ++bit) {
        scale |= (bit_at(atom, place_of_scale(block) + bit) ? 1u : 0u) << bit;
      }
      const double d = t.value(static_cast<std::uint16_t>(scale));
      for (std::size_t i = 0; i < kBlock; ++i) {
        const std::size_t element = element_of(block, i);
        if (first + element >= elements.size()) continue;
        unsigned code = 0;
        for (std::size_t bit = 0; bit < format_.code_bits; ++bit) {
          code |= (bit_at(atom, place_of(element, bit)) ? 1u : 0u) << bit;
        }
        const double exact = value_of(code) * d;
        double x = makes(Mistake::decoded_values_truncated) ? t.truncated(exact) : t.rounded(exact);
        if (std::isfinite(exact) && !makes(Mistake::decoded_values_overflow)) x = t.clamped(x);
        if (makes(Mistake::decoded_zeros_unsigned) && x == 0) x = 0;
        elements[first + element] = t.bits(x);
      }
    }
  }
}

}  // namespace arlab::testing

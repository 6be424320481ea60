// mxfp8-e4m3, mxfp8-e5m2, mxfp6-e2m3, mxfp6-e3m2, mxfp4: OCP Microscaling Formats v1.0, each with a
// rule for its scale. SPEC.md, "Microscaling (mx*)". fp8-e4m3-g128-ue8m0 is one of them with longer blocks.
//
//   8-bit elements   8.25 bits per element, 33 bytes per block of 32
//   6-bit elements   6.25 bits per element, 25 bytes
//   4-bit elements   4.25 bits per element, 17 bytes
//   -ue8m0           8.0625 bits per element, 129 bytes per block of 128
#pragma once

#include "reference/codecs/scaled_format.h"
#include "reference/formats/e8m0.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp6.h"
#include "reference/formats/fp8.h"

namespace arlab {

/// How a block's exponent is found.
enum class ExponentRule { floor, ceil, even, rceil };

/// An element format that is known when the program runs.
struct AnyMinifloat {
  static constexpr unsigned kMostBits = 8;
  Minifloat format = {};
  constexpr Minifloat element() const { return format; }
};

/// One of the five element formats as a constant.
template <int kExponentBits, int kMantissaBits>
struct FixedMinifloat {
  static constexpr unsigned kBits = 1 + kExponentBits + kMantissaBits;
  static constexpr Minifloat element() {
    if (kExponentBits == 4) return kE4m3fn;
    if (kExponentBits == 5) return kE5m2;
    if (kExponentBits == 3) return kE3m2;
    return kMantissaBits == 3 ? kE2m3 : kE2m1;
  }
};

/// `Element` says the element format, by element().
template <class Element, std::size_t kElements = 32>
struct MxOf : Element {
  static constexpr std::size_t kBlock = kElements;
  using Scale = std::uint8_t;
  using Element::element;

  ExponentRule rule = ExponentRule::floor;

  constexpr unsigned bits() const {
    return static_cast<unsigned>(1 + element().exponent_bits + element().mantissa_bits);
  }

  constexpr ScaledBlock<Scale> scale_of(float largest) const {
    if (largest == 0) return {};
    const Scale scale = rule == ExponentRule::rceil ? exponent_above(largest / largest_element())
                                                    : e8m0_from_exponent(shared_exponent(largest));
    return {scale, e8m0_reciprocal(scale)};
  }
  constexpr Scale nan_scale() const { return kE8m0Nan; }

  constexpr ScaledCode quantize(float x, float factor) const {
    // The product is exact but for what underflows far below every code.
    return minifloat_code(element(), x * factor);
  }
  constexpr float dequantize(std::uint32_t code, Scale scale) const {
    return minifloat_to_float(element(), code) * value_of(scale);
  }
  constexpr float value_of(Scale scale) const { return e8m0_to_float(scale); }

  static CodecInfo info(const std::string& name);
  static std::vector<std::string> listed();
  static std::string pattern();
  static std::optional<MxOf> parse(std::string_view name)
    requires std::same_as<Element, AnyMinifloat>;

 private:
  constexpr float largest_element() const {
    return minifloat_to_float(element(), element().max_finite());
  }
  /// The least power of two that is not below q >= 0 and that E8M0 has: the exponent field of q, and
  /// one more where any bit of the mantissa is set. For subnormals that is the smallest normal number, but up to 2^-127 there
  /// is the scale below it.
  static constexpr Scale exponent_above(float q) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(q);
    if (bits <= 0x00400000u) return 0;
    const std::uint32_t code = (bits + 0x7FFFFFu) >> 23;
    return static_cast<Scale>(code < 254 ? code : 254);
  }
  constexpr int shared_exponent(float largest) const {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(largest);
    const int largest_exponent = floor_log2(largest_element());
    if (rule == ExponentRule::ceil) {
      const bool is_subnormal = bits >> 23 == 0;
      const bool is_power = is_subnormal ? (bits & (bits - 1)) == 0 : (bits & 0x7FFFFFu) == 0;
      return floor_log2(largest) + (is_power ? 0 : 1) - largest_exponent;
    }
    // A subnormal magnitude is far below what rounding could matter for.
    if (rule == ExponentRule::even && bits >> 23 != 0) {
      // Adding half a unit of the last kept mantissa bit carries into the exponent when the
      // magnitude rounds up to the next power of two; an exponent field beyond fp32's is still
      // right as a number.
      const std::uint32_t half = 1u << (23 - element().mantissa_bits - 1);
      return static_cast<int>((bits + half) >> 23) - 127 - largest_exponent;
    }
    return floor_log2(largest) - largest_exponent;
  }
};

static_assert(block_bytes(MxOf<FixedMinifloat<4, 3>>{}) == 33);
static_assert(block_bytes(MxOf<FixedMinifloat<2, 3>>{}) == 25);
static_assert(block_bytes(MxOf<FixedMinifloat<2, 1>>{}) == 17);

/// The formats of all names.
using Mx = MxOf<AnyMinifloat>;

/// fp8-e4m3-g128-ue8m0: the scale is the power of two at or above the largest magnitude / 448.
struct Fp8PowerBlocks : MxOf<FixedMinifloat<4, 3>, 128> {
  static constexpr std::string_view kStruct = "Fp8PowerBlocks";  ///< its name in kernels

  constexpr Fp8PowerBlocks() : MxOf{{}, ExponentRule::rceil} {}

  static CodecInfo info(const std::string& name);
  static std::vector<std::string> listed();
  static std::string pattern();
  static std::optional<Fp8PowerBlocks> parse(std::string_view name);
};

static_assert(block_bytes(Fp8PowerBlocks{}) == 129);

}  // namespace arlab

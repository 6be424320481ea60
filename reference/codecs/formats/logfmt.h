// logfmt<n>-g<G>, once: a block's range, and the values of its codes. SPEC.md, "LogFMT (logfmt*)".
// Plain functions, for the reference (logfmt.cc) and for kernels (kernels/codecs/logfmt.h).
//
//   logfmt4-g32   5 bits per element, 20 bytes per block
//   logfmt2-g32   3 bits per element, 12 bytes
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "reference/formats/half.h"
#include "reference/formats/portable_log.h"

namespace arlab {

/// The range of a block as it travels: fp16 patterns.
struct LogRange {
  std::uint16_t lo = 0;
  std::uint16_t step = 0;

  /// Returns the range that marks a block with a NaN or an infinity.
  static constexpr LogRange nan() { return {0x7E00, 0}; }
  constexpr bool is_finite() const { return (lo & 0x7C00) != 0x7C00 && (step & 0x7C00) != 0x7C00; }
};

/// The magnitudes of a block's codes, computed when asked for. Code 0 is zero.
struct LogValues {
  float lo = 0;
  float step = 0;

  constexpr LogValues() = default;
  constexpr explicit LogValues(const LogRange& range)
      : lo(half_to_float(range.lo)), step(half_to_float(range.step)) {}
  constexpr float operator[](std::uint32_t code) const {
    return code == 0 ? 0.0f : exp2_fp32(lo + static_cast<float>(code - 1) * step);
  }
};

struct LogCodes {
  unsigned bits = 0;  ///< with the sign

  constexpr std::uint32_t sign_bit() const { return 1u << (bits - 1); }
  /// Bytes of a whole block: its codes, then its range.
  constexpr std::size_t block_bytes(std::size_t group) const {
    return bits * group / 8 + sizeof(LogRange);
  }

  /// The range of finite elements whose magnitudes, but for zeros, lie in `smallest` to `largest`.
  constexpr LogRange range_of(float smallest, float largest) const {
    if (largest == 0) return {};
    const float hi = log2_fp32(largest);
    if (bits == 2) return {half_from_float(hi), 0};
    const float least = log2_fp32(smallest);
    const float lo = least < hi - 32.0f ? hi - 32.0f : least;
    const float step = (hi - lo) / static_cast<float>(sign_bit() - 2);
    return {half_from_float(lo), half_from_float(step)};
  }

  /// The code of an element. `values` are those of the block: LogValues, or a table of them. They
  /// ascend, or are equal when the step is 0; then the first of them is meant.
  template <class Values>
  constexpr std::uint32_t quantize(float x, const Values& values) const {
    const std::uint32_t pattern = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t code = nearest(values, std::bit_cast<float>(pattern & 0x7FFFFFFFu));
    return code != 0 && pattern >> 31 != 0 ? code | sign_bit() : code;
  }

  /// Rounded to a dtype next, whose largest finite number is `limit`: SPEC.md, "Saturation".
  template <class Values>
  constexpr float dequantize(std::uint32_t code, const Values& values, float limit) const {
    const float value = values[code & (sign_bit() - 1)];
    const float magnitude = limit < value ? limit : value;
    return (code & sign_bit()) != 0 ? -magnitude : magnitude;
  }

 private:
  template <class Values>
  constexpr std::uint32_t nearest(const Values& values, float magnitude) const {
    const std::uint32_t above = first_not_below(values, magnitude);
    if (above == sign_bit()) return first_not_below(values, values[sign_bit() - 1]);
    return magnitude - values[above - 1] < values[above] - magnitude ? above - 1 : above;
  }
  /// The first code, from 1 on, whose value is not below `magnitude`; sign_bit() if none is.
  template <class Values>
  constexpr std::uint32_t first_not_below(const Values& values, float magnitude) const {
    std::uint32_t first = 1;
    std::uint32_t length = sign_bit() - 1;
    while (length > 0) {
      const std::uint32_t half = length / 2;
      const bool below = values[first + half] < magnitude;
      first = below ? first + half + 1 : first;
      length = below ? length - half - 1 : half;
    }
    return first;
  }
};

static_assert(LogCodes{4}.block_bytes(32) == 20);
static_assert(LogCodes{2}.block_bytes(32) == 12);

/// Parts of a name of the family.
struct LogFmtName {
  unsigned bits = 0;
  std::size_t group = 0;
};

/// None if the name is of another family.
std::optional<LogFmtName> parse_logfmt(std::string_view name);

}  // namespace arlab

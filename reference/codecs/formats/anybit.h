// int<b>-g<G> and its variants, once: a block's scale, and what becomes of an element. SPEC.md,
// "Any-bit integers (int*)". Plain functions, for the reference (anybit.cc) and for kernels
// (kernels/codecs/anybit.h, measured.h); each operation is in fp32 and rounded once. Of payloads of 16 bits (anybit_layout.h):
//
//   int4-g32         5 bits per element, 20 bytes per block
//   int8-g128        8.25 bits per element, 132 bytes
//   int4-g32-sym     4.5 bits per element, 18 bytes
//   int2-g32-sr      5 bits per element, 20 bytes
//   int2-g32-sr-is   4 bits per element, 16 bytes
#pragma once

#include "reference/codecs/integer_scale.h"
#include "reference/codecs/scaled_format.h"
#include "reference/formats/bfloat16.h"

namespace arlab {

/// The scale of a group as the decoder uses it.
struct AnyBitScale {
  float value = 0;  ///< a bf16 value, scale_of(code), or one that is given
  float zero = 0;   ///< value of code 0: a bf16 value, with integer scales a zero point, or given
  int code = 0;     ///< integer scales only
};

/// Always inlined, since what AMD's compilers call they pass by way of scratch memory.
struct AnyBitCodes {
  unsigned bits = 0;
  bool symmetric = false;
  bool integer_scales = false;

  [[gnu::always_inline]] constexpr float top() const {
    return static_cast<float>((1u << bits) - 1);
  }
  /// The code of the integer 0.
  [[gnu::always_inline]] constexpr float bias() const {
    return symmetric ? static_cast<float>(1u << (bits - 1)) : 0.0f;
  }

  /// Step 1, for a block with elements from mn to mx. A result that is not finite means that it cannot be represented.
  [[gnu::always_inline]] constexpr AnyBitScale scale_of(float mn, float mx) const {
    if (symmetric) {
      const auto largest_code = static_cast<float>((1u << (bits - 1)) - 1);
      const float below = mn < 0 ? -mn : mn;
      const float above = mx < 0 ? -mx : mx;
      return {bf16_metadata((below < above ? above : below) / largest_code)};
    }
    const float exact = bf16_metadata((mx - mn) / top());
    if (!integer_scales) return {exact, bf16_metadata(mn)};
    AnyBitScale scale;
    // The code is signed. NOLINTNEXTLINE(bugprone-signed-char-misuse)
    scale.code = integer_scale(exact);
    const float rounded = arlab::scale_of(static_cast<std::int8_t>(scale.code));
    scale.value = exact <= std::numeric_limits<float>::max() ? rounded : exact;
    scale.zero = clamp(round_to_even(-mn / rounded), -128, 127);
    return scale;
  }

  /// Returns a factor that quantize() takes besides.
  [[gnu::always_inline]] constexpr float factor_of(const AnyBitScale& scale) const {
    return 1.0f / scale.value;
  }

  /// Step 2.
  [[gnu::always_inline]] constexpr ScaledCode quantize(float x, const AnyBitScale& scale,
                                                       float factor) const {
    float q = 0;
    if (integer_scales) {
      q = round_to_even(x / scale.value) + scale.zero;
    } else if (factor <= std::numeric_limits<float>::max()) {
      q = round_to_even((x - scale.zero) * factor);
    }
    return code_of(q);
  }
  /// The same with stochastic rounding by 24 random bits.
  [[gnu::always_inline]] constexpr ScaledCode quantize(float x, const AnyBitScale& scale,
                                                       float factor, std::uint32_t random) const {
    float q = 0;
    if (integer_scales) {
      q = round_stochastically(x / scale.value, random) + scale.zero;
    } else if (factor <= std::numeric_limits<float>::max()) {
      q = round_stochastically((x - scale.zero) * factor, random);
    }
    return code_of(q);
  }

  /// Step 3.
  [[gnu::always_inline]] constexpr float dequantize(std::uint32_t code,
                                                    const AnyBitScale& scale) const {
    const auto number = static_cast<float>(code);
    if (integer_scales) return (number - scale.zero) * scale.value;
    if (symmetric) return (number - bias()) * scale.value;
    return scale.zero + number * scale.value;
  }

 private:
  [[gnu::always_inline]] constexpr ScaledCode code_of(float q) const {
    const float code = q + bias();
    return {static_cast<std::uint32_t>(clamp(code, 0, top())), code < 0 || code > top()};
  }
  /// RN to bf16, with +0 for -0.
  [[gnu::always_inline]] static constexpr float bf16_metadata(float x) {
    return bfloat16_to_float(bfloat16_from_float(x)) + 0.0f;
  }
  [[gnu::always_inline]] static constexpr float clamp(float x, float low, float high) {
    const float above = x < low ? low : x;
    return high < above ? high : above;
  }
};

}  // namespace arlab

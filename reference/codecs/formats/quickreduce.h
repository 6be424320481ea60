// The elements of the QuickReduce line codecs, once: what the scale of a block is a multiple of,
// and what becomes of a scaled element. SPEC.md, "QuickReduce (qr-*)". For the reference
// (quickreduce.cc) and for kernels (kernels/codecs/quickreduce.h), which have packed arithmetic
// beside it. An atom of 2048 elements has (quickreduce.cc asserts it):
//
//   qr-q3            3.5 bits per element, 896 bytes
//   qr-q4, qr-fp4    4.5 bits per element, 1152 bytes
//   qr-q6            6.5 bits per element, 1664 bytes
//   qr-q8, qr-fp8    8.5 bits per element, 2176 bytes
#pragma once

#include "reference/codecs/scaled_format.h"
#include "reference/formats/fp4.h"
#include "reference/formats/fp8.h"
#include "reference/formats/half.h"

namespace arlab {

/// Added to a scale before it is inverted.
inline constexpr std::uint16_t kQuickReduceEpsilonFp16 = 0x0001;  // 2^-24
inline constexpr std::uint16_t kQuickReduceEpsilonBf16 = 0x33D7;  // 1e-7

/// Integers -L .. L-1, stored with a bias of L.
template <int L>
struct QuickReduceIntegers {
  static constexpr bool kSignedScale = true;  // d comes from the extreme with its sign,
  static constexpr float kScale = -1.0f / L;  // so that the extreme itself becomes -L exactly

  static constexpr ScaledCode encode(float w) {
    constexpr float kLow = -L;
    constexpr float kHigh = L - 1;
    constexpr float kMagic = 0x1.8p23f;        // the addition rounds, the subtraction is exact
    const float above = w >= kLow ? w : kLow;  // a NaN takes the bound
    const float inside = above <= kHigh ? above : kHigh;
    const int rounded = static_cast<int>((inside + kMagic) - kMagic);
    // Clamped where its own rounded code does not exist.
    return {static_cast<std::uint32_t>(rounded + L), !(w >= kLow - 0.5f && w < kHigh + 0.5f)};
  }
  static constexpr float decode(std::uint32_t code) {
    return static_cast<float>(static_cast<int>(code) - L);
  }
};

struct QuickReduceFp8 {
  static constexpr bool kSignedScale = false;
  static constexpr float kScale = half_to_float(0x1C44);  // nearest 1/240; in bf16 RN of this one

  static constexpr ScaledCode encode(float w) {
    // 248 is halfway from 240 to 256 and ties away from odd.
    return {e4m3fnuz_from_float(w, Overflow::saturate), !(w < 248.0f && w > -248.0f)};
  }
  static constexpr float decode(std::uint32_t code) {
    return e4m3fnuz_to_float(static_cast<std::uint8_t>(code));
  }
};

struct QuickReduceFp4 {
  static constexpr bool kSignedScale = true;
  static constexpr float kScale = half_to_float(0x3155);  // nearest 1/6; in bf16 RN of this one

  static constexpr ScaledCode encode(float w) {
    return {e2m1_from_float(w), !(w < 7.0f && w > -7.0f)};  // 7 is halfway from 6 to 8
  }
  static constexpr float decode(std::uint32_t code) {
    return e2m1_to_float(static_cast<std::uint8_t>(code));
  }
};

}  // namespace arlab

// Eight sums of a thread, in the two ways that kernels have: reference/codecs/SPEC.md, "Accumulation".
//
// Both ways have take() and rounded(), each of them checked or not. Unchecked, what overflows stays an infinity or becomes a NaN
// (any), whatever is added later; so in the end, one look says whether all is to be done again.
//
// A sum of two values is the same both ways: it is rounded once.
#pragma once

#include "kernels/codecs/pairs.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Rounded to the dtype after every addition; with Clamp as in add().
template <class Element, bool Clamp>
struct NativeSum {
  static constexpr int kAtOnce = 4;  ///< sums of tiles that a thread has room for, at most

  Pack8<Element> value = {};

  ARLAB_DEVICE void begin_with(const Pack8<Element>& x) { value = x; }
  template <bool kChecked>
  ARLAB_DEVICE void take(const Pack8<Element>& x) {
    if constexpr (kChecked) {
      value = add<Element, Clamp>(value, x);
    } else {
      value = add_unchecked(value, x);
    }
  }
  template <bool>
  ARLAB_DEVICE Pack8<Element> rounded() const {
    return value;
  }
};

/// In fp32, rounded to the dtype once, by rounded().
template <class Element, bool Clamp>
struct Fp32Sum {
  static constexpr int kAtOnce = 1;  ///< with 2, kernels of 64 registers keep some in memory

  Float8 value = {};

  ARLAB_DEVICE void begin_with(const Pack8<Element>& x) { value = to_floats(x); }
  /// With -0: x added to it is x.
  ARLAB_DEVICE void begin_with_nothing() {
#pragma unroll
    for (float& each : value.value) each = -0.0f;
  }
  template <bool>
  ARLAB_DEVICE void take(const Pack8<Element>& x) {
    const Float8 addend = to_floats(x);
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) value.value[i] = value.value[i] + addend.value[i];
  }
  template <bool kChecked>
  ARLAB_DEVICE Pack8<Element> rounded() const {
    if constexpr (kHasPackedArithmetic<Element>) {
      const Pack8<Element> pairs = pairs_of_floats<Element>(value);
      if (!kChecked || !any_non_finite(pairs)) return pairs;
    }
    return from_floats<Element, Clamp>(value);
  }
};

/// Not of fp32 elements, whose sums are such, nor of codes.
template <class Element>
inline constexpr bool kHasFp32Sums =
    sizeof(typename Element::Bits) == 2 && requires { Element::to_float(0); };

/// Calls f with a type of sum: of at most kMost values each, in fp32 where a call asks for that and it makes a difference.
template <class Element, bool Clamp, unsigned kMost, class F>
ARLAB_DEVICE void with_sums(bool in_fp32, F f) {
  if constexpr (kMost > 2 && kHasFp32Sums<Element>) {
    if (in_fp32) return f(std::type_identity<Fp32Sum<Element, Clamp>>());
  }
  f(std::type_identity<NativeSum<Element, Clamp>>());
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

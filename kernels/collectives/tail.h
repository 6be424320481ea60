// Tails behind sums (reference/tails/SPEC.md, "What is computed"): a residual is added, and rows are normalized. Bits are those of the
// reference, and so is the order in which squares are added.
#pragma once

#include "kernels/codecs/minifloats.h"
#include "reference/codecs/formats/fp8_rows.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Lanes whose sums of squares are added in a tree; each has eight elements.
inline constexpr unsigned kTreeLanes = 32;
inline constexpr unsigned kOfLane = static_cast<unsigned>(kPerThread);
inline constexpr unsigned kTreeElements = kTreeLanes * kOfLane;

/// Steps of a tail, and where it rounds: constants of a unit, which has them as a number. The number's lowest four bits are
/// the kernel's own.
struct TailSteps {
  enum class Root : unsigned { divide, reciprocal, rsqrt };
  enum class Weight : unsigned { twice, once, first };
  enum class Fp8 : unsigned { none, of_row, given };  ///< formats/fp8_rows.h says the scales

  bool adds_residual = false;
  bool normalizes = false;
  bool has_offset = false;
  bool keeps_residual = false;   ///< the norm's input stays fp32
  bool rounds_scaled = false;    ///< only squares use that; scaled numbers are rounded
  bool has_whole_trees = false;  ///< rows are whole trees, and trees are the lanes of one tile
  Root root = Root::divide;
  Weight weight = Weight::twice;
  Fp8 fp8 = Fp8::none;      ///< e4m3 is made of what comes out
  unsigned threads = 1024;  ///< a block of them adds up squares

  ARLAB_HOST_DEVICE constexpr int number() const {
    return static_cast<int>((adds_residual ? 1u << 4 : 0) | (normalizes ? 1u << 5 : 0) |
                            (has_offset ? 1u << 6 : 0) | (keeps_residual ? 1u << 7 : 0) |
                            static_cast<unsigned>(root) << 8 | static_cast<unsigned>(weight) << 10 |
                            (threads - 1) << 12 | (has_whole_trees ? 1u << 22 : 0) |
                            (rounds_scaled ? 1u << 23 : 0) | static_cast<unsigned>(fp8) << 24);
  }
  ARLAB_HOST_DEVICE static constexpr TailSteps of(int number) {
    const auto bits = static_cast<unsigned>(number);
    TailSteps steps;
    steps.adds_residual = (bits >> 4 & 1) != 0;
    steps.normalizes = (bits >> 5 & 1) != 0;
    steps.has_offset = (bits >> 6 & 1) != 0;
    steps.keeps_residual = (bits >> 7 & 1) != 0;
    steps.root = Root(bits >> 8 & 3);
    steps.weight = Weight(bits >> 10 & 3);
    steps.threads = (bits >> 12 & 1023) + 1;
    steps.has_whole_trees = (bits >> 22 & 1) != 0;
    steps.rounds_scaled = (bits >> 23 & 1) != 0;
    steps.fp8 = Fp8(bits >> 24 & 3);
    return steps;
  }
  /// Trees of a block of threads.
  ARLAB_HOST_DEVICE constexpr unsigned trees() const {
    return (threads + kTreeLanes - 1) / kTreeLanes;
  }
};

/// Arguments of a call's tail in a kernel.
struct TailCall {
  const void* residual;
  const void* weight;  ///< a row; null: all 1
  void* residual_out;  ///< may be the residual
  void* normalized;    ///< may be where sums are
  const void* sums;    ///< where they are in memory first
  std::uint8_t* wire;  ///< the output's, where the kernel encodes it
  std::size_t elements;
  unsigned hidden;  ///< elements of a row
  float eps;
  float inverse;  ///< 1 / the given scale
};

/// Eight elements of a row behind the addition.
template <class Element>
struct RowPack {
  Float8 value;             ///< the norm's input
  Pack8<Element> of_dtype;  ///< the output `residual`
};

/// The divisor of a row.
struct RowRoot {
  float root;
  float inverse;
};

template <class Element>
ARLAB_DEVICE RowPack<Element> add_residual(const TailSteps& steps, const Pack8<Element>& sum,
                                           const Pack8<Element>& residual) {
  RowPack<Element> x;
  if (steps.adds_residual && !steps.keeps_residual) {
    x.of_dtype = add<Element, false>(sum, residual);
    x.value = to_floats(x.of_dtype);
    return x;
  }
  x.value = to_floats(sum);
  if (steps.adds_residual) {
    const Float8 addend = to_floats(residual);
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) x.value.value[i] += addend.value[i];
  }
  x.of_dtype = from_floats<Element>(x.value);
  return x;
}

/// A thread's: of elements behind the row's end +0.
ARLAB_DEVICE float squares_of(const Float8& x) {
  float sum = 0;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i)
    sum = fused_multiply_add(x.value[i], x.value[i], sum);
  return sum;
}

/// The sum of 32 lanes, i and i + 16 first; all of them have it.
ARLAB_DEVICE float tree_of_lanes(float value) {
#pragma unroll
  for (int half = kTreeLanes / 2; half > 0; half /= 2)
    value += shuffle_xor(value, half, static_cast<int>(kTreeLanes));
  return value;
}

/// The sum of a row whose trees' sums are `of_tree(number)`; lanes call it together, each with another number.
template <class OfTree>
ARLAB_DEVICE float sum_of_trees(const TailSteps& steps, unsigned trees, OfTree of_tree) {
  const unsigned lane = thread_index() % kTreeLanes;
  float sum = 0;
#pragma unroll 1
  for (unsigned first = 0; first < trees; first += steps.trees()) {
    const bool is_there = lane < steps.trees() && first + lane < trees;
    sum += tree_of_lanes(is_there ? of_tree(first + lane) : 0.0f);
  }
  return sum;
}

ARLAB_DEVICE RowRoot root_of(const TailSteps& steps, const TailCall& tail, float squares) {
  const float mean = squares / static_cast<float>(tail.hidden) + tail.eps;
  if (steps.root == TailSteps::Root::rsqrt) return {0.0f, approximate_rsqrt(mean)};
  const float root = square_root(mean);
  return {root, 1.0f / root};
}

/// `count` weights from an element of the row on, in fp32.
template <class Element>
ARLAB_DEVICE Pack8<Element> load_weights(const TailSteps& steps, const TailCall& tail,
                                         std::size_t at, std::size_t count) {
  if (!steps.normalizes || tail.weight == nullptr) return {};
  const auto* row = global_pointer(static_cast<const typename Element::Bits*>(tail.weight));
  return load_elements<Element>(row + at, count);
}

/// Outputs of eight elements.
template <class Element>
ARLAB_DEVICE Pack8<Element> normalized(const TailSteps& steps, const TailCall& tail,
                                       const RowPack<Element>& x, const Pack8<Element>& weights,
                                       const RowRoot& root) {
  using Weight = TailSteps::Weight;
  if (!steps.normalizes) return x.of_dtype;
  const auto scaled = [&](float value) ARLAB_INLINED_LAMBDA {
    return steps.root == TailSteps::Root::divide ? value / root.root : value * root.inverse;
  };
  const Float8 stored = to_floats(weights);
  const Float8 scaled_values = steps.rounds_scaled ? to_floats(x.of_dtype) : x.value;
  Float8 weight;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i)
    weight.value[i] = tail.weight == nullptr ? 1.0f
                      : steps.has_offset     ? stored.value[i] + 1.0f
                                             : stored.value[i];  // + 0 would change -0
  Float8 y;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    const float value = scaled_values.value[i];
    y.value[i] = scaled(steps.weight == Weight::first ? value * weight.value[i] : value);
  }
  if (steps.weight == Weight::twice) y = to_floats(from_floats<Element>(y));
  if (steps.weight != Weight::first) {
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) y.value[i] *= weight.value[i];
  }
  return from_floats<Element>(y);
}

/// The first `count` of eight codes of what comes out. `scale` is the row's; of a given one its inverse.
template <class Element>
ARLAB_DEVICE void store_fp8(const TailSteps& steps, const Pack8<Element>& y, float scale,
                            std::uint8_t* to, std::size_t count) {
  Float8 x = to_floats(y);
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    x.value[i] = steps.fp8 == TailSteps::Fp8::given ? Fp8RowsFormat::of_given(x.value[i], scale)
                                                    : Fp8RowsFormat::of_row(x.value[i], scale);
  }
#if defined(ARLAB_HAS_FP8_CONVERSIONS)
  const Codes8 codes = minifloat_codes(kE4m3fn, x);
#else
  Codes8 codes;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i)
    codes.set(i, minifloat_code(kE4m3fn, x.value[i]).bits);
#endif
  if (count != 0) store_planes(codes, 8, to, 0, 0, count);
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

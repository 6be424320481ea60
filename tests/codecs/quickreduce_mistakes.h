// The scalar QuickReduce codecs once more, with a choice of mistakes (quickreduce_mistakes.toml), and
// what those call.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "reference/codecs/registry.h"
#include "reference/codecs/scaled_format.h"

namespace arlab {

/// The name of quickreduce_codecs() of reference/codecs/quickreduce.cc in that copy.
CodecFamily mistaken_quickreduce_codecs();

namespace testing {

/// The mistake that they make: its place in the list, from 1; 0 is none.
extern int quickreduce_mistake;
extern const std::vector<std::string_view> kQuickReduceMistakes;

template <class Arithmetic>
bool is_finite(std::uint16_t bits) {
  return (bits & Arithmetic::kMagnitude) < Arithmetic::kInfinity;
}
template <class Arithmetic>
std::uint16_t towards_zero(std::uint16_t rounded, float exact) {
  return std::abs(Arithmetic::to_float(rounded)) > std::abs(exact)
             ? static_cast<std::uint16_t>(rounded - 1)
             : rounded;
}
template <class Arithmetic>
std::uint16_t without_nan(std::uint16_t bits) {
  return (bits & Arithmetic::kMagnitude) > Arithmetic::kInfinity ? 0 : bits;
}
template <class Arithmetic>
std::uint16_t without_infinity(std::uint16_t bits) {
  return static_cast<std::uint16_t>(
      bits - ((bits & Arithmetic::kMagnitude) == Arithmetic::kInfinity ? 1 : 0));
}
template <class Arithmetic>
std::uint16_t without_subnormal(std::uint16_t bits) {
  // The exponent's field is the same in infinities.
  return (bits & Arithmetic::kInfinity) == 0 ? bits & 0x8000 : bits;
}

// Both blocks of a group, of which the codec sees one at a time.
inline std::array<std::uint16_t, 64> looked_at = {};
inline void look_at_group(std::span<const std::uint16_t> x, std::size_t first) {
  for (std::size_t i = 0; i < looked_at.size(); ++i) {
    looked_at[i] = first + i < x.size() ? x[first + i] : 0;
  }
}
template <class Arithmetic>
bool group_is_finite() {
  return std::ranges::all_of(looked_at, is_finite<Arithmetic>);
}
template <class Arithmetic, class ExtremeOf>
std::uint16_t extreme_of_group(ExtremeOf extreme_of, const std::uint16_t (&own)[32]) {
  std::uint16_t halves[2][32];
  for (std::size_t i = 0; i < 64; ++i) halves[i / 32][i % 32] = looked_at[i];
  if (!group_is_finite<Arithmetic>()) return extreme_of(own);
  std::uint16_t extremes[32];
  std::fill_n(extremes, 32, extreme_of(halves[0]));
  extremes[1] = extreme_of(halves[1]);
  return extreme_of(extremes);
}

/// -L .. L - 1; 0 of floats.
template <class Code>
int levels_of() {
  return static_cast<int>(-Code::decode(0));
}
template <class Code>
bool is_outside(float w) {
  const auto levels = static_cast<float>(levels_of<Code>());
  if (levels > 0) return !(w >= -levels && w <= levels - 1);
  return !(std::abs(w) <= (Code::kSignedScale ? 6.0f : 240.0f));
}

enum class Rounding { towards_zero, ties_away, ties_up };
template <class Code>
ScaledCode rounded_otherwise(float w, Rounding how) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float below = -kInfinity;
  float above = kInfinity;
  const int levels = levels_of<Code>();
  for (std::uint32_t code = 0; code < (levels > 0 ? 2u * static_cast<unsigned>(levels) : 256u);
       ++code) {
    const float value = Code::decode(code);
    if (value <= w) below = std::max(below, value);
    if (value >= w) above = std::min(above, value);
  }
  ScaledCode code = Code::encode(w);
  if (std::isinf(below) || std::isinf(above)) return code;
  const bool is_tie = w - below == above - w;
  if (how != Rounding::towards_zero && !is_tie) return code;
  const bool takes_above = how == Rounding::ties_up || (w < 0) == (how == Rounding::towards_zero);
  // -0 where the format has it.
  code.bits = Code::encode(std::copysign(takes_above ? above : below, w)).bits;
  return code;
}
template <class Code>
ScaledCode wrapped(float w) {
  ScaledCode code = Code::encode(w);
  const int levels = levels_of<Code>();
  if (levels == 0 || std::isnan(w)) return code;
  const auto rounded = static_cast<int>(std::nearbyint(std::clamp(w, -65504.0f, 65504.0f)));
  code.bits = static_cast<std::uint32_t>(rounded + levels) % (2u * static_cast<unsigned>(levels));
  return code;
}
template <class Code>
ScaledCode without_lowest(float w) {
  ScaledCode code = Code::encode(w);
  if (levels_of<Code>() > 0) code.bits = std::max(code.bits, 1u);
  return code;
}
template <class Code>
ScaledCode with_highest_for_nan(float w) {
  return levels_of<Code>() > 0 && std::isnan(w) ? Code::encode(1e9f) : Code::encode(w);
}
template <class Code>
ScaledCode with_larger_bias(float w) {
  ScaledCode code = Code::encode(w);
  const auto levels = static_cast<unsigned>(levels_of<Code>());
  if (levels > 0) code.bits = (code.bits + 1) % (2 * levels);
  return code;
}

template <std::size_t kAtom>
std::array<std::uint8_t, kAtom> threads_reversed(std::array<std::uint8_t, kAtom> codes) {
  for (std::size_t t = 0; t < kAtom; t += 8) std::reverse(&codes[t], &codes[t] + 8);
  return codes;
}

}  // namespace testing
}  // namespace arlab

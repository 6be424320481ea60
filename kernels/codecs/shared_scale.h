// shared-int<w>-g<G> on GPUs: reference/codecs/SPEC.md, "Shared scales (shared-int)". G = 8, 16, ... 256: a group of lanes.
//
// An all-reduce is a row of kernels. The largest magnitudes of groups are measured; a program makes the largest of all ranks of
// them; elements become codes, where the output will be; a program adds the codes up; and codes become elements. In between, codes
// are the elements, so that any program adds them as it adds elements. In other collectives a message is encoded by what it
// measures itself.
#pragma once

#include "kernels/codecs/device_codec.h"
#include "kernels/codecs/plain.h"
#include "kernels/codecs/wire_piece.h"
#include "reference/codecs/formats/shared_integers.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Largest magnitudes as elements: they are added by taking the larger. No number is below 0, so their bits have the same order.
struct Maximum : Fp32 {
  static constexpr bool kAddsWords = true;
  ARLAB_DEVICE static std::uint32_t add_words(std::uint32_t a, std::uint32_t b) {
    return a > b ? a : b;
  }
};
/// Codes as elements, of 16 bits or of 32: as many as the elements of the tensor have.
struct Codes16 {
  using Bits = std::uint16_t;
  static constexpr bool kAddsWords = true;
  static constexpr DType kDType = DType::fp32;  // none of what elements of 16 bits have is meant
  static constexpr std::size_t kWords = 4;
  ARLAB_DEVICE static std::uint32_t add_words(std::uint32_t a, std::uint32_t b) {
    return ((a & 0x7FFF7FFFu) + (b & 0x7FFF7FFFu)) ^ ((a ^ b) & 0x80008000u);
  }
};
struct Codes32 {
  using Bits = float;  // as fp32 has them
  static constexpr bool kAddsWords = true;
  static constexpr DType kDType = DType::fp32;
  static constexpr std::size_t kWords = 8;
  ARLAB_DEVICE static std::uint32_t add_words(std::uint32_t a, std::uint32_t b) { return a + b; }
};
/// As that of numbers, of elements that say how their words are added.
template <class Element, bool Clamp>
  requires requires { Element::kAddsWords; }
ARLAB_DEVICE Pack8<Element> add(const Pack8<Element>& a, const Pack8<Element>& b) {
  Pack8<Element> sum;
#pragma unroll
  for (std::size_t i = 0; i < Element::kWords; ++i) {
    sum.word[i] = Element::add_words(a.word[i], b.word[i]);
  }
  return sum;
}

template <class Element>
using CodesOf = std::conditional_t<Element::kWords == 4, Codes16, Codes32>;

template <class Codes>
ARLAB_DEVICE std::int32_t code_at(const Pack8<Codes>& codes, std::size_t i) {
  if constexpr (Codes::kWords == 8) return static_cast<std::int32_t>(codes.word[i]);
  return static_cast<std::int16_t>(element_bits(codes, i));
}
template <class Codes>
ARLAB_DEVICE void set_code(Pack8<Codes>& codes, std::size_t i, std::int32_t code) {
  const auto bits = static_cast<std::uint32_t>(code);
  if constexpr (Codes::kWords == 8) {
    codes.word[i] = bits;
  } else {
    codes.word[i / 2] |= (bits & 0xFFFF) << (i % 2 * 16);
  }
}

/// The codes of a message on the wire: planes of their low eight bits, and of those above.
struct SharedPlanes {
  SharedIntegers format;

  struct Encoded {
    Codes8 low;
    Codes8 high;
  };

  ARLAB_HOST_DEVICE std::size_t code_bytes(std::size_t elements) const {
    return bytes_of_planes(elements, format.low_bits()) +
           bytes_of_planes(elements, format.high_bits());
  }
  template <class Codes>
  ARLAB_DEVICE Encoded split(const Pack8<Codes>& codes) const {
    Encoded e;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const auto bits = static_cast<std::uint32_t>(code_at(codes, i)) & ((1u << format.bits) - 1);
      e.low.set(i, bits & 0xFF);
      e.high.set(i, bits >> 8);
    }
    return e;
  }
  template <class Codes>
  ARLAB_DEVICE Pack8<Codes> join(const Encoded& e) const {
    const std::int32_t sign = 1 << (format.bits - 1);
    Pack8<Codes> codes;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const auto bits = static_cast<std::int32_t>(e.low[i] | e.high[i] << 8);
      set_code(codes, i, (bits ^ sign) - sign);
    }
    return codes;
  }
  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    if (at.count() == 0) return;
    store_planes(e.low, format.low_bits(), wire, at.elements, at.first, at.count());
    store_planes(e.high, format.high_bits(), wire + bytes_of_planes(at.elements, format.low_bits()),
                 at.elements, at.first, at.count());
  }
  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    if (at.count() == 0) return {};
    return {load_planes(format.low_bits(), wire, at.elements, at.first, at.count()),
            load_planes(format.high_bits(), wire + bytes_of_planes(at.elements, format.low_bits()),
                        at.elements, at.first, at.count())};
  }
};

/// Kernels' form of codes that all ranks encode by the same scales, which do not travel.
template <class Codes>
struct SharedCodes : SharedPlanes {
  static constexpr Tuning kTuning = {};
  static constexpr bool kClampsFp16Sums = false;

  ARLAB_HOST_DEVICE explicit SharedCodes(const SharedIntegers& integers) : SharedPlanes{integers} {}

  ARLAB_HOST_DEVICE std::size_t wire_bytes(std::size_t elements) const {
    return code_bytes(elements);
  }
  ARLAB_DEVICE Encoded encode(const Pack8<Codes>& codes, Position) const { return split(codes); }
  ARLAB_DEVICE Pack8<Codes> decode(const Encoded& e, Position) const { return join<Codes>(e); }
};

/// Measurement of a group of lanes: its largest magnitude, an infinity for a NaN, as bits.
template <class Element>
ARLAB_DEVICE std::uint32_t largest_magnitude(const Pack8<Element>& x, std::size_t count,
                                             int lanes) {
  std::uint32_t largest = 0;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    const std::uint32_t magnitude = float_bits(Element::to_float(element_bits(x, i))) & 0x7FFFFFFFu;
    if (i < count) largest = max_of(largest, magnitude);
  }
  largest =
      group_reduce(largest, lanes, [](std::uint32_t a, std::uint32_t b) { return max_of(a, b); });
  return largest < 0x7F800000u ? largest : 0x7F800000u;
}
template <class Element>
ARLAB_DEVICE Pack8<CodesOf<Element>> codes_of_elements(const Pack8<Element>& x, float scale) {
  Pack8<CodesOf<Element>> codes;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    // The quotient is not beyond the limit, but where the scale is 0 or a NaN: then codes are 0.
    const float quotient = Element::to_float(element_bits(x, i)) / scale;
    const auto rounded = static_cast<std::int16_t>(float_bits(quotient + 0x1.8p23f));
    set_code(codes, i, scale > 0 ? rounded : 0);
  }
  return codes;
}
template <class Element>
ARLAB_DEVICE Pack8<Element> elements_of_codes(const Pack8<CodesOf<Element>>& codes, float scale) {
  Float8 x;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    x.value[i] = static_cast<float>(code_at(codes, i)) * scale;
  }
  return from_floats<Element>(x);
}

/// A message that is encoded by its own scales, which are behind its codes.
template <class Element>
struct SharedAlone : SharedPlanes {
  static constexpr Tuning kTuning = {};
  static constexpr bool kClampsFp16Sums = false;

  struct Encoded {
    SharedPlanes::Encoded codes;
    std::uint16_t scale = 0;
  };

  ARLAB_HOST_DEVICE explicit SharedAlone(const SharedIntegers& integers) : SharedPlanes{integers} {}

  ARLAB_HOST_DEVICE std::size_t wire_bytes(std::size_t elements) const {
    return code_bytes(elements) + 2 * ((elements + format.group - 1) / format.group);
  }
  ARLAB_DEVICE Encoded encode(const Pack8<Element>& x, Position at,
                              const EncodeContext& context) const {
    const auto lanes = static_cast<int>(format.group / kPerThread);
    const float largest = float_of(largest_magnitude(x, at.count(), lanes));
    const std::uint16_t bits =
        SharedIntegers::scale_bits(largest, format.limit(context.world_size));
    return {split(codes_of_elements(x, Bf16::to_float(bits))), bits};
  }
  ARLAB_DEVICE Pack8<Element> decode(const Encoded& e, Position) const {
    return elements_of_codes<Element>(join<CodesOf<Element>>(e.codes), Bf16::to_float(e.scale));
  }
  ARLAB_DEVICE void store(const Encoded& e, std::uint8_t* wire, Position at) const {
    SharedPlanes::store(e.codes, wire, at);
    if (at.count() == 0 || at.first % format.group != 0) return;
    store_word(wire + code_bytes(at.elements) + at.first / format.group * 2, e.scale);
  }
  ARLAB_DEVICE Encoded load(const std::uint8_t* wire, Position at) const {
    if (at.count() == 0) return {};
    return {SharedPlanes::load(wire, at),
            load_word<std::uint16_t>(wire + code_bytes(at.elements) + at.first / format.group * 2)};
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// Eight consecutive elements of a payload (Pack8): what one thread holds.
//
// A tile is what one block of 256 threads works on: 2048 consecutive elements, thread t has
// elements 8t .. 8t + 7. A codec's group of G elements is G / 8 consecutive lanes.
#pragma once

#include "kernels/platform/platform.h"
#include "reference/codecs/context.h"
#include "reference/formats/payload_arithmetic.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

inline constexpr std::size_t kPerThread = 8;
inline constexpr std::size_t kTile = kPerThread * kThreads;

inline constexpr std::uint32_t kNanBits = 0x7FC00000u;  // the canonical fp32 NaN

ARLAB_DEVICE std::uint32_t float_bits(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
ARLAB_DEVICE float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
ARLAB_DEVICE bool is_finite(float value) {
  return (float_bits(value) & 0x7F800000u) != 0x7F800000u;
}
ARLAB_DEVICE float magnitude_of(float value) { return __builtin_fabsf(value); }

// ---------------------------------------------------------------- dtypes
// As in reference/formats/payload_arithmetic.h, with the processor's conversions where they are
// exact. A NaN that leaves is the canonical one.

struct Fp16 : Fp16Arithmetic {
  static constexpr std::size_t kWords = 4;  // words of eight elements
  ARLAB_DEVICE static float to_float(std::uint32_t bits) {
#if defined(__HIP__)
    return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<std::uint16_t>(bits)));
#elif !defined(__HIP_PLATFORM_HOST__)
    return float_of_half(static_cast<std::uint16_t>(bits));
#else
    return half_to_float(static_cast<std::uint16_t>(bits));
#endif
  }
  ARLAB_DEVICE static std::uint32_t from_float(float value) {
#if defined(__HIP__)
    const std::uint32_t bits = __builtin_bit_cast(std::uint16_t, static_cast<_Float16>(value));
#elif !defined(__HIP_PLATFORM_HOST__)
    const std::uint32_t bits = half_of_float(value);
#else
    const std::uint32_t bits = half_from_float(value);
#endif
    return (bits & kMagnitude) > kInfinity ? kNaN : bits;
  }
  /// As from_float, but a finite value that overflows becomes +-65504.
  ARLAB_DEVICE static std::uint32_t from_float_clamped(float value) {
    const std::uint32_t bits = from_float(value);
    return bits - ((bits & kMagnitude) == kInfinity && is_finite(value) ? 1 : 0);
  }
};

struct Bf16 : Bf16Arithmetic {
  static constexpr std::size_t kWords = 4;
  ARLAB_DEVICE static float to_float(std::uint32_t bits) { return float_of(bits << 16); }
  ARLAB_DEVICE static std::uint32_t from_float(float value) {
    const std::uint32_t bits = float_bits(value);
    const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7FFFFFFFu) > 0x7F800000u ? kNaN : rounded;
  }
  ARLAB_DEVICE static std::uint32_t from_float_clamped(float value) { return from_float(value); }
};

struct Fp32 {
  using Bits = float;
  static constexpr DType kDType = DType::fp32;
  static constexpr std::size_t kWords = 8;
  ARLAB_DEVICE static float to_float(std::uint32_t bits) { return float_of(bits); }
  ARLAB_DEVICE static std::uint32_t from_float(float value) {
    return value == value ? float_bits(value) : kNanBits;
  }
  ARLAB_DEVICE static std::uint32_t from_float_clamped(float value) { return from_float(value); }
};

/// Calls f with the codec, made of its parameters, and the arithmetic of the dtype.
template <template <class> class Codec, class Parameters, class F>
void with_parameters(const Parameters& parameters, DType dtype, F&& f) {
  if (dtype == DType::fp16) f(Codec<Fp16>(parameters), Fp16());
  if (dtype == DType::bf16) f(Codec<Bf16>(parameters), Bf16());
  if (dtype == DType::fp32) f(Codec<Fp32>(parameters), Fp32());
}

// ---------------------------------------------------------------- eight elements

/// Words as they lie in memory: two elements each, or one of fp32.
template <class Element>
struct Pack8 {
  std::uint32_t word[Element::kWords] = {};
};

/// The bits of element i.
template <class Element>
ARLAB_DEVICE std::uint32_t element_bits(const Pack8<Element>& x, std::size_t i) {
  if constexpr (Element::kWords == 8) {
    return x.word[i];
  } else {
    return i % 2 == 0 ? x.word[i / 2] & 0xFFFF : x.word[i / 2] >> 16;
  }
}

struct Float8 {
  float value[kPerThread];
};

template <class Element>
ARLAB_DEVICE Float8 to_floats(const Pack8<Element>& x) {
  Float8 floats;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i)
    floats.value[i] = Element::to_float(element_bits(x, i));
  return floats;
}

template <class Element>
ARLAB_DEVICE constexpr float largest_finite() {
  if constexpr (Element::kDType == DType::fp16) return 65504.0f;
  return Element::kDType == DType::bf16 ? 0x1.FEp127f : 0x1.FFFFFEp127f;
}

/// Numbers beyond +-limit, infinities too, become that number; a NaN stays.
ARLAB_DEVICE float limited(float value, float limit) {
  const float below = value > limit ? limit : value;
  return below < -limit ? -limit : below;
}

/// There are packed sums and products, of two elements at a time.
template <class Element>
inline constexpr bool kHasPackedArithmetic =
    Element::kDType == DType::fp16 || (Element::kDType == DType::bf16 && kHasBfloat2Arithmetic);

/// 0xFFFF in halves whose values are equal.
template <class Element>
ARLAB_DEVICE std::uint32_t equal_pair(std::uint32_t a, std::uint32_t b) {
  if constexpr (Element::kDType == DType::fp16) return equal_half2(a, b);
  return equal_bfloat2(a, b);
}
/// Two floats as a pair, each rounded to the dtype; a NaN becomes any NaN.
template <class Element>
ARLAB_DEVICE std::uint32_t pair_of_floats(float low, float high) {
  if constexpr (Element::kDType == DType::fp16) return half2_of_floats(low, high);
  return bfloat2_of_floats(low, high);
}
/// The same with the canonical NaN.
template <class Element>
ARLAB_DEVICE std::uint32_t word_of_floats(float low, float high) {
  const std::uint32_t word = pair_of_floats<Element>(low, high);
  const std::uint32_t numbers = equal_pair<Element>(word, word);
  return (word & numbers) | (std::uint32_t{Element::kNaN} * 0x10001u & ~numbers);
}

/// Eight floats as elements, each rounded to the dtype; with Clamp, a finite fp16 that overflows
/// becomes +-65504.
template <class Element, bool Clamp = false>
ARLAB_DEVICE Pack8<Element> from_floats(const Float8& x) {
  Pack8<Element> result;
  constexpr bool kClamps = Clamp && Element::kDType == DType::fp16;
  if constexpr (kHasPackedArithmetic<Element> && !kClamps) {
#pragma unroll
    for (std::size_t i = 0; i < 4; ++i)
      result.word[i] = word_of_floats<Element>(x.value[2 * i], x.value[2 * i + 1]);
    return result;
  }
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    const std::uint32_t bits =
        Clamp ? Element::from_float_clamped(x.value[i]) : Element::from_float(x.value[i]);
    if constexpr (Element::kWords == 8) {
      result.word[i] = bits;
    } else {
      result.word[i / 2] |= bits << (i % 2 * 16);
    }
  }
  return result;
}

/// Adds two pairs, one rounding each. A NaN becomes any NaN; for bf16 only where there is packed
/// arithmetic.
template <class Element>
ARLAB_DEVICE std::uint32_t add_pair(std::uint32_t a, std::uint32_t b) {
  if constexpr (Element::kDType == DType::fp16) return add_half2(a, b);
  return add_bfloat2(a, b);
}
template <class Element>
ARLAB_DEVICE std::uint32_t multiply_pair(std::uint32_t a, std::uint32_t b) {
  if constexpr (Element::kDType == DType::fp16) return multiply_half2(a, b);
  return multiply_bfloat2(a, b);
}

template <class Element>
ARLAB_DEVICE bool any_non_finite(const Pack8<Element>& x)
  requires kHasPackedArithmetic<Element>
{
  if constexpr (Element::kDType == DType::fp16) return any_non_finite_halves(x.word);
  return any_non_finite_bfloats(x.word);
}

/// a + b, one rounding per element, and no clamp: what overflows stays an infinity or becomes a NaN
/// (any), whatever is added later.
template <class Element>
ARLAB_DEVICE Pack8<Element> add_unchecked(const Pack8<Element>& a, const Pack8<Element>& b) {
  Pack8<Element> sum;
#pragma unroll
  for (std::size_t i = 0; i < 4; ++i) sum.word[i] = add_pair<Element>(a.word[i], b.word[i]);
  return sum;
}

/// a + b, one rounding to the dtype per element: reference/codecs/SPEC.md, "Accumulation".
template <class Element, bool Clamp>
ARLAB_DEVICE Pack8<Element> add(const Pack8<Element>& a, const Pack8<Element>& b) {
  if constexpr (kHasPackedArithmetic<Element>) {
    const Pack8<Element> sum = add_unchecked(a, b);
    if (!any_non_finite(sum)) return sum;
  }
  const Float8 x = to_floats(a);
  const Float8 y = to_floats(b);
  Float8 sum;
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) sum.value[i] = x.value[i] + y.value[i];
  return from_floats<Element, Clamp>(sum);
}

// ---------------------------------------------------------------- memory

/// The first `count` of eight elements at `address`, +0 behind them. 128 bits at a time where
/// the address allows it.
template <class Element>
ARLAB_DEVICE Pack8<Element> load_elements(const typename Element::Bits* address,
                                          std::size_t count) {
  Pack8<Element> x;
  if (count == kPerThread && reinterpret_cast<std::uintptr_t>(address) % 16 == 0) {
#pragma unroll
    for (std::size_t i = 0; i < Element::kWords; i += 4) {
      const Uint4 words = load_128(reinterpret_cast<const std::uint32_t*>(address) + i);
#pragma unroll
      for (std::size_t j = 0; j < 4; ++j) x.word[i + j] = words.word[j];
    }
    return x;
  }
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    if (i >= count) continue;
    if constexpr (Element::kWords == 8) {
      x.word[i] = float_bits(address[i]);
    } else {
      x.word[i / 2] |= static_cast<std::uint32_t>(address[i]) << (i % 2 * 16);
    }
  }
  return x;
}

template <class Element>
ARLAB_DEVICE void store_elements(typename Element::Bits* address, const Pack8<Element>& x,
                                 std::size_t count) {
  if (count == kPerThread && reinterpret_cast<std::uintptr_t>(address) % 16 == 0) {
#pragma unroll
    for (std::size_t i = 0; i < Element::kWords; i += 4) {
      Uint4 words;
#pragma unroll
      for (std::size_t j = 0; j < 4; ++j) words.word[j] = x.word[i + j];
      store_128(reinterpret_cast<std::uint32_t*>(address) + i, words);
    }
    return;
  }
#pragma unroll
  for (std::size_t i = 0; i < kPerThread; ++i) {
    if (i >= count) continue;
    if constexpr (Element::kWords == 8) {
      address[i] = float_of(x.word[i]);
    } else {
      address[i] = static_cast<std::uint16_t>(element_bits(x, i));
    }
  }
}

/// Loads all eight elements, at an address that is a multiple of 16, of a tensor that the kernel
/// reads, or writes, once.
template <class Element>
ARLAB_DEVICE Pack8<Element> load_whole(const typename Element::Bits* address) {
  Pack8<Element> x;
#pragma unroll
  for (std::size_t i = 0; i < Element::kWords; i += 4) {
    const Uint4 words = load_128_once(reinterpret_cast<const std::uint32_t*>(address) + i);
#pragma unroll
    for (std::size_t j = 0; j < 4; ++j) x.word[i + j] = words.word[j];
  }
  return x;
}
template <class Element>
ARLAB_DEVICE void store_whole(typename Element::Bits* address, const Pack8<Element>& x) {
#pragma unroll
  for (std::size_t i = 0; i < Element::kWords; i += 4) {
    Uint4 words;
#pragma unroll
    for (std::size_t j = 0; j < 4; ++j) words.word[j] = x.word[i + j];
    store_128_once(reinterpret_cast<std::uint32_t*>(address) + i, words);
  }
}

/// Little-endian bytes of a wire, in one access where the address allows it, as kAligned ones do.
template <bool kAligned = false, class Word>
ARLAB_DEVICE void store_word(std::uint8_t* address, Word word) {
  if (kAligned || reinterpret_cast<std::uintptr_t>(address) % sizeof(Word) == 0) {
    *reinterpret_cast<Word*>(address) = word;
  } else if constexpr (!kAligned) {
    for (std::size_t i = 0; i < sizeof(Word); ++i) {
      address[i] = static_cast<std::uint8_t>(word >> (8 * i));
    }
  }
}
template <class Word, bool kAligned = false>
ARLAB_DEVICE Word load_word(const std::uint8_t* address) {
  if (kAligned || reinterpret_cast<std::uintptr_t>(address) % sizeof(Word) == 0) {
    return *reinterpret_cast<const Word*>(address);
  }
  Word word = 0;
  if constexpr (!kAligned) {
    for (std::size_t i = 0; i < sizeof(Word); ++i) {
      word = static_cast<Word>(word | static_cast<Word>(static_cast<Word>(address[i]) << (8 * i)));
    }
  }
  return word;
}

/// A range of a tensor's elements: a chunk, a message.
struct ElementRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  ARLAB_HOST_DEVICE std::size_t size() const { return end - begin; }
};

/// Where a thread's eight elements are in the message whose wire is written or read.
struct Position {
  std::size_t elements;  ///< elements of the message
  std::size_t first;     ///< this thread's first element, from the start of the message

  /// How many of the eight are in the message.
  ARLAB_DEVICE std::size_t count() const {
    if (first >= elements) return 0;
    return elements - first < kPerThread ? elements - first : kPerThread;
  }
  /// Whether all of the tile is. The same for all threads of a block.
  ARLAB_DEVICE bool is_in_whole_tile() const { return (first | (kTile - 1)) < elements; }
};

/// The random bits of a thread's elements, of a message that stands there.
struct RandomBits {
  const EncodeContext& context;
  std::size_t first;
  ARLAB_DEVICE std::uint32_t operator()(std::size_t i) const {
    return random_bits(context, first + i);
  }
};

/// The same where the message begins at a multiple of 8: its elements have counters that differ in the last three bits, and share
/// what compilers take out of the first two rounds.
struct RandomBitsOfEight {
  PhiloxCounter counter;
  std::uint64_t seed;

  ARLAB_DEVICE static bool is_for(const EncodeContext& context) {
    return context.position % kPerThread == 0;
  }
  ARLAB_DEVICE RandomBitsOfEight(const EncodeContext& context, std::size_t first)
      : seed(context.seed) {
    const std::uint64_t position = context.position + first;
    const auto above = static_cast<std::uint32_t>(position >> 32) << 16;
    counter = {
        {static_cast<std::uint32_t>(position), context.rank ^ above, context.step, context.call}};
  }
  ARLAB_DEVICE std::uint32_t operator()(std::size_t i) const {
    PhiloxCounter of_element = counter;
    of_element.word[0] |= static_cast<std::uint32_t>(i);
    return philox4x32(of_element, seed).word[0] >> 8;
  }
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

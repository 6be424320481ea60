// Vectors of payload elements: conversions and roundings with the bits of reference/formats.
//
// For AVX2, with vectors of 256 bits, and NEON, with 128: ARLAB_HAS_LANES. Elsewhere there is
// nothing here, and a codec's functions pass on to the scalar codec. With 512 bits, the few codes
// of a block would no longer fill a vector. Every operation rounds once; see arlab_exact_arithmetic
// in CMakeLists.txt.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_LANES_INL_H_
#undef ARLAB_CODECS_SIMD_LANES_INL_H_
#else
#define ARLAB_CODECS_SIMD_LANES_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/contrib/algo/find-inl.h"
#include "hwy/highway.h"
#include "reference/formats/payload_arithmetic.h"

#undef ARLAB_HAS_LANES
#undef ARLAB_AVX2
#define ARLAB_AVX2 (HWY_TARGET == HWY_AVX2)
#define ARLAB_HAS_LANES (ARLAB_AVX2 || (HWY_ARCH_ARM_A64 && HWY_MAX_BYTES == 16))

// Dispatch would prefer such a target to AVX2 or NEON, and the codecs would run without vectors.
#if !ARLAB_HAS_LANES && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
#error \
    "Highway compiles a target without vectors here: reference/codecs/simd/targets.h must disable it"
#endif

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ---------------------------------------------------------------- the vectors

using F32 = hn::CappedTag<float, 8>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using I16 = hn::Repartition<std::int16_t, F32>;
using U16 = hn::Repartition<std::uint16_t, F32>;
using U8 = hn::Repartition<std::uint8_t, F32>;
using I8 = hn::Repartition<std::int8_t, F32>;
using U64 = hn::Repartition<std::uint64_t, F32>;

/// 16-bit and 8-bit elements, as many as an F32 has lanes: half and a quarter of a vector.
using HalfU16 = hn::Rebind<std::uint16_t, F32>;
using QuarterU8 = hn::Rebind<std::uint8_t, F32>;

using FloatVector = hn::Vec<F32>;
using Int32Vector = hn::Vec<I32>;
using Uint32Vector = hn::Vec<U32>;
using Int16Vector = hn::Vec<I16>;
using Uint16Vector = hn::Vec<U16>;
using ByteVector = hn::Vec<U8>;
using HalfUint16Vector = hn::Vec<HalfU16>;

inline constexpr std::size_t kFloats = hn::MaxLanes(F32());  // 4 or 8
inline constexpr std::size_t kBytes = 4 * kFloats;

// Single instructions of AVX2 for what Highway's portable operations surround with fix-ups.

/// RN to an integer, for |x| < 2^31.
HWY_INLINE Int32Vector nearest_int(FloatVector x) {
#if ARLAB_AVX2
  return Int32Vector{_mm256_cvtps_epi32(x.raw)};
#else
  return hn::NearestInt(x);
#endif
}

/// Both vectors saturated to 16 bits, block by block: the first 128-bit block holds the first of
/// `low`, then the first of `high`, and so on. For 128-bit vectors that is their order.
HWY_INLINE Int16Vector narrow_blocks(Int32Vector low, Int32Vector high) {
  return hn::ReorderDemote2To(I16(), low, high);
}

/// Both vectors saturated to 0 .. 255, block by block.
HWY_INLINE ByteVector narrow_blocks(Int16Vector low, Int16Vector high) {
#if ARLAB_AVX2
  return ByteVector{_mm256_packus_epi16(low.raw, high.raw)};
#else
  const hn::Half<U8> half;
  return hn::Combine(U8(), hn::DemoteTo(half, high), hn::DemoteTo(half, low));
#endif
}

/// kLow * x[2i] + kHigh * x[2i + 1].
template <std::int16_t kLow, std::int16_t kHigh>
HWY_INLINE Int32Vector weighted_pairs(Int16Vector x) {
#if ARLAB_AVX2
  return Int32Vector{_mm256_madd_epi16(x.raw, _mm256_set1_epi32(kHigh * 65536 + kLow))};
#else
  const Int32Vector both = hn::BitCast(I32(), x);
  const Int32Vector low = hn::ShiftRight<16>(hn::ShiftLeft<16>(both));
  return hn::Add(hn::Mul(low, hn::Set(I32(), kLow)),
                 hn::Mul(hn::ShiftRight<16>(both), hn::Set(I32(), kHigh)));
#endif
}

/// Puts bytes in order that went through narrow_blocks twice.
HWY_INLINE ByteVector ordered_bytes(ByteVector blocks) {
  if constexpr (kFloats != 8) return blocks;
  alignas(32) static constexpr std::int32_t kOrder[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  const auto order = hn::SetTableIndices(U32(), kOrder);
  return hn::BitCast(U8(), hn::TableLookupLanes(hn::BitCast(U32(), blocks), order));
}

HWY_INLINE Uint32Vector bits_of(FloatVector x) { return hn::BitCast(U32(), x); }
HWY_INLINE FloatVector float_of(Uint32Vector bits) { return hn::BitCast(F32(), bits); }

/// Any NaN becomes the canonical one.
HWY_INLINE FloatVector canonical(FloatVector x) {
  return hn::IfThenElse(hn::Eq(x, x), x, float_of(hn::Set(U32(), 0x7FC00000)));
}

// ---------------------------------------------------------------- dtypes
// Each has load() and store() of consecutive elements, and those of 16 bits:
//   to_float    the exact value; a NaN is made quiet (fp16) or left as it is (bf16)
//   from_float  RN; overflow to infinity; a NaN stays some NaN, the canonical one that
//   round       as the `round` of the scalar QuickReduce arithmetic: canonical NaN, fp16 clamped

/// RN of a float to 24 - k significant bits, with an exponent without limits: k = 13 gives those of
/// fp16, 16 those of bf16. For |x| < 2^100 whose significand has at most 23 bits (products of two
/// fp16 have at most 22, of two bf16 16). A zero becomes +0, and so may what is below 2^-100.
///
/// Why: let 2^b <= |x| < 2^(b+1) and s = x * 2^k, made by adding k to the exponent. The sum x + s
/// is rounded to a multiple of u = 2^(b+k-23), the last of 24 - k places of x. s is an even
/// multiple of u, because the last of the 24 bits of x is 0; so ties go to where x / u is even, and
/// the difference is exact. If |x + s| reaches the next binade, it is rounded to a multiple of 2u,
/// of which s is one; but then x is within 2^-k of its binade's end, and both roundings give that
/// end.
template <int k>
HWY_INLINE FloatVector rounded_significand(FloatVector x) {
  const FloatVector shifted = float_of(hn::Add(bits_of(x), hn::Set(U32(), k << 23)));
  return hn::Sub(hn::Add(x, shifted), shifted);
}

/// Consecutive 16-bit elements.
template <class Lanes>
HWY_INLINE FloatVector load_elements(const std::uint16_t* from) {
  return Lanes::to_float(hn::LoadU(HalfU16(), from));
}
template <class Lanes>
struct WordLanes {
  using Element = std::uint16_t;
  static constexpr bool kIsWord = true;

  static bool is_finite(Element bits) { return (bits & 0x7FFF) < Lanes::kInfinity; }
  static HWY_INLINE FloatVector load(const Element* from) { return load_elements<Lanes>(from); }
  static HWY_INLINE void store(FloatVector x, Element* to) {
    hn::StoreU(Lanes::from_float(x), HalfU16(), to);
  }
};

struct HalfLanes : WordLanes<HalfLanes> {
  using Arithmetic = Fp16Arithmetic;
  static constexpr std::uint16_t kInfinity = Arithmetic::kInfinity;
  static constexpr int kLostBits = 13;  // lost bits of the 24 of an fp32 significand
  static constexpr float kLargest = 65504.0f;
  static constexpr float kLargestPower = 15.99f;  // 2 to it is below kLargest

  static HWY_INLINE FloatVector to_float(HalfUint16Vector bits) {
    return hn::PromoteTo(F32(), hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), bits));
  }
  static HWY_INLINE HalfUint16Vector from_float(FloatVector x) {
    auto bits = hn::DemoteTo(hn::Rebind<hwy::float16_t, F32>(), x);
#if ARLAB_AVX2 && HWY_COMPILER_GCC
    // Keeps the compiler from merging it with a store: AMD's VCVTPS2PH to memory takes twice as
    // long as one to a register and a store.
    asm("" : "+x"(bits.raw));
#endif
    return hn::BitCast(HalfU16(), bits);
  }
  static HWY_INLINE HalfUint16Vector round(FloatVector x) {
    const auto is_infinite = hn::Eq(hn::Abs(x), hn::Inf(F32()));
    const FloatVector kept = hn::IfThenElse(is_infinite, x, clamped(x));
    return from_float(hn::IfThenElse(hn::Eq(x, x), kept, canonical(x)));
  }
  /// 1 / x as the encoder takes it: everything that overflows, 1 / 0 too, becomes +-65504.
  static HWY_INLINE HalfUint16Vector reciprocal(FloatVector x) {
    return from_float(clamped(hn::Div(hn::Set(F32(), 1.0f), x)));
  }

 private:
  static HWY_INLINE FloatVector clamped(FloatVector x) {
    const FloatVector largest = hn::Set(F32(), kLargest);
    return hn::Min(hn::Max(x, hn::Neg(largest)), largest);
  }
};

struct BfloatLanes : WordLanes<BfloatLanes> {
  using Arithmetic = Bf16Arithmetic;
  static constexpr std::uint16_t kInfinity = Arithmetic::kInfinity;
  static constexpr int kLostBits = 16;
  static constexpr float kLargest = 0x1.FEp127f;
  static constexpr float kLargestPower = 127.99f;

  static HWY_INLINE FloatVector to_float(HalfUint16Vector bits) {
    return float_of(hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
  }
  /// The upper 16 bits are the rounded value: what is above a half carries into them, and so does a
  /// half if they are odd.
  static HWY_INLINE HalfUint16Vector from_float(FloatVector x) {
    const Uint32Vector bits = bits_of(x);
    const Uint32Vector is_odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U32(), 1));
    return upper_words(hn::Add(bits, hn::Add(is_odd, hn::Set(U32(), 0x7FFF))));
  }
  static HWY_INLINE HalfUint16Vector round(FloatVector x) { return from_float(canonical(x)); }
  static HWY_INLINE HalfUint16Vector reciprocal(FloatVector x) {
    return from_float(hn::Div(hn::Set(F32(), 1.0f), x));
  }
  /// The upper 16 bits of every lane. Nothing saturates; a truncation would take more instructions.
  static HWY_INLINE HalfUint16Vector upper_words(Uint32Vector bits) {
    return hn::DemoteTo(HalfU16(), hn::BitCast(I32(), hn::ShiftRight<16>(bits)));
  }
};

struct FloatLanes {
  using Element = float;
  using Arithmetic = Fp32Arithmetic;
  static constexpr bool kIsWord = false;
  static constexpr float kLargest = std::numeric_limits<float>::max();
  static constexpr float kLargestPower = 127.99f;

  static bool is_finite(Element x) { return std::isfinite(x); }
  static HWY_INLINE FloatVector load(const Element* from) { return hn::LoadU(F32(), from); }
  static HWY_INLINE void store(FloatVector x, Element* to) { hn::StoreU(x, F32(), to); }
};

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES
#endif  // per-target include guard

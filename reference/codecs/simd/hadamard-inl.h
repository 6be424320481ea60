// Block Hadamard transform (../hadamard.h) with vectors.

// Per-target include guard, as in every -inl.h of Highway.
#if defined(ARLAB_CODECS_SIMD_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ARLAB_CODECS_SIMD_HADAMARD_INL_H_
#undef ARLAB_CODECS_SIMD_HADAMARD_INL_H_
#else
#define ARLAB_CODECS_SIMD_HADAMARD_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "reference/codecs/simd/lanes-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

/// Butterflies of a stride below the number of lanes: a + b in the lane of a, a - b = a + (-b) in
/// the lane of b, which is the same number.
template <std::size_t kStride>
HWY_INLINE FloatVector butterflies_within(FloatVector x) {
  constexpr std::uint32_t kSign = 0x80000000;
  alignas(32) static constexpr std::uint32_t kSigns[8] = {0,
                                                          kStride == 1 ? kSign : 0,
                                                          kStride == 2 ? kSign : 0,
                                                          kStride <= 2 ? kSign : 0,
                                                          kStride == 4 ? kSign : 0,
                                                          kStride != 2 ? kSign : 0,
                                                          kStride != 1 ? kSign : 0,
                                                          kSign};
  const FloatVector negated = float_of(hn::Xor(bits_of(x), hn::Load(U32(), kSigns)));
  if constexpr (kStride == 1) {
    return hn::Add(hn::Shuffle2301(x), negated);
  } else if constexpr (kStride == 2) {
    return hn::Add(hn::Shuffle1032(x), negated);
  } else {
    return hn::Add(hn::ConcatLowerUpper(F32(), x, x), negated);
  }
}

inline float hadamard_factor(std::size_t size) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
}

/// Butterflies between vectors of blocks of kVectors, from a stride of kStride vectors on.
template <std::size_t kVectors, std::size_t kStride = 1, std::size_t kCount>
HWY_INLINE void butterflies_between(FloatVector (&x)[kCount]) {
  if constexpr (kStride < kVectors) {
    for (std::size_t first = 0; first < kCount; first += 2 * kStride) {
      for (std::size_t i = first; i < first + kStride; ++i) {
        const FloatVector a = x[i];
        const FloatVector b = x[i + kStride];
        x[i] = hn::Add(a, b);
        x[i + kStride] = hn::Sub(a, b);
      }
    }
    butterflies_between<kVectors, 2 * kStride>(x);
  }
}

/// As many vectors as stay in registers.
inline constexpr std::size_t kHadamardVectors = 8;

/// Blocks of kVectors vectors, all strides within them, without the factor. Stage by stage: one
/// vector's stages wait for each other, so all vectors go through one before the next.
template <std::size_t kVectors, std::size_t kCount>
HWY_INLINE void transform_vectors(FloatVector (&x)[kCount]) {
  for (FloatVector& v : x) v = butterflies_within<1>(v);
  for (FloatVector& v : x) v = butterflies_within<2>(v);
  if constexpr (kFloats == 8) {
    for (FloatVector& v : x) v = butterflies_within<4>(v);
  }
  butterflies_between<kVectors>(x);
}

/// Transforms blocks of kVectors vectors: load(block, i) makes vector i of a block, and
/// store(block, i, vector) takes it. As many blocks at a time as registers hold.
template <std::size_t kVectors, class Load, class Store>
HWY_INLINE void transform_in_registers(std::size_t blocks, const Load& load, const Store& store) {
  static_assert(kVectors <= kHadamardVectors);
  const FloatVector factor = hn::Set(F32(), hadamard_factor(kVectors * kFloats));
  const auto transform = [&]<std::size_t kTogether>(std::size_t b) HWY_ATTR {
    FloatVector v[kTogether * kVectors];
    for (std::size_t i = 0; i < kTogether * kVectors; ++i)
      v[i] = load(b + i / kVectors, i % kVectors);
    transform_vectors<kVectors>(v);
    for (std::size_t i = 0; i < kTogether * kVectors; ++i) {
      store(b + i / kVectors, i % kVectors, hn::Mul(v[i], factor));
    }
  };
  constexpr std::size_t kTogether = kHadamardVectors / kVectors;
  std::size_t b = 0;
  for (; b + kTogether <= blocks; b += kTogether) transform.template operator()<kTogether>(b);
  for (; b < blocks; ++b) transform.template operator()<1>(b);
}

// ---------------------------------------------------------------- eight blocks of 32 side by side

#if ARLAB_AVX2
// Number e of eight blocks in vector e, one block per lane: then no butterfly is within a vector,
// which takes three operations instead of one, and nothing is reduced across lanes. Elements get
// there, and back, as 16-bit words or as codes, of which there are more in a vector.

inline constexpr std::size_t kSide = 8;        // blocks
inline constexpr std::size_t kSideBlock = 32;  // numbers of each

/// One of three steps that exchange rows and columns of 8 words, in both 128-bit parts.
HWY_INLINE void transpose_step(const Uint16Vector (&from)[8], Uint16Vector (&to)[8]) {
  for (std::size_t i = 0; i < 4; ++i) {
    to[2 * i] = hn::InterleaveLower(U16(), from[i], from[i + 4]);
    to[2 * i + 1] = hn::InterleaveUpper(U16(), from[i], from[i + 4]);
  }
}
/// row(i) makes row i; `columns` are written.
template <class Row>
HWY_INLINE void transpose_words(const Row& row, Uint16Vector (&columns)[8]) {
  Uint16Vector rows[8] = {row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)};
  transpose_step(rows, columns);
  transpose_step(columns, rows);
  transpose_step(rows, columns);
}

/// Where words 8 * row + i of eight blocks are, that transpose_words makes of each block's words
/// 16 * j .. 16 * j + 15, and takes: those of rows 2 * j and 2 * j + 1 share a vector.
constexpr std::size_t place_of_words(std::size_t row, std::size_t i) {
  return row / 2 * 128 + row % 2 * 8 + i * 16;
}

/// Rows and columns of 4 numbers of 32 bits exchanged, in both 128-bit parts.
HWY_INLINE void transpose_quads(Uint32Vector (&x)[4]) {
  const Uint32Vector a = hn::InterleaveLower(U32(), x[0], x[2]);
  const Uint32Vector b = hn::InterleaveUpper(U32(), x[0], x[2]);
  const Uint32Vector c = hn::InterleaveLower(U32(), x[1], x[3]);
  const Uint32Vector d = hn::InterleaveUpper(U32(), x[1], x[3]);
  x[0] = hn::InterleaveLower(U32(), a, c);
  x[1] = hn::InterleaveUpper(U32(), a, c);
  x[2] = hn::InterleaveLower(U32(), b, d);
  x[3] = hn::InterleaveUpper(U32(), b, d);
}

/// So many groups of eight blocks. For each, in this order: prepare(group); load(row, i) makes
/// vector 8 * row + i; store(row, i, vector) takes it transformed; finish(group). Stages of vectors
/// that are 1, 2 and 4 apart are done with all vectors of a row, then those of vectors that are 8
/// and 16 apart; between(group) is where vectors are in the meantime. The first stages of one group
/// are among the last of the group before: either alone waits for its own results.
template <class Prepare, class Between, class Load, class Store, class Finish>
HWY_INLINE void transform_side_by_side(std::size_t groups, const Prepare& prepare,
                                       const Between& between, const Load& load, const Store& store,
                                       const Finish& finish) {
  const FloatVector factor = hn::Set(F32(), hadamard_factor(kSideBlock));
  for (std::size_t group = 0; group <= groups; ++group) {
    const bool begins = group < groups;
    if (begins) prepare(group);
    for (std::size_t part = 0; part < 4; ++part) {
      if (begins) {
        float* const to = between(group) + 8 * part * kFloats;
        FloatVector v[8];
        for (std::size_t i = 0; i < 8; ++i) v[i] = load(part, i);
        butterflies_between<8>(v);
        for (std::size_t i = 0; i < 8; ++i) hn::Store(v[i], F32(), to + i * kFloats);
      }
      if (group == 0) continue;
      const float* const from = between(group - 1);
      for (std::size_t i = 2 * part; i < 2 * part + 2; ++i) {
        FloatVector v[4];
        for (std::size_t row = 0; row < 4; ++row) {
          v[row] = hn::Load(F32(), from + (8 * row + i) * kFloats);
        }
        butterflies_between<4>(v);
        for (std::size_t row = 0; row < 4; ++row) store(row, i, hn::Mul(v[row], factor));
      }
    }
    if (group > 0) finish(group - 1);
  }
}
#endif

/// Consecutive blocks.
template <std::size_t kVectors>
void transform_small_blocks(float* x, std::size_t count) {
  const auto at = [x](std::size_t b, std::size_t i) { return x + (b * kVectors + i) * kFloats; };
  transform_in_registers<kVectors>(
      count, [&](std::size_t b, std::size_t i) HWY_ATTR { return hn::LoadU(F32(), at(b, i)); },
      [&](std::size_t b, std::size_t i, FloatVector v)
          HWY_ATTR { hn::StoreU(v, F32(), at(b, i)); });
}

/// Calls f<kVectors>() if blocks of so many elements are transformed in registers.
template <class F>
HWY_INLINE bool with_registers(std::size_t size, const F& f) {
  switch (size / kFloats) {
    case 1:
      return f.template operator()<1>(), true;
    case 2:
      return f.template operator()<2>(), true;
    case 4:
      return f.template operator()<4>(), true;
    case 8:
      return f.template operator()<8>(), true;
    default:
      return false;
  }
}

/// One block of more than fits into registers.
inline void transform_large_block(float* x, std::size_t size) {
  constexpr std::size_t kPart = kHadamardVectors * kFloats;
  for (std::size_t first = 0; first < size; first += kPart) {
    FloatVector v[kHadamardVectors];
    for (std::size_t i = 0; i < kHadamardVectors; ++i) {
      v[i] = hn::LoadU(F32(), x + first + i * kFloats);
    }
    transform_vectors<kHadamardVectors>(v);
    for (std::size_t i = 0; i < kHadamardVectors; ++i) {
      hn::StoreU(v[i], F32(), x + first + i * kFloats);
    }
  }
  const FloatVector factor = hn::Set(F32(), hadamard_factor(size));
  for (std::size_t stride = kPart; stride < size; stride *= 2) {
    const bool last = 2 * stride == size;
    for (std::size_t first = 0; first < size; first += 2 * stride) {
      for (std::size_t i = first; i < first + stride; i += kFloats) {
        const FloatVector a = hn::LoadU(F32(), x + i);
        const FloatVector b = hn::LoadU(F32(), x + i + stride);
        const FloatVector sum = hn::Add(a, b);
        const FloatVector difference = hn::Sub(a, b);
        hn::StoreU(last ? hn::Mul(sum, factor) : sum, F32(), x + i);
        hn::StoreU(last ? hn::Mul(difference, factor) : difference, F32(), x + i + stride);
      }
    }
  }
}

/// In place; `size` is a power of two of at least 8.
inline void transform_blocks(float* x, std::size_t count, std::size_t size) {
  if (with_registers(size, [&]<std::size_t kVectors>()
                               HWY_ATTR { transform_small_blocks<kVectors>(x, count); })) {
    return;
  }
  for (std::size_t b = 0; b < count; ++b) transform_large_block(x + b * size, size);
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

#endif  // per-target include guard

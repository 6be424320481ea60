#include "experiments/benchmarks/codec_kernels.h"

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "experiments/benchmarks/codec_kernels.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "reference/codecs/simd/blocks-inl.h"
#include "reference/codecs/simd/extremes-inl.h"
#include "reference/codecs/simd/hadamard-inl.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/portable_log-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

#if ARLAB_HAS_LANES

constexpr std::size_t kBlock = 32;
constexpr std::size_t kPass = 4096;  // elements between two passes of an encoder
constexpr std::size_t kVectors = kBlock / kFloats;

const std::uint16_t* halves(const std::uint8_t* in) {
  return reinterpret_cast<const std::uint16_t*>(in);
}
const float* floats(const std::uint8_t* in) { return reinterpret_cast<const float*>(in); }

/// A block's vectors of fp16.
HWY_INLINE void load_block(const std::uint16_t* x, FloatVector (&v)[kVectors]) {
  for (std::size_t i = 0; i < kVectors; ++i) v[i] = load_elements<HalfLanes>(x + i * kFloats);
}
HWY_INLINE void store_block(const FloatVector (&v)[kVectors], std::uint8_t* out) {
  for (std::size_t i = 0; i < kVectors; ++i) {
    hn::StoreU(HalfLanes::from_float(v[i]), HalfU16(),
               reinterpret_cast<std::uint16_t*>(out) + i * kFloats);
  }
}

/// A block's integers as bytes in any order, two to a byte.
HWY_INLINE void store_nibbles(const Int32Vector (&q)[kVectors], std::uint8_t* out) {
  for (std::size_t i = 0; i < kVectors; i += 4) {
    const ByteVector bytes =
        narrow_blocks(narrow_blocks(q[i], q[i + 1]), narrow_blocks(q[i + 2], q[i + 3]));
    const Int16Vector pairs = joined_pairs<16>(hn::Min(bytes, hn::Set(U8(), 15)));
    const ByteVector joined = narrow_blocks(pairs, pairs);
    hn::StoreU(hn::LowerHalf(joined), hn::Half<U8>(), out + i * kFloats / 2);
  }
}

/// All lanes' extremes of fp16 elements.
HWY_INLINE void store_extremes(const std::uint16_t* x, std::size_t count, std::uint8_t* out) {
  Int16Vector low[2] = {HalfElements::keys(x), HalfElements::keys(x + kWords)};
  Int16Vector high[2] = {low[0], low[1]};
  for (std::size_t i = 0; i < count; i += 2 * kWords) {
    for (std::size_t j = 0; j < 2; ++j) {
      const Int16Vector key = HalfElements::keys(x + i + j * kWords);
      low[j] = hn::Min(low[j], key);
      high[j] = hn::Max(high[j], key);
    }
  }
  hn::StoreU(hn::BitCast(U8(), hn::Min(low[0], low[1])), U8(), out);
  hn::StoreU(hn::BitCast(U8(), hn::Max(high[0], high[1])), U8(), out + kBytes);
}

/// int4-g32: the extremes; RN(x - zero), RN(. * inv), rint.
void encode_int4(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  const FloatVector zero = hn::Set(F32(), -3.0f);
  const FloatVector inverse = hn::Set(F32(), 2.5f);
  for (std::size_t first = 0; first < elements; first += kPass) {
    store_extremes(halves(in) + first, kPass, out + first / 2);
    for (std::size_t i = first; i < first + kPass; i += kBlock) {
      FloatVector v[kVectors];
      Int32Vector q[kVectors];
      load_block(halves(in) + i, v);
      for (std::size_t k = 0; k < kVectors; ++k) {
        q[k] = nearest_int(hn::Mul(hn::Sub(v[k], zero), inverse));
      }
      store_nibbles(q, out + i / 2);
    }
  }
}

/// int4-g32 with a table: what the 16 codes of a block mean.
void decode_int4(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  for (std::size_t i = 0; i < elements; i += kBlock) {
    const FloatVector scale = hn::Set(F32(), floats(in)[i / kBlock]);
    const FloatVector zero = hn::Set(F32(), floats(in)[i / kBlock + 1]);
    for (std::size_t k = 0; k < 16; k += kFloats) {
      const FloatVector code = hn::Iota(F32(), static_cast<float>(k));
      const auto value = HalfLanes::from_float(hn::Add(zero, hn::Mul(code, scale)));
      auto* const to = reinterpret_cast<std::uint16_t*>(out) + i + k;
      hn::StoreU(value, HalfU16(), to);
      hn::StoreU(value, HalfU16(), to + 16);
    }
  }
}

/// qr-q8, qr-q4: every element a byte, converted, times d, rounded.
void decode_product(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  const FloatVector d = hn::Set(F32(), 0.03f);
  const hn::Rebind<std::int8_t, F32> bytes;
  for (std::size_t i = 0; i < elements; i += kBlock) {
    FloatVector v[kVectors];
    for (std::size_t k = 0; k < kVectors; ++k) {
      const auto code =
          hn::LoadU(bytes, reinterpret_cast<const std::int8_t*>(in) + i + k * kFloats);
      v[k] = hn::Mul(hn::ConvertTo(F32(), hn::PromoteTo(I32(), code)), d);
    }
    store_block(v, out + 2 * i);
  }
}

/// The five stages of 32 elements, as if all strides were between vectors, and the factor.
HWY_INLINE void five_stages(FloatVector (&v)[kVectors]) {
  constexpr std::size_t kHalf = kVectors / 2;
  for (std::size_t stage = 0; stage < 5; ++stage) {
    for (std::size_t i = 0; i < kHalf; ++i) {
      const FloatVector a = v[i];
      const FloatVector b = v[i + kHalf];
      v[i] = hn::Add(a, b);
      v[i + kHalf] = hn::Sub(a, b);
    }
  }
  for (FloatVector& x : v) x = hn::Mul(x, hn::Set(F32(), 0.17677669f));
}

void hadamard_adds(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  for (std::size_t i = 0; i < elements; i += kBlock) {
    FloatVector v[kVectors];
    for (std::size_t k = 0; k < kVectors; ++k)
      v[k] = hn::LoadU(F32(), floats(in) + i + k * kFloats);
    five_stages(v);
    for (std::size_t k = 0; k < kVectors; ++k) {
      hn::StoreU(v[k], F32(), reinterpret_cast<float*>(out) + i + k * kFloats);
    }
  }
}

void encode_had_int4(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  const FloatVector zero = hn::Set(F32(), -3.0f);
  const FloatVector inverse = hn::Set(F32(), 2.5f);
  for (std::size_t i = 0; i < elements; i += kBlock) {
    FloatVector v[kVectors];
    Int32Vector q[kVectors];
    load_block(halves(in) + i, v);
    five_stages(v);
    for (std::size_t k = 0; k < kVectors; ++k) {
      q[k] = nearest_int(hn::Mul(hn::Sub(v[k], zero), inverse));
    }
    store_nibbles(q, out + i / 2);
  }
}

void decode_had_int4(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  const FloatVector zero = hn::Set(F32(), -3.0f);
  const FloatVector scale = hn::Set(F32(), 0.4f);
  for (std::size_t i = 0; i < elements; i += kBlock) {
    FloatVector v[kVectors];
    for (std::size_t k = 0; k < kVectors; ++k) {
      const Int32Vector code = hn::PromoteTo(I32(), hn::LoadU(QuarterU8(), in + i + k * kFloats));
      v[k] = hn::Add(zero, hn::Mul(hn::ConvertTo(F32(), code), scale));
    }
    five_stages(v);
    store_block(v, out + 2 * i);
  }
}

/// nvfp4: the largest magnitude of the tensor; every element times g / s, rounded to e2m1 by an
/// addition.
void encode_nvfp4(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  Int16Vector largest = magnitudes(halves(in));
  for (std::size_t i = 0; i < elements; i += kWords) {
    largest = hn::Max(largest, magnitudes(halves(in) + i));
  }
  hn::StoreU(hn::BitCast(U8(), largest), U8(), out);
  const FloatVector multiplier = hn::Set(F32(), 1.3f);
  const FloatVector magnitude_bits = float_of(hn::Set(U32(), 0x7FFFFFFF));
  for (std::size_t i = 0; i < elements; i += kBlock) {
    FloatVector v[kVectors];
    Int32Vector q[kVectors];
    load_block(halves(in) + i, v);
    for (std::size_t k = 0; k < kVectors; ++k) {
      const FloatVector x = hn::Mul(v[k], multiplier);
      const Int32Vector exponent = hn::And(hn::BitCast(I32(), x), hn::Set(I32(), 0x7F800000));
      const Int32Vector binade = hn::Max(exponent, hn::Set(I32(), 127 << 23));
      const Int32Vector rounder = hn::Add(binade, hn::Set(I32(), 22 << 23));
      const FloatVector sum = hn::Add(hn::And(x, magnitude_bits), hn::BitCast(F32(), rounder));
      q[k] = weighted_pairs<64, 1>(hn::BitCast(I16(), sum));
    }
    store_nibbles(q, out + i / 2);
  }
}

/// logfmt4-g32 with a table: what the seven magnitudes of a block's codes mean.
void decode_logfmt4(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  for (std::size_t i = 0; i < elements; i += kBlock) {
    const FloatVector lo = hn::Set(F32(), floats(in)[i / kBlock]);
    const FloatVector step = hn::Set(F32(), floats(in)[i / kBlock + 1]);
    for (std::size_t k = 0; k < 8; k += kFloats) {
      const FloatVector index = hn::Iota(F32(), static_cast<float>(k));
      const auto value = HalfLanes::from_float(plain_exp2_fp32(hn::Add(lo, hn::Mul(index, step))));
      auto* const to = reinterpret_cast<std::uint16_t*>(out) + i + k;
      for (std::size_t j = 0; j < kBlock; j += 8) hn::StoreU(value, HalfU16(), to + j);
    }
  }
}

/// logfmt4-g32: the same values, one block per lane; seven comparisons of every element.
void encode_logfmt4(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  constexpr std::size_t kLevels = 7;
  const FloatVector lo = hn::Set(F32(), -4.0f);
  for (std::size_t i = 0; i < elements; i += kFloats * kBlock) {
    alignas(32) std::int16_t thresholds[kLevels][kWords] = {};
    for (std::size_t k = 0; k < kLevels; ++k) {
      const FloatVector step = hn::Set(F32(), floats(in)[k]);
      const auto value = HalfLanes::from_float(plain_exp2_fp32(hn::Add(lo, step)));
      hn::StoreU(value, HalfU16(), reinterpret_cast<std::uint16_t*>(thresholds[k]));
    }
    for (std::size_t b = 0; b < kFloats; ++b) {
      const std::size_t first = i + b * kBlock;
      for (std::size_t j = 0; j < kBlock; j += kBytes) {
        const Int16Vector low = magnitudes(halves(in) + first + j);
        const Int16Vector high = magnitudes(halves(in) + first + j + kWords);
        Int16Vector low_code = hn::Zero(I16());
        Int16Vector high_code = hn::Zero(I16());
        for (std::size_t k = 0; k < kLevels; ++k) {
          const Int16Vector limit = hn::Set(I16(), thresholds[k][b]);
          low_code = hn::Sub(low_code, hn::VecFromMask(I16(), hn::Gt(low, limit)));
          high_code = hn::Sub(high_code, hn::VecFromMask(I16(), hn::Gt(high, limit)));
        }
        const Int16Vector pairs = joined_pairs<16>(narrow_blocks(low_code, high_code));
        const ByteVector joined = narrow_blocks(pairs, pairs);
        hn::StoreU(hn::LowerHalf(joined), hn::Half<U8>(), out + (first + j) / 2);
      }
    }
  }
}

/// The transform of had-* alone, of fp32.
void hadamard32(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  const float* const x = floats(in);
  float* const y = reinterpret_cast<float*>(out);
  const auto at = [](std::size_t b, std::size_t i) { return b * kBlock + i * kFloats; };
  transform_in_registers<kVectors>(
      elements / kBlock,
      [&](std::size_t b, std::size_t i) HWY_ATTR { return hn::LoadU(F32(), x + at(b, i)); },
      [&](std::size_t b, std::size_t i, FloatVector v)
          HWY_ATTR { hn::StoreU(v, F32(), y + at(b, i)); });
}

#endif  // ARLAB_HAS_LANES

std::vector<CodecKernel> kernels_of_target() {
#if ARLAB_HAS_LANES
  return {{"hadamard32/fp32", hadamard32},
          {"bound/hadamard32/fp32", hadamard_adds},
          {"bound/encode/int4-g32", encode_int4},
          {"bound/decode/int4-g32", decode_int4},
          {"bound/decode/qr-q8", decode_product},
          {"bound/encode/had-int4-g32", encode_had_int4},
          {"bound/decode/had-int4-g32", decode_had_int4},
          {"bound/encode/nvfp4", encode_nvfp4},
          {"bound/encode/logfmt4-g32", encode_logfmt4},
          {"bound/decode/logfmt4-g32", decode_logfmt4}};
#else
  return {};
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace arlab {
namespace {

HWY_EXPORT(kernels_of_target);

}  // namespace

std::vector<CodecKernel> codec_kernels() { return HWY_DYNAMIC_DISPATCH(kernels_of_target)(); }

}  // namespace arlab

#endif  // HWY_ONCE

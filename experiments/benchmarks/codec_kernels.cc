#include "experiments/benchmarks/codec_kernels.h"

#include <limits>

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
#include "reference/codecs/simd/stream_ahead-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

#if ARLAB_HAS_LANES

constexpr std::size_t kBlock = 32;
constexpr std::size_t kPass = 4096;  // elements between two passes of an encoder
constexpr std::size_t kVectors = kBlock / kFloats;
constexpr std::size_t kPage = 4096;  // bytes

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

/// All lanes' extremes of fp16 elements, as two orders of their bits.
HWY_INLINE void store_extremes(const std::uint16_t* x, std::size_t count, std::uint8_t* out) {
  const auto bits = [x](std::size_t i) HWY_ATTR { return hn::LoadU(U16(), x + i); };
  Uint16Vector low[2] = {bits(0), bits(kWords)};
  Int16Vector high[2] = {hn::BitCast(I16(), low[0]), hn::BitCast(I16(), low[1])};
  for (std::size_t i = 0; i < count; i += 2 * kWords) {
    for (std::size_t j = 0; j < 2; ++j) {
      const Uint16Vector v = bits(i + j * kWords);
      low[j] = hn::Max(low[j], v);
      high[j] = hn::Max(high[j], hn::BitCast(I16(), v));
    }
  }
  hn::StoreU(hn::BitCast(U8(), hn::Max(low[0], low[1])), U8(), out);
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

/// The same, and what looks every element up: its code's byte, two shuffles for 16 elements, their
/// bytes side by side. Tables are filled some blocks ahead, as in lookup-inl.h.
void look_up_int4(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  constexpr std::size_t kBlocks = kPass / kBlock;
  constexpr std::size_t kAhead = 16;
  alignas(32) std::uint8_t tables[kBlocks * kBlock];
  const auto fill = [&](std::size_t block, std::size_t first) HWY_ATTR {
    const FloatVector scale = hn::Set(F32(), floats(in)[(first / kBlock) + block]);
    const FloatVector zero = hn::Set(F32(), floats(in)[(first / kBlock) + block + 1]);
    for (std::size_t k = 0; k < 16; k += kFloats) {
      const FloatVector code = hn::Iota(F32(), static_cast<float>(k));
      const auto value = HalfLanes::from_float(hn::Add(zero, hn::Mul(code, scale)));
      hn::StoreU(hn::BitCast(hn::Repartition<std::uint8_t, HalfU16>(), value),
                 hn::Repartition<std::uint8_t, HalfU16>(), tables + block * kBlock + 2 * k);
    }
  };
  const ByteVector spread = hn::And(hn::Iota(U8(), 0), hn::Set(U8(), 7));
  const ByteVector mask = hn::BitCast(U8(), hn::Set(U16(), 0xF00F));
  for (std::size_t first = 0; first < elements; first += kPass) {
    for (std::size_t b = 0; b < kAhead; ++b) fill(b, first);
    for (std::size_t b = 0; b < kBlocks; ++b) {
      if (b + kAhead < kBlocks) fill(b + kAhead, first);
      const ByteVector low = hn::LoadDup128(U8(), tables + b * kBlock);
      const ByteVector high = hn::LoadDup128(U8(), tables + b * kBlock + 16);
      const std::size_t i = first + b * kBlock;
      for (std::size_t j = 0; j < kBlock; j += kBytes) {
        const ByteVector twice =
            hn::TableLookupBytes(hn::LoadDup128(U8(), in + (i + j) / 2), spread);
        const ByteVector codes = hn::BitCast(U8(), joined_pairs<16>(hn::And(twice, mask)));
        const ByteVector x = hn::TableLookupBytes(low, codes);
        const ByteVector y = hn::TableLookupBytes(high, codes);
        hn::StoreU(hn::InterleaveLower(U8(), x, y), U8(), out + 2 * (i + j));
        hn::StoreU(hn::InterleaveUpper(U8(), x, y), U8(), out + 2 * (i + j) + kBytes);
      }
    }
  }
}

/// qr-q4, qr-q8: the extremes; times e, RN to fp16's significand, rint, saturated.
template <bool kNibbles>
void encode_qr(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  const FloatVector e = hn::Set(F32(), 2.5f);
  for (std::size_t first = 0; first < elements; first += kPass) {
    store_extremes(halves(in) + first, kPass, out + first);
    for (std::size_t i = first; i < first + kPass; i += kBlock) {
      FloatVector v[kVectors];
      Int32Vector q[kVectors];
      load_block(halves(in) + i, v);
      for (std::size_t k = 0; k < kVectors; ++k) {
        q[k] = nearest_int(rounded_significand<HalfLanes::kLostBits>(hn::Mul(v[k], e)));
      }
      if constexpr (kNibbles) {
        store_nibbles(q, out + i / 2);
      } else {
        for (std::size_t k = 0; k < kVectors; k += 4) {
          hn::StoreU(
              narrow_blocks(narrow_blocks(q[k], q[k + 1]), narrow_blocks(q[k + 2], q[k + 3])), U8(),
              out + i + k * kFloats);
        }
      }
    }
  }
}

/// As the codecs do: what is read soon, and where the next pages are that are written past the
/// caches.
HWY_INLINE void fetch_decoded_ahead(const std::uint8_t* from, const std::uint8_t* out,
                                    std::size_t group) {
  hwy::Prefetch(from + 2048);
  if (group % (kPage / 128) == 0) find_pages_ahead(out + group * 128 + 2 * kPage, kPage);
}

/// What a codec of kWire bytes for every 64 fp16 elements reads and writes, and no arithmetic;
/// decoded elements past the caches, as the codecs do.
template <std::size_t kWire>
void decode_traffic(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  for (std::size_t i = 0; i < elements / 64; ++i) {
    const std::uint8_t* const from = in + i * kWire;
    fetch_decoded_ahead(from, out, i);
    ByteVector v = hn::LoadU(U8(), from);
    for (std::size_t j = kBytes; j + kBytes <= kWire; j += kBytes) {
      v = hn::Or(v, hn::LoadU(U8(), from + j));
    }
    for (std::size_t j = 0; j < 128; j += kBytes) stream_vector(v, out + i * 128 + j);
  }
  hwy::FlushStream();
}
template <std::size_t kWire>
void encode_traffic(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  for (std::size_t i = 0; i < elements / 64; ++i) {
    ByteVector v = hn::LoadU(U8(), in + i * 128);
    for (std::size_t j = kBytes; j < 128; j += kBytes) {
      v = hn::Or(v, hn::LoadU(U8(), in + i * 128 + j));
    }
    hwy::Prefetch(in + i * 128 + 4096);
    hwy::Prefetch(in + i * 128 + 4096 + 64);
    for (std::size_t j = 0; j + kBytes <= kWire; j += kBytes) {
      hn::StoreU(v, U8(), out + i * kWire + j);
    }
  }
}

/// What nvfp4 reads and writes, whose tensor scale needs all of the payload before the first code.
/// The first reading is of two places in turn, which took less time than of one.
void encode_nvfp4_traffic(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  constexpr std::size_t kApart = std::size_t{64} << 10;  // bytes
  ByteVector v[2] = {hn::Zero(U8()), hn::Zero(U8())};
  for (std::size_t first = 0; first + 2 * kApart <= 2 * elements; first += 2 * kApart) {
    for (std::size_t i = first; i < first + kApart; i += kBytes) {
      for (std::size_t j = 0; j < 2; ++j) v[j] = hn::Or(v[j], hn::LoadU(U8(), in + i + j * kApart));
    }
  }
  const ByteVector all = hn::Or(v[0], v[1]);
  asm volatile("" : : "x"(all.raw));
  encode_traffic<36>(in, out, elements);
}

/// The traffic of decoding with the arithmetic that is forced beside it: of every element of qr-q8
/// (a byte to fp32, times d, RN to fp16), of the 16 values of every block of int4-g32, and of the 8
/// of qr-q4, whose others differ in the sign. What is stored is not what was computed, which would
/// have to be brought together first.
enum class Forced { every_byte, sixteen_sums, eight_products };
template <Forced kForced>
void decode_in_memory(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  constexpr std::size_t kWire = kForced == Forced::every_byte ? 66 : 36;  // of 64 elements
  const hn::Rebind<std::int8_t, F32> bytes;
  const auto round = [](FloatVector v) HWY_ATTR {
    const auto rounded = HalfLanes::from_float(v);
    asm volatile("" : : "x"(rounded.raw));
  };
  for (std::size_t i = 0; i < elements / 64; ++i) {
    const std::uint8_t* const from = in + i * kWire;
    fetch_decoded_ahead(from, out, i);
    const FloatVector first = hn::Set(F32(), reinterpret_cast<const float*>(from)[0]);
    const FloatVector second = hn::Set(F32(), reinterpret_cast<const float*>(from)[1]);
    if constexpr (kForced == Forced::every_byte) {
      for (std::size_t j = 0; j < 64; j += kFloats) {
        const auto code = hn::LoadU(bytes, reinterpret_cast<const std::int8_t*>(from) + j);
        round(hn::Mul(hn::ConvertTo(F32(), hn::PromoteTo(I32(), code)), first));
      }
    } else {
      constexpr std::size_t kValues = kForced == Forced::sixteen_sums ? 16 : 8;
      for (std::size_t k = 0; k < kValues; k += kFloats) {
        const FloatVector code = hn::Iota(F32(), static_cast<float>(k));
        const FloatVector products[2] = {hn::Mul(code, first), hn::Mul(code, second)};
        for (const FloatVector v : products) {
          round(kForced == Forced::sixteen_sums ? hn::Add(first, v) : v);
        }
      }
    }
    const ByteVector v = hn::LoadU(U8(), from);
    for (std::size_t j = 0; j < 128; j += kBytes) stream_vector(v, out + i * 128 + j);
  }
  hwy::FlushStream();
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

/// nvfp4: the largest magnitude of the tensor; seven comparisons of every element
/// with its block's thresholds.
void encode_nvfp4(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  Int16Vector largest = magnitudes(halves(in));
  for (std::size_t i = 0; i < elements; i += kWords) {
    largest = hn::Max(largest, magnitudes(halves(in) + i));
  }
  hn::StoreU(hn::BitCast(U8(), largest), U8(), out);
  const auto* const thresholds = reinterpret_cast<const std::int16_t*>(in);
  for (std::size_t i = 0; i < elements; i += kBytes) {
    Int16Vector code[2];
    for (std::size_t j = 0; j < 2; ++j) {
      const Int16Vector m = magnitudes(halves(in) + i + j * kWords);
      code[j] = hn::Zero(I16());
      for (std::size_t k = 0; k < 7; ++k) {
        const Int16Vector limit = hn::LoadU(I16(), thresholds + k * kWords);
        code[j] = hn::Sub(code[j], hn::VecFromMask(I16(), hn::Gt(m, limit)));
      }
    }
    const Int16Vector pairs = joined_pairs<16>(narrow_blocks(code[0], code[1]));
    const ByteVector joined = narrow_blocks(pairs, pairs);
    hn::StoreU(hn::LowerHalf(joined), hn::Half<U8>(), out + i / 2);
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

/// logfmt4-g32: the extremes; their logarithms, lo and step rounded, seven values and what is
/// between them, one block per lane; then the codes, by seven comparisons of every element, or by
/// three, each with the limit that those before leave; signs.
template <bool kSearch>
void encode_logfmt4(const std::uint8_t* in, std::uint8_t* out, std::size_t elements) {
  constexpr std::size_t kLevels = 7;
  constexpr std::size_t kBlocks = kPass / kBlock;
  alignas(32) std::uint16_t thresholds[kLevels][kBlocks];
  for (std::size_t pass = 0; pass < elements; pass += kPass) {
    store_extremes(halves(in) + pass, kPass, out + pass / 2);
    for (std::size_t b = 0; b < kBlocks; b += kFloats) {
      const auto rounded = [](FloatVector v)
                               HWY_ATTR { return HalfLanes::to_float(HalfLanes::from_float(v)); };
      const FloatVector lowest = log2_fp32(hn::Abs(hn::LoadU(F32(), floats(in) + b)));
      const FloatVector highest = log2_fp32(hn::Abs(hn::LoadU(F32(), floats(in) + kBlocks + b)));
      const FloatVector lo = rounded(lowest);
      const FloatVector step =
          rounded(hn::Div(hn::Sub(highest, lowest), hn::Set(F32(), kLevels - 1.0f)));
      FloatVector below = hn::Zero(F32());
      for (std::size_t k = 0; k < kLevels; ++k) {
        const FloatVector index = hn::Set(F32(), static_cast<float>(k));
        const FloatVector value = plain_exp2_fp32(hn::Add(lo, hn::Mul(index, step)));
        hn::StoreU(HalfLanes::from_float(hn::Add(below, value)), HalfU16(), thresholds[k] + b);
        below = value;
      }
    }
    for (std::size_t b = 0; b < kBlocks; ++b) {
      const std::size_t first = pass + b * kBlock;
      Int16Vector limit[kLevels];
      for (std::size_t k = 0; k < kLevels; ++k) {
        limit[k] = hn::BitCast(I16(), hn::Set(U16(), thresholds[k][b]));
      }
      const auto code_of = [&](Int16Vector m) HWY_ATTR {
        const auto above = [m](Int16Vector t)
                               HWY_ATTR { return hn::VecFromMask(I16(), hn::Gt(m, t)); };
        const auto chosen = [](Int16Vector mask, Int16Vector yes, Int16Vector no)
                                HWY_ATTR { return hn::IfThenElse(hn::MaskFromVec(mask), yes, no); };
        if constexpr (kSearch) {
          const Int16Vector four = above(limit[3]);
          const Int16Vector two = above(chosen(four, limit[5], limit[1]));
          const Int16Vector one = above(
              chosen(two, chosen(four, limit[6], limit[2]), chosen(four, limit[4], limit[0])));
          const Int16Vector upper = hn::Add(hn::Add(four, four), two);
          return hn::Neg(hn::Add(hn::Add(upper, upper), one));
        } else {
          Int16Vector code = hn::Zero(I16());
          for (const Int16Vector t : limit) code = hn::Sub(code, above(t));
          return code;
        }
      };
      for (std::size_t i = first; i < first + kBlock; i += kBytes) {
        const auto signed_code = [&](const std::uint16_t* x) HWY_ATTR {
          const Int16Vector sign =
              hn::And(hn::BitCast(I16(), hn::LoadU(U16(), x)),
                      hn::Set(I16(), std::numeric_limits<std::int16_t>::min()));
          return hn::Or(code_of(magnitudes(x)), sign);
        };
        const Int16Vector low = signed_code(halves(in) + i);
        const Int16Vector high = signed_code(halves(in) + i + kWords);
        const Int16Vector pairs = joined_pairs<16>(narrow_blocks(low, high));
        const ByteVector joined = narrow_blocks(pairs, pairs);
        hn::StoreU(hn::LowerHalf(joined), hn::Half<U8>(), out + i / 2);
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
          {"bound/decode/int4-g32/looked-up", look_up_int4},
          {"bound/encode/qr-q4", encode_qr<true>},
          {"bound/encode/qr-q8", encode_qr<false>},
          {"bound/decode/qr-q8", decode_product},
          {"bound/encode/had-int4-g32", encode_had_int4},
          {"bound/decode/had-int4-g32", decode_had_int4},
          {"bound/encode/nvfp4", encode_nvfp4},
          {"bound/encode/logfmt4-g32", encode_logfmt4<false>},
          {"bound/encode/logfmt4-g32/searched", encode_logfmt4<true>},
          {"bound/decode/logfmt4-g32", decode_logfmt4},
          {"bound/encode/4-bits", encode_traffic<36>, true},
          {"bound/encode/8-bits", encode_traffic<66>, true},
          {"bound/encode/nvfp4", encode_nvfp4_traffic, true},
          {"bound/decode/4-bits", decode_traffic<36>, true},
          {"bound/decode/qr-q8", decode_in_memory<Forced::every_byte>, true},
          {"bound/decode/qr-q4", decode_in_memory<Forced::eight_products>, true},
          {"bound/decode/int4-g32", decode_in_memory<Forced::sixteen_sums>, true},
          {"bound/decode/8-bits", decode_traffic<66>, true}};
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

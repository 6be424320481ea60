// The QuickReduce codecs with vectors. ../SPEC.md, "QuickReduce (qr-*)", says what is computed;
// here is how, and why the bits are the same.
//
// Encoding an atom takes two passes over it, the second from cache. The first finds the extremes of
// its 64 blocks, as integer keys. All scales follow at once. The second scales, rounds and packs.
// Atoms with anything out of the ordinary are left to the scalar codec: a NaN or an infinity, and
// blocks whose eps nearly cancels d, so that scaled elements would not fit into 16 bits.

#include "reference/codecs/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/codecs/simd/quickreduce_simd.cc"
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "reference/codecs/codec.h"
#include "reference/codecs/simd/accelerated_codec.h"
#include "reference/codecs/simd/lanes-inl.h"
#include "reference/codecs/simd/planes-inl.h"
#include "reference/codecs/simd/quickreduce_codes-inl.h"
#include "reference/codecs/simd/quickreduce_decode-inl.h"
#include "reference/codecs/simd/quickreduce_simd.h"
#include "reference/codecs/simd/stream_ahead-inl.h"

#if ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

constexpr std::size_t kTogether = 2;  // atoms that are encoded together

/// Whose codes may go past the caches.
template <QuickReduceFormat kFormat>
inline constexpr bool kMayStream =
    kFormat == QuickReduceFormat::q4 || kFormat == QuickReduceFormat::q8;

// ---------------------------------------------------------------- encode

template <class V>
HWY_INLINE V larger_signed(V a, V b) {
  const hn::DFromV<V> d;
  const hn::RebindToSigned<decltype(d)> as_signed;
  return hn::BitCast(d, hn::Max(hn::BitCast(as_signed, a), hn::BitCast(as_signed, b)));
}

/// Two elements of a block, of which one has its largest magnitude. As signed integers, all
/// patterns of positive numbers are above those of negative ones; as unsigned integers it is the
/// other way around; and in both, numbers of one sign order as their magnitudes.
struct Extremes {
  Uint16Vector as_signed;
  Uint16Vector as_unsigned;
};

/// Of each two candidates, which `lower` and `upper` take from both, the larger.
template <bool kSigned, class Lower, class Upper>
HWY_INLINE Extremes larger(const Lower& lower, const Upper& upper, const Extremes& a,
                           const Extremes& b) {
  const Uint16Vector v =
      hn::Max(lower(a.as_unsigned, b.as_unsigned), upper(a.as_unsigned, b.as_unsigned));
  if constexpr (!kSigned) return {v, v};
  return {larger_signed(lower(a.as_signed, b.as_signed), upper(a.as_signed, b.as_signed)), v};
}

template <bool kSigned>
HWY_INLINE Extremes group_extremes(const std::uint16_t* x) {
  constexpr std::size_t kLanes = 2 * kFloats;
  Uint16Vector v = hn::LoadU(U16(), x);
  if constexpr (kSigned) {
    Uint16Vector s = v;
    for (std::size_t i = kLanes; i < kGroup; i += kLanes) {
      const Uint16Vector next = hn::LoadU(U16(), x + i);
      s = larger_signed(s, next);
      v = hn::Max(v, next);
    }
    return {s, v};
  } else {
    // Without the sign, shifted out, one order is enough.
    v = hn::Add(v, v);
    for (std::size_t i = kLanes; i < kGroup; i += kLanes) {
      const Uint16Vector next = hn::LoadU(U16(), x + i);
      v = hn::Max(v, hn::Add(next, next));
    }
    return {v, v};
  }
}

constexpr std::size_t kJoined = 4;  // groups that share a 128-bit part
constexpr std::size_t kGroupsAtOnce = kJoined * kBytes / 16;

/// Of a group, or one in each 128-bit part.
template <bool kSigned>
HWY_INLINE Extremes part_extremes(const std::uint16_t* x) {
  if constexpr (kFloats != 8) return group_extremes<kSigned>(x);
  return larger<kSigned>(
      [](Uint16Vector a, Uint16Vector b) HWY_ATTR { return hn::ConcatLowerLower(U16(), b, a); },
      [](Uint16Vector a, Uint16Vector b) HWY_ATTR { return hn::ConcatUpperUpper(U16(), b, a); },
      group_extremes<kSigned>(x), group_extremes<kSigned>(x + kJoined * kGroup));
}

/// Transposes two groups (D: 32-bit lanes) or pairs of them (64-bit lanes), taking maxima.
template <bool kSigned, class D>
HWY_INLINE Extremes joined(D tag, const Extremes& a, const Extremes& b) {
  return larger<kSigned>(
      [tag](Uint16Vector x, Uint16Vector y) HWY_ATTR {
        return hn::BitCast(U16(),
                           hn::InterleaveLower(tag, hn::BitCast(tag, x), hn::BitCast(tag, y)));
      },
      [tag](Uint16Vector x, Uint16Vector y) HWY_ATTR {
        return hn::BitCast(U16(),
                           hn::InterleaveUpper(tag, hn::BitCast(tag, x), hn::BitCast(tag, y)));
      },
      a, b);
}

/// Keys order as the element that sets the scale is sought: by magnitude, and on a tie the negative
/// one is larger.
HWY_INLINE Uint16Vector key_of(Uint16Vector bits) {
  return hn::Or(hn::Add(bits, bits), hn::ShiftRight<15>(bits));
}
template <class Code>
HWY_INLINE HalfUint16Vector bits_of_key(HalfUint16Vector key) {
  const HalfUint16Vector magnitude = hn::ShiftRight<1>(key);
  return Code::kSignedScale ? hn::Or(magnitude, hn::ShiftLeft<15>(key)) : magnitude;
}

/// The keys of all blocks: of group g at [2 * g] (even elements) and [2 * g + 1] (odd). Returns the
/// largest ones.
template <bool kSigned>
HWY_NOINLINE Uint16Vector find_keys(const std::uint16_t* x, std::uint16_t* keys) {
  Uint16Vector largest = hn::Zero(U16());
  for (std::size_t g = 0; g < kGroups; g += kGroupsAtOnce, x += kGroupsAtOnce * kGroup) {
    const Extremes first =
        joined<kSigned>(U32(), part_extremes<kSigned>(x), part_extremes<kSigned>(x + kGroup));
    const Extremes second = joined<kSigned>(U32(), part_extremes<kSigned>(x + 2 * kGroup),
                                            part_extremes<kSigned>(x + 3 * kGroup));
    const Extremes four = joined<kSigned>(U64(), first, second);
    const Uint16Vector key =
        kSigned ? hn::Max(key_of(four.as_signed), key_of(four.as_unsigned)) : four.as_unsigned;
    largest = hn::Max(largest, key);
    hn::StoreU(key, U16(), keys + 2 * g);
  }
  return largest;
}

/// Steps 2 and 3 for all blocks of the atom: d to the wire, e for the next step. False when a
/// scaled element may be too large for the next step.
template <class Lanes, class Code>
HWY_NOINLINE bool find_scales(const std::uint16_t* keys, std::byte* wire_scales,
                              float* multipliers) {
  const hn::Repartition<std::uint8_t, HalfU16> bytes;
  const FloatVector k = Lanes::to_float(Lanes::round(hn::Set(F32(), Code::kScale)));
  const FloatVector epsilon = Lanes::to_float(hn::Set(HalfU16(), Lanes::kEpsilon));
  const FloatVector limit = hn::Set(F32(), 32000.0f);
  auto fits = hn::Eq(limit, limit);
  for (std::size_t b = 0; b < kBlocks; b += kFloats) {
    const FloatVector m = Lanes::to_float(bits_of_key<Code>(hn::LoadU(HalfU16(), keys + b)));
    const HalfUint16Vector d = Lanes::from_float(hn::Mul(m, k));
    hn::StoreU(hn::BitCast(bytes, d), bytes, byte_pointer(wire_scales) + 2 * b);
    const FloatVector shifted =
        Lanes::to_float(Lanes::from_float(hn::Add(Lanes::to_float(d), epsilon)));
    const FloatVector e = Lanes::to_float(Lanes::reciprocal(shifted));
    hn::StoreU(e, F32(), multipliers + b);
    if constexpr (!Lanes::kScaledElementsFit) {
      fits = hn::And(fits, hn::Lt(hn::Abs(hn::Mul(m, e)), limit));
    }
  }
  return Lanes::kScaledElementsFit || hn::AllTrue(F32(), fits);
}

/// At most kTogether consecutive atoms. False, and the wire is unfinished, when one of them is for
/// the scalar codec.
///
/// Several at a time, because the chain of operations from the extremes to the multipliers is long,
/// and the processor cannot look far enough ahead to do something else meanwhile. `next` is where
/// as many elements will be read afterwards: they are fetched while there is time. kStream: codes
/// go past the caches, to addresses that 16 divides.
template <QuickReduceFormat kFormat, class Lanes, bool kCount, bool kStream = false>
bool encode_together(const std::uint16_t* x, std::size_t atoms, const std::uint16_t* next,
                     std::byte* wire, std::uint64_t& clamped) {
  using Code = typename Traits<kFormat>::Code;
  using Packing = typename Traits<kFormat>::Packing;
  constexpr std::size_t kWireBytes = quickreduce_code_bytes(kFormat) + kScaleBytes;
  std::uint16_t keys[kTogether * kBlocks];
  float multipliers[kTogether * kBlocks];
  Uint16Vector largest = hn::Zero(U16());
  for (std::size_t atom = 0; atom < atoms; ++atom) {
    largest =
        hn::Max(largest, find_keys<Code::kSignedScale>(x + atom * kAtom, keys + atom * kBlocks));
  }
  const Uint16Vector infinity = hn::Set(U16(), 2 * Lanes::kInfinity);
  if (!hn::AllTrue(U16(), hn::Lt(largest, infinity))) return false;
  for (std::size_t atom = 0; atom < atoms; ++atom) {
    std::byte* const scales = wire + atom * kWireBytes + quickreduce_code_bytes(kFormat);
    if (!find_scales<Lanes, Code>(keys + atom * kBlocks, scales, multipliers + atom * kBlocks)) {
      return false;
    }
  }

  const auto encode_vector = [&](const std::uint16_t* from, FloatVector e) HWY_ATTR {
    FloatVector w[4];
    for (std::size_t i = 0; i < 4; ++i) {
      const FloatVector value = load_elements<Lanes>(from + i * kFloats);
      w[i] = rounded_significand<Lanes::kLostBits>(hn::Mul(value, e));
      // A rounded -0 is +0.
      if constexpr (Code::kHasMinusZero) {
        w[i] = hn::Or(w[i], hn::And(hn::Xor(value, e), hn::SignBit(F32())));
      }
    }
    return Code::template encode<Lanes, kCount>(w, clamped);
  };
  for (std::size_t atom = 0; atom < atoms; ++atom) {
    const auto encode_unit = [&](std::size_t unit) HWY_ATTR -> Codes {
      const FloatVector e = load_pair(multipliers + atom * kBlocks + unit * kUnit / kGroup * 2);
      const std::size_t at = atom * kAtom + unit * kUnit;
      const std::uint16_t* const from = x + at;
      for (std::size_t line = 0; line < kUnit; line += 32) hwy::Prefetch(next + at + line);
      return {encode_vector(from, e), encode_vector(from + kBytes, e)};
    };
    const auto pack = [&](const Codes& codes, std::size_t unit) HWY_ATTR {
      if constexpr (kStream) {
        Packing::template pack_blocks<true>(codes, wire + atom * kWireBytes, unit);
      } else {
        Packing::pack_blocks(codes, wire + atom * kWireBytes, unit);
      }
    };
    // A unit is packed after the codes of the next are under way: what waits for results takes the
    // place of what could run.
    Codes codes = encode_unit(0);
    for (std::size_t unit = 1; unit < kAtom / kUnit; ++unit) {
      const Codes next_codes = encode_unit(unit);
      pack(codes, unit - 1);
      codes = next_codes;
    }
    pack(codes, kAtom / kUnit - 1);
  }
  return true;
}

/// A whole atom, or the last one of a message, which is padded with zeros.
template <QuickReduceFormat kFormat, class Lanes, bool kCount>
void encode_atom(const Codec& scalar, DType dtype, std::span<const std::uint16_t> x,
                 std::span<std::byte> wire, EncodeCounts& counts) {
  std::uint64_t clamped = 0;
  bool done = false;
  if (x.size() == kAtom) {
    done = encode_together<kFormat, Lanes, kCount>(x.data(), 1, x.data(), wire.data(), clamped);
  } else if (!kCount) {  // padding must not be counted
    std::uint16_t padded[kAtom] = {};
    std::ranges::copy(x, padded);
    done = encode_together<kFormat, Lanes, false>(padded, 1, padded, wire.data(), clamped);
  }
  if (done) {
    counts.clamped += clamped;
  } else {
    scalar.encode(dtype, std::as_bytes(x), wire, kCount ? &counts : nullptr);
  }
}

template <QuickReduceFormat kFormat, class Lanes, bool kCount>
void encode_atoms(const Codec& scalar, DType dtype, std::span<const std::uint16_t> x,
                  std::byte* wire, EncodeCounts& counts) {
  constexpr std::size_t kWireBytes = quickreduce_code_bytes(kFormat) + kScaleBytes;
  // Little of a large payload's wire would stay in the caches, and what goes past them is not read
  // first.
  const bool streamed = kMayStream<kFormat> && !kCount && x.size_bytes() >= kStreamedBytes &&
                        reinterpret_cast<std::uintptr_t>(wire) % 16 == 0;
  const auto together = [&](const std::uint16_t* from, const std::uint16_t* next,
                            std::uint64_t& clamped) HWY_ATTR {
    if constexpr (kMayStream<kFormat> && !kCount) {
      if (streamed) {
        return encode_together<kFormat, Lanes, false, true>(from, kTogether, next, wire, clamped);
      }
    }
    return encode_together<kFormat, Lanes, kCount>(from, kTogether, next, wire, clamped);
  };
  std::size_t begin = 0;
  while (begin < x.size()) {
    const auto rest = x.subspan(begin);
    std::uint64_t clamped = 0;
    const bool more = rest.size() >= 2 * kTogether * kAtom;
    const std::uint16_t* const next = rest.data() + (more ? kTogether * kAtom : 0);
    if (streamed && more) find_pages_ahead(wire + kTogether * kWireBytes, kTogether * kWireBytes);
    if (rest.size() >= kTogether * kAtom && together(rest.data(), next, clamped)) {
      counts.clamped += clamped;
      begin += kTogether * kAtom;
      wire += kTogether * kWireBytes;
      continue;
    }
    // One by one: the last ones, or those beside an extraordinary one.
    const std::size_t atoms = std::min(kTogether, (rest.size() + kAtom - 1) / kAtom);
    for (std::size_t i = 0; i < atoms; ++i, begin += kAtom, wire += kWireBytes) {
      const auto part = x.subspan(begin, std::min(kAtom, x.size() - begin));
      encode_atom<kFormat, Lanes, kCount>(scalar, dtype, part, {wire, kWireBytes}, counts);
    }
  }
  if (streamed) hwy::FlushStream();
}

// ---------------------------------------------------------------- what the dispatch table holds

/// Calls f<kFormat, Lanes>.
template <class F>
void with_format(QuickReduceFormat format, DType dtype, const F& f) {
  const auto with_dtype = [&]<QuickReduceFormat kFormat>() {
    dtype == DType::fp16 ? f.template operator()<kFormat, Fp16>()
                         : f.template operator()<kFormat, Bf16>();
  };
  switch (format) {
    case QuickReduceFormat::q3:
      return with_dtype.template operator()<QuickReduceFormat::q3>();
    case QuickReduceFormat::q4:
      return with_dtype.template operator()<QuickReduceFormat::q4>();
    case QuickReduceFormat::q6:
      return with_dtype.template operator()<QuickReduceFormat::q6>();
    case QuickReduceFormat::q8:
      return with_dtype.template operator()<QuickReduceFormat::q8>();
    case QuickReduceFormat::fp4:
      return with_dtype.template operator()<QuickReduceFormat::fp4>();
    case QuickReduceFormat::fp8:
      return with_dtype.template operator()<QuickReduceFormat::fp8>();
  }
}

void quickreduce_encode(const QuickReduceFormat& format, const Codec& scalar, DType dtype,
                        std::span<const std::byte> payload, std::span<std::byte> wire,
                        EncodeCounts* counts) {
  with_format(format, dtype, [&]<QuickReduceFormat kFormat, class Lanes>() {
    EncodeCounts ignored;
    counts != nullptr
        ? encode_atoms<kFormat, Lanes, true>(scalar, dtype, as_u16(payload), wire.data(), *counts)
        : encode_atoms<kFormat, Lanes, false>(scalar, dtype, as_u16(payload), wire.data(), ignored);
  });
}

void quickreduce_decode(const QuickReduceFormat& format, const Codec&, DType dtype,
                        std::span<const std::byte> wire, std::span<std::byte> payload) {
  with_format(format, dtype, [&]<QuickReduceFormat kFormat, class Lanes>() {
    decode_atoms<kFormat, Lanes>(wire.data(), as_u16(payload));
  });
}

void quickreduce_decode_add(const QuickReduceFormat& format, const Codec&, DType dtype,
                            std::span<const std::byte> wire, std::span<std::byte> sum) {
  with_format(format, dtype, [&]<QuickReduceFormat kFormat, class Lanes>() {
    add_atoms<kFormat, Lanes>(wire.data(), as_u16(sum));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#endif  // ARLAB_HAS_LANES

HWY_BEFORE_NAMESPACE();
namespace arlab {
namespace HWY_NAMESPACE {

CodecFunctions<QuickReduceFormat> quickreduce_functions() {
#if ARLAB_HAS_LANES
  return {quickreduce_encode, quickreduce_decode, quickreduce_decode_add};
#else
  return scalar_functions<QuickReduceFormat>();
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace arlab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace arlab {
namespace {

HWY_EXPORT(quickreduce_functions);

CodecFunctions<QuickReduceFormat> functions_of_this_processor() {
  return HWY_DYNAMIC_DISPATCH(quickreduce_functions)();
}

}  // namespace

CodecPtr accelerated_quickreduce(const CodecPtr& scalar) {
  constexpr std::pair<std::string_view, QuickReduceFormat> kFormats[] = {
      {"qr-q3", QuickReduceFormat::q3},   {"qr-q4", QuickReduceFormat::q4},
      {"qr-q6", QuickReduceFormat::q6},   {"qr-q8", QuickReduceFormat::q8},
      {"qr-fp4", QuickReduceFormat::fp4}, {"qr-fp8", QuickReduceFormat::fp8}};
  for (const auto& [name, format] : kFormats) {
    if (scalar->name() == name)
      return std::make_shared<AcceleratedCodec<QuickReduceFormat>>(scalar, format,
                                                                   functions_of_this_processor);
  }
  return nullptr;
}

}  // namespace arlab

#endif  // HWY_ONCE

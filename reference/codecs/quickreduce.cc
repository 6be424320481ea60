// qr-fp8, qr-q8, qr-q6, qr-q4, qr-q3, qr-fp4: SPEC.md, "QuickReduce (qr-*)".
//
// Source: MK1 QuickReduce csrc/core/allreduce.h (fp16), vLLM csrc/quickreduce (bf16). The bytes are
// those of the original kernels, except where the original hides a non-finite input.
//
// A case that no source describes is decided the way the original's instructions decide it, and pinned by golden tests:
//  - -0 orders below +0 when the largest and the smallest of a block are sought.
//  - Clamping a NaN (bf16 only: 0 * (1/0), when d is exactly -eps) yields the lower bound; qr-fp4,
//    whose codes have a -0, takes that one: times the negative d it is the +0 that it came from.
//  - A block with a NaN or an infinity: scale = canonical quiet NaN, every code bit 0.

#include "reference/codecs/formats/quickreduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "reference/codecs/registry.h"
#include "reference/formats/payload_arithmetic.h"

namespace arlab {
namespace {

constexpr std::size_t kAtom = 2048;    // elements of one unit of work
constexpr std::size_t kThreads = 256;  // each holds 8 consecutive elements of the atom
constexpr std::size_t kGroup = 64;     // elements of 8 threads: two interleaved blocks
constexpr std::size_t kGroups = kAtom / kGroup;
constexpr std::size_t kBlock = kGroup / 2;  // block 0: even elements of the group, block 1: odd
constexpr std::size_t kScaleBytes = kGroups * 2 * 2;

using AtomCodes = std::array<std::uint8_t, kAtom>;          // one code per element, in order
using AtomScales = std::array<std::uint16_t, 2 * kGroups>;  // [group][even, odd]

// ---------------------------------------------------------------- arithmetic in the payload dtype

struct Fp16 : Fp16Arithmetic {
  static constexpr Bits kEpsilon = kQuickReduceEpsilonFp16;
  static constexpr Bits round(float x) { return from_float_clamped(x); }
  static Bits reciprocal(float x) {
    // AMD parts differ at 1/0; here it clamps like any other overflow.
    return x == 0.0f ? half_from_float(std::copysign(65504.0f, x)) : round(1.0f / x);
  }
};

struct Bf16 : Bf16Arithmetic {
  static constexpr Bits kEpsilon = kQuickReduceEpsilonBf16;
  static constexpr Bits round(float x) { return from_float(x); }
  static Bits reciprocal(float x) {
    return x == 0.0f ? static_cast<Bits>(kInfinity | (std::signbit(x) ? 0x8000 : 0))
                     : round(1.0f / x);
  }
};

using Fp8Code = QuickReduceFp8;
using Fp4Code = QuickReduceFp4;
template <int L>
using IntegerCode = QuickReduceIntegers<L>;

static_assert(Fp16::round(1.0f / 240.0f) == 0x1C44 && Fp16::round(1.0f / 6.0f) == 0x3155);
static_assert(Bf16::round(Fp8Code::kScale) == 0x3B88, "as AMD's kernel; RN(1/240) would be 0x3B89");
static_assert(Bf16::round(Fp4Code::kScale) == 0x3E2B);
static_assert(Fp16::round(IntegerCode<8>::kScale) == 0xB000);
static_assert(Fp16::round(IntegerCode<32>::kScale) == 0xA800);
static_assert(Fp16::round(IntegerCode<128>::kScale) == 0xA000);

// ---------------------------------------------------------------- packing an atom's codes to bytes

template <class Word>
void store(std::byte* at, Word word) {
  std::memcpy(at, &word, sizeof(Word));
}
template <class Word>
Word load(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof(Word));
  return word;
}

/// Four bits per element: the even elements of a thread in the low half word, the odd in the high.
struct NibblePairs {
  static constexpr std::size_t kBytes = 4 * kThreads;
  static void pack(const std::uint8_t* codes, std::byte* out) {
    for (std::size_t t = 0; t < kThreads; ++t) {
      std::uint32_t word = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        word |= (codes[8 * t + 2 * i] & 0xFu) << (4 * i);
        word |= (codes[8 * t + 2 * i + 1] & 0xFu) << (16 + 4 * i);
      }
      store(out + 4 * t, word);
    }
  }
  static void unpack(const std::byte* in, std::uint8_t* codes) {
    for (std::size_t t = 0; t < kThreads; ++t) {
      const auto word = load<std::uint32_t>(in + 4 * t);
      for (std::size_t i = 0; i < 4; ++i) {
        codes[8 * t + 2 * i] = static_cast<std::uint8_t>((word >> (4 * i)) & 0xF);
        codes[8 * t + 2 * i + 1] = static_cast<std::uint8_t>((word >> (16 + 4 * i)) & 0xF);
      }
    }
  }
};

/// `Width` bits per element, element j of a thread in bits Width*j and up of the thread's word.
template <unsigned Width, class Word>
struct InOrder {
  static constexpr std::size_t kBytes = sizeof(Word) * kThreads;
  static constexpr Word kMask = static_cast<Word>((Word{1} << Width) - 1);

  /// Packs bits Shift .. Shift + Width - 1 of each code.
  template <unsigned Shift = 0>
  static void pack(const std::uint8_t* codes, std::byte* out) {
    for (std::size_t t = 0; t < kThreads; ++t) {
      Word word = 0;
      for (unsigned j = 0; j < 8; ++j) {
        const auto bits = static_cast<Word>((codes[8 * t + j] >> Shift) & kMask);
        word = static_cast<Word>(word | static_cast<Word>(bits << (Width * j)));
      }
      store(out + sizeof(Word) * t, word);
    }
  }
  /// ORs the bits into place.
  template <unsigned Shift = 0>
  static void unpack(const std::byte* in, std::uint8_t* codes) {
    for (std::size_t t = 0; t < kThreads; ++t) {
      const auto word = load<Word>(in + sizeof(Word) * t);
      for (unsigned j = 0; j < 8; ++j) {
        const auto bits = static_cast<unsigned>((word >> (Width * j)) & kMask);
        codes[8 * t + j] = static_cast<std::uint8_t>(codes[8 * t + j] | (bits << Shift));
      }
    }
  }
};

/// Eight bits per element; the bytes of a thread hold its elements in the order 0 2 1 3 4 6 5 7.
struct SwappedBytes {
  static constexpr std::size_t kBytes = 8 * kThreads;
  static constexpr std::array<std::size_t, 8> kElementOfByte = {0, 2, 1, 3, 4, 6, 5, 7};
  static void pack(const std::uint8_t* codes, std::byte* out) {
    for (std::size_t t = 0; t < kThreads; ++t) {
      for (std::size_t b = 0; b < 8; ++b)
        out[8 * t + b] = std::byte{codes[8 * t + kElementOfByte[b]]};
    }
  }
  static void unpack(const std::byte* in, std::uint8_t* codes) {
    for (std::size_t t = 0; t < kThreads; ++t) {
      for (std::size_t b = 0; b < 8; ++b) {
        codes[8 * t + kElementOfByte[b]] = std::to_integer<std::uint8_t>(in[8 * t + b]);
      }
    }
  }
};

struct PlainBytes {
  static constexpr std::size_t kBytes = 8 * kThreads;
  static void pack(const std::uint8_t* codes, std::byte* out) { std::memcpy(out, codes, kAtom); }
  static void unpack(const std::byte* in, std::uint8_t* codes) { std::memcpy(codes, in, kAtom); }
};

/// The low bits of every element in one plane, the remaining high bits in a second plane behind it.
template <unsigned LowWidth, class Low, class High>
struct TwoPlanes {
  static constexpr std::size_t kBytes = Low::kBytes + High::kBytes;
  static void pack(const std::uint8_t* codes, std::byte* out) {
    Low::pack(codes, out);
    High::template pack<LowWidth>(codes, out + Low::kBytes);
  }
  static void unpack(const std::byte* in, std::uint8_t* codes) {
    Low::unpack(in, codes);
    High::template unpack<LowWidth>(in + Low::kBytes, codes);
  }
};

// ---------------------------------------------------------------- the six formats
// Payload of an atom, then per group a 32-bit word with its two scales, even block in the low half.

/// An atom's scales are stored in 4 parts of 32 bytes, each filled up to 64. All arithmetic is in fp16 or bf16.
constexpr CodecCost with_filled_stores(CodecCost cost, std::size_t wire_bytes) {
  constexpr double kUnused = 4 * 32;
  const auto bytes = static_cast<double>(wire_bytes);
  cost.store_efficiency = bytes / (bytes + kUnused);
  cost.packed = true;
  return cost;
}

struct Q3 {  // 3.5 bits per element: 3 + 16 / 32
  using Code = IntegerCode<4>;
  using Packing = TwoPlanes<2, InOrder<2, std::uint16_t>, InOrder<1, std::uint8_t>>;
  static constexpr std::size_t kWireBytes = 896;
  static constexpr const char* kName = "qr-q3";
  static constexpr const char* kSummary = "3-bit symmetric integers, signed 16-bit scale";
  static constexpr CodecCost kCost = {10.5, 6};
};
struct Q4 {  // 4.5 bits per element
  using Code = IntegerCode<8>;
  using Packing = NibblePairs;
  static constexpr std::size_t kWireBytes = 1152;
  static constexpr const char* kName = "qr-q4";
  static constexpr const char* kSummary = "4-bit symmetric integers, signed 16-bit scale";
  static constexpr CodecCost kCost = {9.5, 4};
};
struct Q6 {  // 6.5 bits per element
  using Code = IntegerCode<32>;
  using Packing = TwoPlanes<4, NibblePairs, InOrder<2, std::uint16_t>>;
  static constexpr std::size_t kWireBytes = 1664;
  static constexpr const char* kName = "qr-q6";
  static constexpr const char* kSummary = "6-bit symmetric integers, signed 16-bit scale";
  static constexpr CodecCost kCost = {10.5, 6};
};
struct Q8 {  // 8.5 bits per element
  using Code = IntegerCode<128>;
  using Packing = SwappedBytes;
  static constexpr std::size_t kWireBytes = 2176;
  static constexpr const char* kName = "qr-q8";
  static constexpr const char* kSummary = "8-bit symmetric integers, signed 16-bit scale";
  static constexpr CodecCost kCost = {9.5, 4};
};
struct QFp8 {  // 8.5 bits per element
  using Code = Fp8Code;
  using Packing = PlainBytes;
  static constexpr std::size_t kWireBytes = 2176;
  static constexpr const char* kName = "qr-fp8";
  static constexpr const char* kSummary = "fp8 e4m3fnuz elements, 16-bit scale";
  static constexpr CodecCost kCost = {5.5, 3};
};
struct QFp4 {  // 4.5 bits per element
  using Code = Fp4Code;
  using Packing = InOrder<4, std::uint32_t>;
  static constexpr std::size_t kWireBytes = 1152;
  static constexpr const char* kName = "qr-fp4";
  static constexpr const char* kSummary = "fp4 e2m1 elements, 16-bit scale (not OCP)";
  static constexpr CodecCost kCost = {9.5, 4};
};

// ---------------------------------------------------------------- encode and decode one block

/// Orders finite bit patterns as their values, -0 below +0.
constexpr int order_key(std::uint16_t bits) {
  return (bits & 0x8000) != 0 ? -static_cast<int>(bits & 0x7FFF) - 1 : static_cast<int>(bits);
}
constexpr std::uint16_t bits_of_key(int key) {
  return static_cast<std::uint16_t>(key < 0 ? 0x8000 | (-key - 1) : key);
}

/// Step 1: the element that sets the scale; for signed scales the largest or the smallest,
/// whichever is larger in magnitude (the smallest on a tie), else the largest magnitude.
template <class Code>
std::uint16_t extreme(const std::uint16_t (&x)[kBlock]) {
  if constexpr (Code::kSignedScale) {
    int largest = order_key(x[0]);
    int smallest = largest;
    for (const std::uint16_t bits : x) {
      largest = std::max(largest, order_key(bits));
      smallest = std::min(smallest, order_key(bits));
    }
    const std::uint16_t high = bits_of_key(largest);
    const std::uint16_t low = bits_of_key(smallest);
    return (high & 0x7FFF) > (low & 0x7FFF) ? high : low;
  } else {
    std::uint16_t largest = 0;
    for (const std::uint16_t bits : x) {
      largest = std::max(largest, static_cast<std::uint16_t>(bits & 0x7FFF));
    }
    return largest;
  }
}

/// Steps 1 to 5. Writes code i to codes[2 * i], since two blocks interleave; returns the scale d.
/// Encodes a block. The first `real` elements are not padding; only they are counted.
template <class Arithmetic, class Code>
std::uint16_t encode_block(const std::uint16_t (&x)[kBlock], std::size_t real, std::uint8_t* codes,
                           std::uint64_t& clamped_count) {
  bool non_finite = false;
  for (const std::uint16_t bits : x) non_finite |= is_non_finite<Arithmetic>(bits);
  if (non_finite) {
    for (std::size_t i = 0; i < kBlock; ++i) codes[2 * i] = 0;
    return Arithmetic::kNaN;
  }

  const auto value = [](std::uint16_t bits) { return Arithmetic::to_float(bits); };
  const float m = value(extreme<Code>(x));
  const float k = value(Arithmetic::round(Code::kScale));
  const std::uint16_t d = Arithmetic::round(m * k);
  const std::uint16_t shifted = Arithmetic::round(value(d) + value(Arithmetic::kEpsilon));
  const float e = value(Arithmetic::reciprocal(value(shifted)));
  std::uint32_t clamped_here = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const float w = value(Arithmetic::round(value(x[i]) * e));
    const ScaledCode code = Code::encode(w);
    codes[2 * i] = static_cast<std::uint8_t>(code.bits);
    clamped_here += code.clamped && i < real ? 1 : 0;
  }
  clamped_count += clamped_here;
  return d;
}

/// Every code times the scale of its block, rounded once.
template <class Arithmetic, class Code>
void decode_group(const std::uint8_t* codes, std::uint16_t even_scale, std::uint16_t odd_scale,
                  std::uint16_t* out) {
  const float scale[2] = {Arithmetic::to_float(even_scale), Arithmetic::to_float(odd_scale)};
  for (std::size_t i = 0; i < kGroup; ++i) {
    const float exact = Code::decode(codes[i]) * scale[i % 2];
    out[i] = Arithmetic::round(exact);
  }
}

// ---------------------------------------------------------------- the codec: atoms in order

template <class Format>
class QuickReduceCodec final : public Codec {
  static_assert(Format::Packing::kBytes + kScaleBytes == Format::kWireBytes);
  using Code = typename Format::Code;
  using Packing = typename Format::Packing;

 public:
  QuickReduceCodec()
      : Codec({.name = Format::kName,
               .summary = Format::kSummary,
               .source = "MK1 QuickReduce csrc/core/allreduce.h; bf16: vLLM csrc/quickreduce",
               .dtypes = {DType::fp16, DType::bf16},
               .block = kBlock,
               .alignment = kAtom,
               .clamps_fp16_sums = true,
               .fp32_values = Fp32Values::of_dtype,
               .saturating = {DType::fp16},
               .cost = with_filled_stores(Format::kCost, Format::kWireBytes)}) {}

 private:
  std::size_t do_wire_bytes(DType, std::size_t elements) const override {
    return (elements + kAtom - 1) / kAtom * Format::kWireBytes;
  }

  void do_encode(DType dtype, std::span<const std::byte> payload, std::span<std::byte> wire,
                 EncodeCounts& counts) const override {
    dtype == DType::fp16 ? encode_atoms<Fp16>(as_u16(payload), wire.data(), counts)
                         : encode_atoms<Bf16>(as_u16(payload), wire.data(), counts);
  }

  void do_decode(DType dtype, std::span<const std::byte> wire,
                 std::span<std::byte> payload) const override {
    dtype == DType::fp16 ? decode_atoms<Fp16>(wire.data(), as_u16(payload))
                         : decode_atoms<Bf16>(wire.data(), as_u16(payload));
  }

  template <class Arithmetic>
  static void encode_atoms(std::span<const std::uint16_t> x, std::byte* wire,
                           EncodeCounts& counts) {
    AtomCodes codes;
    AtomScales scales;
    for (std::size_t begin = 0; begin < x.size(); begin += kAtom, wire += Format::kWireBytes) {
      for (std::size_t b = 0; b < 2 * kGroups; ++b) {
        const std::size_t first = begin + b / 2 * kGroup + b % 2;
        std::uint16_t block[kBlock] = {};  // elements behind the end of the tensor count as +0
        std::size_t real = 0;
        for (; real < kBlock && first + 2 * real < x.size(); ++real)
          block[real] = x[first + 2 * real];
        scales[b] = encode_block<Arithmetic, Code>(block, real, &codes[b / 2 * kGroup + b % 2],
                                                   counts.clamped);
      }
      Packing::pack(codes.data(), wire);
      std::memcpy(wire + Packing::kBytes, scales.data(), kScaleBytes);
    }
  }

  template <class Arithmetic>
  static void decode_atoms(const std::byte* wire, std::span<std::uint16_t> x) {
    for (std::size_t begin = 0; begin < x.size(); begin += kAtom, wire += Format::kWireBytes) {
      AtomCodes codes = {};
      AtomScales scales;
      Packing::unpack(wire, codes.data());
      std::memcpy(scales.data(), wire + Packing::kBytes, kScaleBytes);
      std::array<std::uint16_t, kAtom> decoded;
      for (std::size_t g = 0; g < kGroups; ++g) {
        decode_group<Arithmetic, Code>(&codes[g * kGroup], scales[2 * g], scales[2 * g + 1],
                                       &decoded[g * kGroup]);
      }
      std::copy_n(decoded.begin(), std::min(kAtom, x.size() - begin),
                  x.begin() + static_cast<std::ptrdiff_t>(begin));
    }
  }
};

}  // namespace

CodecFamily quickreduce_codecs() {
  return family_of(
      {std::make_shared<QuickReduceCodec<QFp8>>(), std::make_shared<QuickReduceCodec<Q8>>(),
       std::make_shared<QuickReduceCodec<Q6>>(), std::make_shared<QuickReduceCodec<Q4>>(),
       std::make_shared<QuickReduceCodec<Q3>>(), std::make_shared<QuickReduceCodec<QFp4>>()});
}

}  // namespace arlab

// Layouts as ggml-common.h and ggml-quants.c of llama.cpp have them. Roundings are those of gguf's
// dequantize() in Python, with which tests/python/test_tensors.py compares every bit.
#include "experiments/models/gguf_types.h"

#include <array>
#include <cmath>
#include <cstring>

#include "reference/formats/bfloat16.h"
#include "reference/formats/fp4.h"
#include "reference/formats/half.h"

namespace arlab::models {
namespace {

using Bytes = const std::byte*;

std::uint16_t word(Bytes b) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, b, sizeof bits);
  return bits;
}
float half(Bytes b) { return half_to_float(word(b)); }
unsigned byte(Bytes b, std::size_t i) { return std::to_integer<unsigned>(b[i]); }
float number(unsigned value, int zero) {
  return static_cast<float>(static_cast<int>(value) - zero);
}

/// Bit `plane` of the byte of element i, where 8 planes of 32 elements lie in 32 bytes.
unsigned bit_of(Bytes bits, std::size_t i) { return byte(bits, i % 32) >> (i / 32) & 1; }
/// Half of a byte: of `run` elements, those of the low halves come first, then those of the high ones.
unsigned nibble(Bytes codes, std::size_t i, std::size_t run) {
  const unsigned both = byte(codes, i / run * (run / 2) + i % (run / 2));
  return i % run < run / 2 ? both & 15 : both >> 4;
}
/// Two bits: 128 elements lie in 32 bytes.
unsigned pair_of_bits(Bytes codes, std::size_t i) {
  return byte(codes, i / 128 * 32 + i % 32) >> (2 * (i % 128 / 32)) & 3;
}

// Blocks of 32 elements, whose fifth bits lie in order.
unsigned fifth(Bytes bits, std::size_t i) { return byte(bits, i / 8) >> (i % 8) & 1; }
float q4_0(Bytes b, std::size_t i) { return half(b) * number(nibble(b + 2, i, 32), 8); }
float q4_1(Bytes b, std::size_t i) {
  return half(b) * number(nibble(b + 4, i, 32), 0) + half(b + 2);
}
float q5_0(Bytes b, std::size_t i) {
  return half(b) * number(nibble(b + 6, i, 32) | fifth(b + 2, i) << 4, 16);
}
float q5_1(Bytes b, std::size_t i) {
  return half(b) * number(nibble(b + 8, i, 32) | fifth(b + 4, i) << 4, 0) + half(b + 2);
}
float q8_0(Bytes b, std::size_t i) {
  return half(b) * static_cast<float>(static_cast<std::int8_t>(b[2 + i]));
}

// Blocks of 256 elements, of 8 or 16 groups with a scale each, which is a multiple of the block's.
float q2_k(Bytes b, std::size_t i) {
  const unsigned both = byte(b, i / 16);
  const float scale = half(b + 80) * number(both & 15, 0);
  return scale * number(pair_of_bits(b + 16, i), 0) - half(b + 82) * number(both >> 4, 0);
}
float q3_k(Bytes b, std::size_t i) {
  const std::size_t group = i / 16;
  const Bytes scales = b + 96;
  const unsigned low = byte(scales, group % 8) >> (group < 8 ? 0 : 4) & 15;
  const unsigned high = byte(scales, 8 + group % 4) >> (2 * (group / 4)) & 3;
  const float scale = half(b + 108) * number(low | high << 4, 32);
  return scale * number(pair_of_bits(b + 32, i) | bit_of(b, i) << 2, 4);
}

/// Six bits of a group's scale or of its minimum, which Q4_K and Q5_K have of 8 groups in 12 bytes.
unsigned six_bits(Bytes scales, std::size_t group, bool of_minimum) {
  const unsigned first = byte(scales, group % 4 + (of_minimum ? 4 : 0));
  if (group < 4) return first & 63;
  return (byte(scales, group + 4) >> (of_minimum ? 4 : 0) & 15) | (first >> 2 & 48);
}
float k_with_minimum(Bytes b, std::size_t i, unsigned code) {
  const float scale = half(b) * number(six_bits(b + 4, i / 32, false), 0);
  return scale * number(code, 0) - half(b + 2) * number(six_bits(b + 4, i / 32, true), 0);
}
float q4_k(Bytes b, std::size_t i) { return k_with_minimum(b, i, nibble(b + 16, i, 64)); }
float q5_k(Bytes b, std::size_t i) {
  return k_with_minimum(b, i, nibble(b + 48, i, 64) | bit_of(b + 16, i) << 4);
}
float q6_k(Bytes b, std::size_t i) {
  const float scale = half(b + 208) * static_cast<float>(static_cast<std::int8_t>(b[192 + i / 16]));
  return scale * number(nibble(b, i, 128) | pair_of_bits(b + 128, i) << 4, 32);
}

// Blocks of levels that are not evenly spaced.
constexpr std::array<float, 16> kLevels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};
float iq4_nl(Bytes b, std::size_t i) { return half(b) * kLevels[nibble(b + 2, i, 32)]; }
float iq4_xs(Bytes b, std::size_t i) {
  const std::size_t group = i / 32;
  const unsigned low = byte(b, 4 + group / 2) >> (4 * (group % 2)) & 15;
  const unsigned high = word(b + 2) >> (2 * group) & 3U;
  return half(b) * number(low | high << 4, 32) * kLevels[nibble(b + 8, i, 32)];
}

// Blocks of -1, 0 and 1: five to a byte as a fraction of 243, or two bits each.
float tq1_0(Bytes b, std::size_t i) {
  static constexpr std::array<unsigned, 5> kPowers = {1, 3, 9, 27, 81};
  const auto digit = [&](std::size_t at, std::size_t of) {
    return ((byte(b, at) * kPowers[of] & 255) * 3) >> 8;
  };
  const unsigned code = i < 160   ? digit(i % 32, i / 32)
                        : i < 240 ? digit(32 + i % 16, (i - 160) / 16)
                                  : digit(48 + i % 4, (i - 240) / 4);
  return half(b + 52) * number(code, 1);
}
float tq2_0(Bytes b, std::size_t i) { return half(b + 64) * number(pair_of_bits(b, i), 1); }

// Blocks of e2m1. Scales are halves of what they stand for, and elements twice, as in llama.cpp,
// whose elements are integers: there is no -0.
float e2m1_twice(unsigned code) { return 2 * e2m1_to_float(static_cast<std::uint8_t>(code)) + 0; }
float mxfp4(Bytes b, std::size_t i) {
  return std::ldexp(1.0F, static_cast<int>(byte(b, 0)) - 128) * e2m1_twice(nibble(b + 1, i, 32));
}
float nvfp4(Bytes b, std::size_t i) {
  const unsigned code = byte(b, i / 16);
  const int exponent = static_cast<int>(code >> 3 & 15);
  const auto fraction = static_cast<float>(code & 7);
  const float scale = code == 0x7F    ? 0
                      : exponent == 0 ? std::ldexp(fraction, -10)
                                      : std::ldexp(8 + fraction, exponent - 11);
  return scale * e2m1_twice(nibble(b + 4, i, 16));
}

float f32(Bytes b, std::size_t /*only*/) {
  float value = 0;
  std::memcpy(&value, b, sizeof value);
  return value;
}
float f16(Bytes b, std::size_t /*only*/) { return half(b); }
float bf16(Bytes b, std::size_t /*only*/) { return bfloat16_to_float(word(b)); }

template <float element(Bytes, std::size_t), std::size_t elements>
void decode(Bytes block, float* out) {
  for (std::size_t i = 0; i < elements; ++i) out[i] = element(block, i);
}
template <float element(Bytes, std::size_t), std::size_t elements>
constexpr GgufType decoded(std::uint32_t number, std::string_view name, std::size_t bytes) {
  return {number, name, elements, bytes, decode<element, elements>};
}

constexpr GgufType kTypes[] = {
    decoded<f32, 1>(0, "F32", 4),
    decoded<f16, 1>(1, "F16", 2),
    decoded<bf16, 1>(30, "BF16", 2),
    decoded<q4_0, 32>(2, "Q4_0", 18),
    decoded<q4_1, 32>(3, "Q4_1", 20),
    decoded<q5_0, 32>(6, "Q5_0", 22),
    decoded<q5_1, 32>(7, "Q5_1", 24),
    decoded<q8_0, 32>(8, "Q8_0", 34),
    decoded<q2_k, 256>(10, "Q2_K", 84),
    decoded<q3_k, 256>(11, "Q3_K", 110),
    decoded<q4_k, 256>(12, "Q4_K", 144),
    decoded<q5_k, 256>(13, "Q5_K", 176),
    decoded<q6_k, 256>(14, "Q6_K", 210),
    decoded<iq4_nl, 32>(20, "IQ4_NL", 18),
    decoded<iq4_xs, 256>(23, "IQ4_XS", 136),
    decoded<tq1_0, 256>(34, "TQ1_0", 54),
    decoded<tq2_0, 256>(35, "TQ2_0", 66),
    decoded<mxfp4, 32>(39, "MXFP4", 17),
    decoded<nvfp4, 64>(40, "NVFP4", 36),
    {9, "Q8_1", 32, 40},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {41, "Q1_0", 128, 18},
};

}  // namespace

const GgufType* find_gguf_type(std::uint32_t number) {
  for (const GgufType& type : kTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

std::string decoded_gguf_types() {
  std::string names;
  for (const GgufType& type : kTypes) {
    if (type.decode == nullptr) continue;
    names += (names.empty() ? "" : ", ") + std::string(type.name);
  }
  return names;
}

}  // namespace arlab::models

// Whether an accelerated codec has every bit of the scalar one: payloads of many lengths, alignments and magnitudes, every 16-bit
// pattern, wires that no encoder writes. Without GoogleTest, so that a program for another processor can ask, too.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "reference/codecs/codec.h"
#include "reference/formats/bfloat16.h"
#include "reference/formats/half.h"
#include "reference/tensors/counter_random.h"
#include "tests/codecs/simd/results.h"

namespace arlab::testing {

inline Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  Bytes x(count);
  const RandomStream random(seed, 0);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<std::byte>(random.word(i));
  return x;
}

/// Numbers between +-2^exponent: some are 0, some stand twice in a row, some blocks are of one size or of many magnitudes.
inline Bytes numbers(DType dtype, std::size_t count, int exponent) {
  Bytes x(count * size_of(dtype));
  const RandomStream random(static_cast<std::uint64_t>(exponent + 200), 0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = random.word(i % 5 == 1 ? i - 1 : i);
    double value = i % 17 == 3 ? 0 : std::ldexp(centred_interval(word), exponent + 1);
    if (i / 32 % 8 == 3) value = (word & 1) == 0 ? 0.0 : -0.0;
    if (i / 32 % 8 == 5) value = std::copysign(std::ldexp(0.7, exponent), value);
    if (i / 32 % 8 == 7) value = std::ldexp(value, -static_cast<int>(word >> 40 & 31));
    const auto f = static_cast<float>(value);
    const auto h = dtype == DType::fp16 ? half_from_float(f) : bfloat16_from_float(f);
    dtype == DType::fp32 ? std::memcpy(&x[4 * i], &f, 4) : std::memcpy(&x[2 * i], &h, 2);
  }
  return x;
}

/// Every 16-bit pattern (in fp32, as the upper half) among its neighbours, in blocks whose scale comes from `extreme`. Blocks of
/// QuickReduce are interleaved: there every pattern stands at an even and at an odd place, and the two blocks of a group have
/// extremes of either sign.
inline Bytes patterns_beside(DType dtype, std::uint32_t extreme, bool interleaved) {
  const RandomStream random(1, 1);
  Bytes x(65536 * size_of(dtype));
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const std::uint64_t word = random.word(i);
    std::uint32_t bits = interleaved ? i ^ (word & 1) : i;
    if (extreme != 0 && (interleaved ? i % 64 < 2 : i % 16 == 5)) {
      bits = extreme | (interleaved ? i % 2 << 15 : 0);
    }
    const std::uint32_t low = word % 3 == 0 ? 0 : static_cast<std::uint32_t>(word >> 48);
    const std::uint32_t wide = bits << 16 | low;
    dtype == DType::fp32 ? std::memcpy(&x[4 * i], &wide, 4) : std::memcpy(&x[2 * i], &bits, 2);
  }
  return x;
}

/// One codec and its accelerated form in one dtype.
class SameBits {
 public:
  /// `whole`: with all lengths, magnitudes and patterns, which take an emulated processor too long.
  SameBits(const Codec& fast, const Codec& scalar, DType dtype, bool whole)
      : fast_(fast), scalar_(scalar), dtype_(dtype) {
    lengths(whole ? 1 : 11);
    magnitudes(whole ? 1 : 25);
    if (whole) patterns();
    wires(whole ? 12 : 2);
  }
  /// Returns the requests with other bits.
  std::vector<std::string> differences() const { return differences_; }

 private:
  void compare(const Bytes& payload, const std::string& what, std::size_t offset = 0) {
    const bool same =
        results(fast_, dtype_, payload, offset) == results(scalar_, dtype_, payload, offset);
    if (!same) differences_.push_back(what);
  }

  /// At an alignment of its own each; few blocks have an infinity or a NaN.
  void lengths(std::size_t step) {
    const std::size_t bytes = size_of(dtype_);
    std::vector<std::size_t> all = {1024, 2047, 2048, 2049, 2048 + 256,
                                    3072, 4095, 4096, 4097, 2 * 4096 + 2048 + 77};
    for (std::size_t elements = 1; elements <= 100; elements += step) all.push_back(elements);
    for (const std::size_t elements : all) {
      Bytes mixed = numbers(dtype_, elements, 0);
      const Bytes patterns = random_bytes(mixed.size(), elements);
      for (std::size_t i = 0; i < mixed.size(); i += 300 * bytes) {
        std::memcpy(&mixed[i], &patterns[i], bytes);
        mixed[i + bytes - 1] |= std::byte{0x7F};
        mixed[i + bytes - 2] |= std::byte{0xF0};
      }
      compare(mixed, std::to_string(elements) + " numbers with some that are not finite",
              elements % 34);
      compare(patterns, std::to_string(elements) + " patterns");
    }
  }

  void magnitudes(int step) {
    const int lowest = dtype_ == DType::fp16 ? -26 : dtype_ == DType::bf16 ? -136 : -151;
    for (int exponent = lowest; exponent <= (dtype_ == DType::fp16 ? 16 : 128); exponent += step) {
      const std::size_t elements = exponent % 8 == 0 ? 4096 + 300 : 1024;
      compare(numbers(dtype_, elements, exponent), "numbers below 2^" + std::to_string(exponent));
    }
  }

  void patterns() {
    for (const std::uint32_t extreme : {0U, 0x80U, 0x3C00U, 0x3F80U, 0x7BFFU}) {
      compare(patterns_beside(dtype_, extreme, scalar_.name().starts_with("qr-")),
              "all patterns beside " + std::to_string(extreme));
    }
  }

  /// Any codes beside any scales: half of them without the largest exponents, a part of those near each other.
  void wires(std::uint64_t seeds) {
    constexpr std::size_t kElements = 3 * 4096 + 77;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      Bytes wire = random_bytes(scalar_.wire_bytes(dtype_, kElements), seed);
      for (std::byte& byte : wire) {
        if (seed % 2 == 0) byte &= std::byte{0xB7};
        if (seed % 4 == 0)
          byte = (byte & std::byte{0x87}) | static_cast<std::byte>(seed << 3 & 0x78);
      }
      Bytes actual = seed % 3 == 0 ? random_bytes(kElements * size_of(dtype_), seed)
                                   : numbers(dtype_, kElements, 3);
      Bytes expected = actual;
      fast_.decode_add(dtype_, wire, actual);
      scalar_.decode_add(dtype_, wire, expected);
      if (actual != expected) differences_.push_back("wire " + std::to_string(seed) + ", added");
      fast_.decode(dtype_, wire, actual);
      scalar_.decode(dtype_, wire, expected);
      if (actual != expected) differences_.push_back("wire " + std::to_string(seed) + ", decoded");
    }
  }

  const Codec& fast_;
  const Codec& scalar_;
  DType dtype_;
  std::vector<std::string> differences_;
};

}  // namespace arlab::testing

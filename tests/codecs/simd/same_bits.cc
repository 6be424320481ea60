// Whether the accelerated codecs of a processor have the bits of the scalar ones and of the golden
// vectors: a program of its own, without GoogleTest, that is built for another processor than this
// machine's and run by an emulator. accelerated_*_test ask more, of this machine's.
//
//   same_bits GOLDEN_DIRECTORY [CODEC ...]      exit code 0: the same; 3: not, and a line for each
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "reference/codecs/registry.h"
#include "reference/codecs/simd/accelerated.h"
#include "reference/formats/bfloat16.h"
#include "reference/formats/half.h"
#include "reference/tensors/counter_random.h"
#include "tests/codecs/simd/results.h"

namespace arlab::testing {
namespace {

Bytes content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Bytes random_bytes(std::size_t count, std::uint64_t seed) {
  Bytes x(count);
  const RandomStream random(seed, 0);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<std::byte>(random.word(i));
  return x;
}

/// Numbers between +-2^exponent, some of them 0 and some twice in a row.
Bytes numbers(DType dtype, std::size_t count, int exponent) {
  Bytes x(count * size_of(dtype));
  const RandomStream random(static_cast<std::uint64_t>(exponent + 200), 0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = random.word(i % 5 == 1 ? i - 1 : i);
    const double value = i % 17 == 3 ? 0 : std::ldexp(centred_interval(word), exponent + 1);
    const auto f = static_cast<float>(value);
    const auto h = dtype == DType::fp16 ? half_from_float(f) : bfloat16_from_float(f);
    dtype == DType::fp32 ? std::memcpy(&x[4 * i], &f, 4) : std::memcpy(&x[2 * i], &h, 2);
  }
  return x;
}

class Comparison {
 public:
  explicit Comparison(std::filesystem::path golden) : golden_(std::move(golden)) {}

  /// A codec that is as it was would prove nothing.
  void run(const std::string& name) {
    scalar_ = find_codec(name);
    fast_ = accelerated(scalar_);
    is_vector_ = fast_ != scalar_;
    for (const DType dtype : scalar_->info().dtypes) {
      dtype_ = dtype;
      check_golden();
      check_payloads();
      check_wires();
    }
  }
  int cases() const { return cases_; }
  int wrong() const { return wrong_; }
  bool is_vector() const { return is_vector_; }

 private:
  void expect(bool same, const std::string& what) {
    ++cases_;
    if (same) return;
    if (++wrong_ <= 20) {
      std::printf("%s %s: %s\n", scalar_->name().c_str(), std::string(name_of(dtype_)).c_str(),
                  what.c_str());
    }
  }
  void compare(std::span<const std::byte> payload, const std::string& what) {
    expect(results(*fast_, dtype_, payload) == results(*scalar_, dtype_, payload), what);
  }

  void check_golden() {
    const std::string dtype(name_of(dtype_));
    const Bytes wire = content(golden_ / (scalar_->name() + "." + dtype + ".wire.bin"));
    const Bytes decoded = content(golden_ / (scalar_->name() + "." + dtype + ".decoded.bin"));
    if (wire.empty() || decoded.empty()) return expect(false, "no golden files");
    Bytes input = content(golden_ / (dtype + ".input.bin"));
    input.resize(decoded.size());
    Bytes actual(wire.size());
    fast_->encode(dtype_, input, actual);
    expect(actual == wire, "encoded, beside the golden wire");
    actual.assign(decoded.size(), std::byte{});
    fast_->decode(dtype_, wire, actual);
    expect(actual == decoded, "decoded, beside the golden elements");
  }

  void check_payloads() {
    const std::size_t bytes = size_of(dtype_);
    for (const std::size_t elements : {1, 9, 31, 64, 100, 2048 + 256, 2 * 4096 + 2048 + 77}) {
      for (const int exponent : {-24, -14, 0, 9, 15, 100, 127}) {
        if (elements != 2048 + 256 && exponent != 0) continue;
        compare(numbers(dtype_, elements, exponent),
                std::to_string(elements) + " numbers below 2^" + std::to_string(exponent));
      }
      compare(random_bytes(elements * bytes, elements), std::to_string(elements) + " patterns");
      // Few blocks have an infinity or a NaN.
      Bytes mixed = numbers(dtype_, elements, 0);
      const Bytes patterns = random_bytes(mixed.size(), 7);
      for (std::size_t i = 0; i < mixed.size(); i += 300 * bytes) {
        std::memcpy(&mixed[i], &patterns[i], bytes);
        mixed[i + bytes - 1] |= std::byte{0x7F};
        mixed[i + bytes - 2] |= std::byte{0xF0};
      }
      compare(mixed, std::to_string(elements) + " numbers with some that are not finite");
    }
  }

  /// Wires that no encoder writes.
  void check_wires() {
    constexpr std::size_t kElements = 3 * 4096 + 77;
    for (const std::uint64_t seed : {1, 2}) {
      Bytes wire = random_bytes(scalar_->wire_bytes(dtype_, kElements), seed);
      if (seed == 2) {  // without the largest exponents
        for (std::byte& byte : wire) byte &= std::byte{0xB7};
      }
      const Bytes sum = numbers(dtype_, kElements, 3);
      Bytes actual = sum;
      Bytes expected = sum;
      fast_->decode_add(dtype_, wire, actual);
      scalar_->decode_add(dtype_, wire, expected);
      expect(actual == expected, "any wire, added");
      fast_->decode(dtype_, wire, actual);
      scalar_->decode(dtype_, wire, expected);
      expect(actual == expected, "any wire, decoded");
    }
  }

  std::filesystem::path golden_;
  CodecPtr scalar_;
  CodecPtr fast_;
  DType dtype_ = DType::fp16;
  bool is_vector_ = false;
  int cases_ = 0;
  int wrong_ = 0;
};

/// Without names: all that have golden vectors.
int same_bits(const std::filesystem::path& golden, std::set<std::string> names) {
  const bool only = !names.empty();
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    const std::string file = entry.path().filename().string();
    const std::size_t dtype = file.rfind('.', file.size() - std::string(".wire.bin").size() - 1);
    if (!only && file.ends_with(".wire.bin")) names.insert(file.substr(0, dtype));
  }
  Comparison comparison(golden);
  int with_vectors = 0;
  for (const std::string& name : names) {
    comparison.run(name);
    with_vectors += comparison.is_vector() ? 1 : 0;
  }
  std::printf("%zu codecs, %d of them with vectors; %d cases, %d wrong\n", names.size(),
              with_vectors, comparison.cases(), comparison.wrong());
  return comparison.wrong() == 0 && with_vectors > 0 ? 0 : 3;
}

}  // namespace
}  // namespace arlab::testing

int main(int argc, char** argv) {
  if (argc >= 2) return arlab::testing::same_bits(argv[1], {argv + 2, argv + argc});
  std::fprintf(stderr, "usage: same_bits GOLDEN_DIRECTORY [CODEC ...]\n");
  return 2;
}

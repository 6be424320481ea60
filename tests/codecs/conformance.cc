#include "tests/codecs/conformance.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/tensors/counter_random.h"
#include "reference/tensors/synthetic.h"

namespace arlab::testing {
namespace {

using Bytes = std::vector<std::byte>;

struct Input {
  std::string name;
  Bytes payload;
};

// Not zero, and not the same: a byte that is not written cannot pass for one that is.
constexpr std::byte kUntouchedByCandidate{0xA5};
constexpr std::byte kUntouchedByReference{0x5A};

std::size_t below(std::uint64_t limit, std::uint64_t word) {
  return static_cast<std::size_t>(word % limit);
}

Input synthetic(const std::string& spec, DType dtype, std::size_t elements) {
  const Tensor tensor = make_synthetic(spec, dtype, 1, elements);
  return {fmt::format("{}, {} {} elements", spec, elements, name_of(dtype)), tensor.data};
}

/// Blocks whose scale is around the epsilon of the QuickReduce codecs, in dtypes of 16 bits:
/// extremes of L * eps for L = 4 .. 256 and either sign, exactly or times 1/2 to 4096, among zeros
/// and others.
Input near_epsilon(DType dtype, std::uint64_t seed) {
  constexpr std::size_t kElements = 7168;  // 112 groups
  const double epsilon = dtype == DType::fp16 ? 0x1p-24 : 0x1.aep-24;
  const RandomStream random(seed, 0);
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    const std::size_t block = i / 64 * 2 + i % 2;
    const auto levels = static_cast<double>(std::size_t{4} << block % 7);
    const double sign = block / 7 % 2 == 0 ? 1 : -1;
    const double factor =
        block / 14 % 4 == 0 ? 1 : std::exp2(13 * unit_interval(mix_bits(seed + block)) - 1);
    const std::uint64_t word = random.word(i);
    const double share = below(3, word) == 0 ? 0 : 2 * centred_interval(word);
    values[i] = static_cast<float>((i % 64 < 2 ? 1 : share) * sign * factor * levels * epsilon);
  }
  return {fmt::format("near_epsilon({}), {} {} elements", seed, kElements, name_of(dtype)),
          tensor_from_floats(dtype, {kElements}, values).data};
}

/// A single block with d = -eps for codes of L levels, or for fp4 with L = -6; most of it is
/// padding.
Input lone_extreme(DType dtype, float levels) {
  const float epsilon = dtype == DType::fp16 ? 0x1p-24f : 0x1.aep-24f;
  const std::vector<float> values = {levels * epsilon, 0, 0};
  return {fmt::format("{} * eps, 0, 0 in {}", levels, name_of(dtype)),
          tensor_from_floats(dtype, {3}, values).data};
}

/// Numbers on and beside half of a power of two: the middles between two codes, at many scales.
Input near_ties(DType dtype, std::uint64_t seed) {
  constexpr std::size_t kElements = 8192;
  const RandomStream random(seed, 1);
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    const std::uint64_t block = mix_bits(seed + i / 64 * 2 + i % 2);
    const auto levels = static_cast<double>(std::size_t{2} << below(7, block));
    const double scale = std::exp2(static_cast<double>(below(12, block >> 8)) - 6);
    const std::uint64_t word = random.word(i);
    const double steps =
        static_cast<double>(below(static_cast<std::uint64_t>(4 * levels), word)) / 2;
    const double nudge = below(3, word >> 32) == 0 ? 1 + 0x1p-9 * centred_interval(word) : 1;
    values[i] = static_cast<float>(i % 64 < 2 ? random_sign(block >> 16) * levels * scale
                                              : (steps - levels) * scale * nudge);
  }
  return {fmt::format("near_ties({}), {} {} elements", seed, kElements, name_of(dtype)),
          tensor_from_floats(dtype, {kElements}, values).data};
}

/// A single non-finite element: what one scale for the whole message, or one bad element among
/// many, hides.
Input lone_non_finite(DType dtype, float value, std::uint64_t seed) {
  constexpr std::size_t kElements = 5000;
  const RandomStream random(seed, 3);
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    values[i] = static_cast<float>(centred_interval(random.word(i)));
  }
  values[below(kElements, random.word(kElements))] = value;
  return {fmt::format("lone {}, {} {} elements", value, kElements, name_of(dtype)),
          tensor_from_floats(dtype, {kElements}, values).data};
}

std::vector<Input> inputs(DType dtype, std::uint64_t seed) {
  const RandomStream random(seed, 2);
  const std::uint64_t name = seed % 0xFFFFFFFF;  // seeds of make_synthetic have 32 bits
  std::vector<Input> list = {
      synthetic(fmt::format("adversarial:seed={}", name), dtype, 20480 + below(64, seed)),
      synthetic(fmt::format("adversarial:seed={},non_finite=0", name), dtype, 20480),
      near_ties(dtype, seed),
      lone_non_finite(dtype, std::numeric_limits<float>::quiet_NaN(), seed),
      lone_non_finite(dtype, -std::numeric_limits<float>::infinity(), seed),
      synthetic("patterns", dtype, 65536),
  };
  if (dtype != DType::fp32) {
    list.push_back(near_epsilon(dtype, seed));
    for (const float levels : {4.0f, 8.0f, 32.0f, 128.0f, -6.0f}) {
      list.push_back(lone_extreme(dtype, levels));
    }
  }
  for (const char* form : {"gaussian:seed={}", "student-t:nu=1,seed={}", "sweep:seed={}",
                           "sweep:low=1e-8,high=0.01,seed={}", "constant:value=-1.5,seed={}",
                           "uniform:low=0,high=1000,seed={}"}) {
    const std::size_t elements = 1 + below(9000, random.word(list.size()));
    list.push_back(synthetic(fmt::format(fmt::runtime(form), name), dtype, elements));
  }
  for (std::size_t i = 0; i < 12; ++i) {
    const std::size_t elements = 1 + below(i < 6 ? 70 : 4200, random.word(100 + i));
    list.push_back(
        synthetic(fmt::format("adversarial:seed={}", (name + i) % 0xFFFFFFFF), dtype, elements));
  }
  return list;
}

/// "wire byte 12 is 0x34, not 0x35".
std::optional<std::string> difference(const char* what, const Bytes& actual,
                                      const Bytes& expected) {
  const auto [a, e] = std::ranges::mismatch(actual, expected);
  if (a == actual.end() && e == expected.end()) return std::nullopt;
  return fmt::format("{} byte {} is 0x{:02x}, not 0x{:02x}", what, a - actual.begin(),
                     std::to_integer<int>(*a), std::to_integer<int>(*e));
}

/// Compares the values that a codec decodes, and its sums, with the reference's.
std::optional<std::string> decodes_differently(const Codec& candidate, const Codec& reference,
                                               DType dtype, const Bytes& wire,
                                               const Bytes& accumulator) {
  Bytes actual(accumulator.size(), kUntouchedByCandidate);
  Bytes expected(accumulator.size(), kUntouchedByReference);
  candidate.decode(dtype, wire, actual);
  reference.decode(dtype, wire, expected);
  if (auto found = difference("decoded", actual, expected)) return found;
  actual = accumulator;
  expected = accumulator;
  candidate.decode_add(dtype, wire, actual);
  reference.decode_add(dtype, wire, expected);
  return difference("added", actual, expected);
}

std::optional<std::string> differs_on(const Codec& candidate, const Codec& reference, DType dtype,
                                      const Bytes& payload) {
  const std::size_t elements = payload.size() / size_of(dtype);
  const std::size_t size = reference.wire_bytes(dtype, elements);
  if (const std::size_t other = candidate.wire_bytes(dtype, elements); other != size) {
    return fmt::format("the wire has {} bytes, not {}", other, size);
  }
  Bytes actual(size, kUntouchedByCandidate);
  Bytes expected(size, kUntouchedByReference);
  EncodeCounts actual_counts;
  EncodeCounts expected_counts;
  candidate.encode(dtype, payload, actual, &actual_counts);
  reference.encode(dtype, payload, expected, &expected_counts);
  if (auto found = difference("wire", actual, expected)) return found;
  if (actual_counts.clamped != expected_counts.clamped) {
    return fmt::format("{} elements are clamped, not {}", actual_counts.clamped,
                       expected_counts.clamped);
  }
  Bytes uncounted(size, kUntouchedByCandidate);
  candidate.encode(dtype, payload, uncounted);
  if (auto found = difference("wire without counting", uncounted, expected)) return found;
  return decodes_differently(candidate, reference, dtype, expected, payload);
}

std::optional<std::string> differs_on_random_wire(const Codec& candidate, const Codec& reference,
                                                  DType dtype, std::uint64_t seed) {
  constexpr std::size_t kElements = 8192;
  Bytes wire(reference.wire_bytes(dtype, kElements));
  const RandomStream random(seed, 3);
  for (std::size_t i = 0; i < wire.size(); ++i) wire[i] = static_cast<std::byte>(random.word(i));
  Bytes accumulator(kElements * size_of(dtype));
  for (std::size_t i = 0; i < accumulator.size(); ++i) {
    accumulator[i] = static_cast<std::byte>(random.word(wire.size() + i));
  }
  return decodes_differently(candidate, reference, dtype, wire, accumulator);
}

}  // namespace

std::optional<std::string> nonconforming(const Codec& candidate, const Codec& reference,
                                         DType dtype) {
  static std::atomic<std::uint64_t> calls{0};
  const std::uint64_t seed = mix_bits(++calls);
  for (const Input& input : inputs(dtype, seed)) {
    if (const auto found = differs_on(candidate, reference, dtype, input.payload)) {
      return fmt::format("{}: {}", input.name, *found);
    }
  }
  if (const auto found = differs_on_random_wire(candidate, reference, dtype, seed)) {
    return fmt::format("random wire {}: {}", seed, *found);
  }
  return std::nullopt;
}

}  // namespace arlab::testing

// What every all-reduce must give, said a second time: one plain function per algorithm, written
// from the comment at the head of its file and from reference/codecs/SPEC.md, "Accumulation", not
// from the executor. There are no schedules here, no steps and no tiles.
//
// Elements are bit patterns. A sum adds float64 values, where the sum of two elements of any dtype
// is exact or at least precise enough that rounding it once more is one correct rounding (53 >= 2 p
// + 2 bits), and rounds here, by its own rounding. The codec is a black box: what was encoded, sent
// and decoded is through(x).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "reference/codecs/codec.h"
#include "reference/collectives/executor.h"
#include "reference/formats/bfloat16.h"
#include "reference/formats/half.h"
#include "reference/tensors/tensor.h"
#include "tests/collectives/variants.h"

namespace arlab::testing {

/// Elements of one rank, or of a part of them, in order.
using Patterns = std::vector<std::uint32_t>;
/// The elements of every rank.
using Payloads = std::vector<Patterns>;

// ---------------------------------------------------------------- elements

inline Patterns patterns_of(DType dtype, std::span<const std::byte> bytes) {
  Patterns patterns(bytes.size() / size_of(dtype));
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    std::memcpy(&patterns[i], &bytes[i * size_of(dtype)], size_of(dtype));  // little endian
  }
  return patterns;
}

inline std::vector<std::byte> bytes_of(DType dtype, const Patterns& patterns) {
  std::vector<std::byte> bytes(patterns.size() * size_of(dtype));
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    std::memcpy(&bytes[i * size_of(dtype)], &patterns[i], size_of(dtype));
  }
  return bytes;
}

inline Payloads payloads_of(const Tensor& tensor) {
  Payloads payloads;
  for (std::size_t rank = 0; rank < tensor.ranks(); ++rank) {
    payloads.push_back(patterns_of(tensor.dtype, tensor.rank_bytes(rank)));
  }
  return payloads;
}

inline std::vector<std::byte> bytes_of(DType dtype, const Payloads& payloads) {
  std::vector<std::byte> bytes;
  for (const Patterns& patterns : payloads) {
    const std::vector<std::byte> more = bytes_of(dtype, patterns);
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

inline double value_of(DType dtype, std::uint32_t pattern) {
  if (dtype == DType::fp32) return std::bit_cast<float>(pattern);
  const auto bits = static_cast<std::uint16_t>(pattern);
  return dtype == DType::fp16 ? half_to_float(bits) : bfloat16_to_float(bits);
}

/// The element that has exactly this value; any NaN is the canonical one.
inline std::uint32_t pattern_of(DType dtype, double value) {
  const bool is_nan = std::isnan(value);
  const auto narrow = static_cast<float>(value);
  switch (dtype) {
    case DType::fp16:
      return is_nan ? 0x7E00u : half_from_float(narrow);
    case DType::bf16:
      return is_nan ? 0x7FC0u : bfloat16_from_float(narrow);
    case DType::fp32:
      return is_nan ? 0x7FC00000u : std::bit_cast<std::uint32_t>(narrow);
  }
  return 0;
}

/// The nearest value of a dtype, ties to even: a whole number of units in the last place.
inline double nearest(DType dtype, double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int mantissa_bits = dtype == DType::fp16 ? 10 : dtype == DType::bf16 ? 7 : 23;
  const int smallest_exponent = dtype == DType::fp16 ? -14 : -126;
  const int exponent = std::max(std::ilogb(value), smallest_exponent);
  const double unit = std::ldexp(1.0, exponent - mantissa_bits);
  const double rounded = std::nearbyint(value / unit) * unit;
  const double too_large = std::ldexp(1.0, dtype == DType::fp16 ? 16 : 128);
  return std::abs(rounded) < too_large
             ? rounded
             : std::copysign(std::numeric_limits<double>::infinity(), value);
}

// ---------------------------------------------------------------- sums and messages

/// How one rank reduces: the codec, the dtype and the rule of the sum.
struct Oracle {
  const Codec& codec;
  DType dtype = DType::fp16;
  Accumulate accumulate = Accumulate::native;
  const Codec* inner = nullptr;  // of messages inside groups, where they have one of their own

  Oracle inside() const { return {inner == nullptr ? codec : *inner, dtype, accumulate}; }

  /// What arrives where x was sent.
  Patterns through(const Patterns& x) const {
    const std::vector<std::byte> payload = bytes_of(dtype, x);
    std::vector<std::byte> wire(codec.wire_bytes(dtype, x.size()));
    codec.encode(dtype, payload, wire);
    std::vector<std::byte> arrived(payload.size());
    codec.decode(dtype, wire, arrived);
    return patterns_of(dtype, arrived);
  }

  /// The RN of a sum to a type; a finite fp16 sum that overflows clamps with qr-*.
  double rounded(DType to, double sum) const {
    const double result = nearest(to, sum);
    const bool overflowed = std::isinf(result) && !std::isinf(sum);
    const bool clamps = codec.name().starts_with("qr-") && to == DType::fp16;
    return overflowed && clamps ? std::copysign(65504.0, sum) : result;
  }

  std::uint32_t sum_of_elements(const Patterns& addends, Start start) const {
    const DType sum_type = accumulate == Accumulate::fp32 ? DType::fp32 : dtype;
    // Without any addition there is nothing to round, not even a NaN.
    if (start == Start::first && addends.size() == 1 && sum_type == dtype) return addends[0];
    double sum = start == Start::zero ? 0.0 : value_of(dtype, addends[0]);
    for (std::size_t i = start == Start::zero ? 0 : 1; i < addends.size(); ++i) {
      sum = rounded(sum_type, sum + value_of(dtype, addends[i]));
    }
    return pattern_of(dtype, rounded(dtype, sum));
  }

  Patterns sum(const Payloads& addends, Start start) const {
    Patterns result(addends.front().size());
    Patterns elements(addends.size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      for (std::size_t k = 0; k < addends.size(); ++k) elements[k] = addends[k][i];
      result[i] = sum_of_elements(elements, start);
    }
    return result;
  }

  /// The contribution of a rank where it is reduced: by itself, or by another rank.
  Patterns contribution(const Patterns& x, bool is_own, std::string_view own) const {
    return is_own && own == "exact" ? x : through(x);
  }
};

// ---------------------------------------------------------------- chunks

/// Where part `part` begins, when a tensor is cut into `parts` of nearly equal size at multiples of
/// the alignment, longer parts first.
inline std::size_t begin_of_part(std::size_t part, std::size_t parts, std::size_t elements,
                                 std::size_t alignment) {
  const std::size_t units = elements / alignment + (elements % alignment != 0 ? 1 : 0);
  const std::size_t units_before = part * (units / parts) + std::min(part, units % parts);
  return units_before >= units ? elements : units_before * alignment;
}

/// Cuts all payloads into `parts`, calls `reduce_chunk(owner, inputs of the chunk)` for each, and
/// puts the outputs of all ranks together again.
template <class ReduceChunk>
Payloads chunk_by_chunk(const Payloads& inputs, std::size_t parts, std::size_t alignment,
                        ReduceChunk&& reduce_chunk) {
  const std::size_t elements = inputs.front().size();
  Payloads outputs(inputs.size());
  for (std::size_t owner = 0; owner < parts; ++owner) {
    const std::size_t begin = begin_of_part(owner, parts, elements, alignment);
    const std::size_t end = begin_of_part(owner + 1, parts, elements, alignment);
    if (begin == end) continue;
    Payloads chunk;
    for (const Patterns& x : inputs) {
      chunk.emplace_back(x.begin() + static_cast<std::ptrdiff_t>(begin),
                         x.begin() + static_cast<std::ptrdiff_t>(end));
    }
    const Payloads results = reduce_chunk(owner, chunk);
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      outputs[rank].insert(outputs[rank].end(), results[rank].begin(), results[rank].end());
    }
  }
  return outputs;
}

// ---------------------------------------------------------------- the algorithms

/// Every rank sums what all sent, in ascending rank order, from the first addend.
inline Payloads one_shot(const Oracle& oracle, const Payloads& x, std::string_view own) {
  Payloads arrived;
  for (const Patterns& payload : x) arrived.push_back(oracle.through(payload));
  Payloads outputs;
  for (std::size_t me = 0; me < x.size(); ++me) {
    Payloads addends = arrived;
    if (own == "exact") addends[me] = x[me];
    outputs.push_back(oracle.sum(addends, Start::first));
  }
  return outputs;
}

/// The owner of a chunk sums in ascending rank order from +0; everybody decodes its one message.
inline Payloads two_shot_chunk(const Oracle& oracle, const Payloads& x, std::size_t owner,
                               std::string_view own) {
  Payloads addends;
  for (std::size_t rank = 0; rank < x.size(); ++rank) {
    addends.push_back(oracle.contribution(x[rank], rank == owner, own));
  }
  return Payloads(x.size(), oracle.through(oracle.sum(addends, Start::zero)));
}

/// Chunk c starts at rank c + 1; every next rank adds what arrives to its own; rank c owns the sum.
inline Payloads ring_chunk(const Oracle& oracle, const Payloads& x, std::size_t owner,
                           std::string_view own, std::string_view forward) {
  const std::size_t n = x.size();
  Patterns partial = x[(owner + 1) % n];
  for (std::size_t hop = 1; hop < n; ++hop) {
    const Patterns& mine = x[(owner + 1 + hop) % n];
    partial =
        oracle.sum({oracle.contribution(mine, true, own), oracle.through(partial)}, Start::first);
  }
  Payloads outputs(n);
  Patterns result = oracle.through(partial);
  outputs[owner] = result;
  for (std::size_t hop = 1; hop < n; ++hop) {
    // The owner sends what it encoded; whoever passes it on may encode it again.
    if (forward == "reencoded" && hop > 1) result = oracle.through(result);
    outputs[(owner + hop) % n] = result;
  }
  return outputs;
}

/// Ring `ring` of several enters every server of as many ranks at its rank `ring`, and visits 0, +1,
/// -1, +2, -2, ... from there; in every second server it does all that backwards.
inline std::vector<std::size_t> ring_order(std::size_t ring, std::size_t rings, std::size_t n) {
  std::vector<std::size_t> order;
  for (std::size_t rank = 0; rings == 1 && rank < n; ++rank) order.push_back(rank);
  for (std::size_t server = 0; rings > 1 && server < n / rings; ++server) {
    std::vector<std::size_t> walk = {ring};
    for (std::size_t away = 1; walk.size() < rings; ++away) {
      walk.push_back((ring + away) % rings);
      if (walk.size() < rings) walk.push_back((ring + rings - away) % rings);
    }
    if (server % 2 == 1) std::ranges::reverse(walk);
    for (const std::size_t member : walk) order.push_back(server * rings + member);
  }
  return order;
}

/// The partial sum of a rank after it has folded and halved down to `distance`.
inline Patterns halved(const Oracle& oracle, const Payloads& x, std::string_view own,
                       std::size_t rank, std::size_t distance) {
  const std::size_t p = std::bit_floor(x.size());
  if (distance == p) {
    if (p + rank >= x.size()) return x[rank];
    return oracle.sum({oracle.contribution(x[rank], true, own), oracle.through(x[p + rank])},
                      Start::first);
  }
  const Patterns mine = halved(oracle, x, own, rank, 2 * distance);
  const Patterns of_partner = halved(oracle, x, own, rank ^ distance, 2 * distance);
  return oracle.sum({oracle.contribution(mine, true, own), oracle.through(of_partner)},
                    Start::first);
}

/// All decode what the owner encoded of its sum, which it has when distance 1 is done.
inline Payloads halving_doubling_chunk(const Oracle& oracle, const Payloads& x, std::size_t owner,
                                       std::string_view own) {
  return Payloads(x.size(), oracle.through(halved(oracle, x, own, owner, 1)));
}

/// In each group the owner sums the members from +0; the owners of a chunk sum the groups' partial
/// sums from +0, each for its own group.
inline Payloads hierarchical_chunk(const Oracle& oracle, const Payloads& x, std::size_t owner,
                                   std::size_t group_size, std::string_view own) {
  const std::size_t groups = x.size() / group_size;
  const Oracle inside = oracle.inside();
  Payloads partials;
  for (std::size_t group = 0; group < groups; ++group) {
    Payloads addends;
    for (std::size_t member = 0; member < group_size; ++member) {
      addends.push_back(inside.contribution(x[group * group_size + member], member == owner, own));
    }
    partials.push_back(inside.sum(addends, Start::zero));
  }
  Payloads outputs;
  for (std::size_t group = 0; group < groups; ++group) {
    Payloads addends;
    for (std::size_t from = 0; from < groups; ++from) {
      addends.push_back(oracle.contribution(partials[from], from == group, own));
    }
    // With one group there is nothing to exchange: the partial sum is the sum.
    const Patterns sum = groups == 1 ? partials[0] : oracle.sum(addends, Start::zero);
    outputs.insert(outputs.end(), group_size, inside.through(sum));
  }
  return outputs;
}

/// The sum at a position of the heap-like tree and all below it; the own value comes first.
inline Patterns climbed(const Oracle& oracle, const Payloads& x, std::string_view own,
                        bool mirrored, std::size_t position) {
  const std::size_t n = x.size();
  const Patterns& mine = x[mirrored ? n - 1 - position : position];
  if (2 * position + 1 >= n) return mine;
  Payloads addends = {oracle.contribution(mine, true, own)};
  for (const std::size_t child : {2 * position + 1, 2 * position + 2}) {
    if (child >= n) continue;
    addends.push_back(oracle.through(climbed(oracle, x, own, mirrored, child)));
  }
  return oracle.sum(addends, Start::first);
}

/// All decode what the root encoded; the second half of the tensor climbs the mirrored tree.
inline Payloads tree_chunk(const Oracle& oracle, const Payloads& x, bool mirrored,
                           std::string_view own) {
  return Payloads(x.size(), oracle.through(climbed(oracle, x, own, mirrored, 0)));
}

/// The outputs of all ranks. The variant has all its options set; the codec may be cut at its
/// alignment (so micro-chunks make no difference).
inline Payloads all_reduce(const Oracle& oracle, const Variant& variant, std::size_t alignment,
                           const Payloads& inputs) {
  const std::string& name = variant.algorithm;
  const std::string own = text_of(variant, "own");
  const std::size_t n = inputs.size();
  if (name == "one_shot") return one_shot(oracle, inputs, own);
  if (name == "two_shot") {
    return chunk_by_chunk(inputs, n, alignment, [&](std::size_t owner, const Payloads& x) {
      return two_shot_chunk(oracle, x, owner, own);
    });
  }
  if (name == "ring") {
    const std::size_t rings = std::get<std::uint64_t>(variant.options.get("rings"));
    return chunk_by_chunk(inputs, n * rings, alignment, [&](std::size_t part, const Payloads& x) {
      const std::vector<std::size_t> order = ring_order(part / n, rings, n);
      Payloads placed;
      for (const std::size_t rank : order) placed.push_back(x[rank]);
      const Payloads sums = ring_chunk(oracle, placed, part % n, own, text_of(variant, "forward"));
      Payloads outputs(n);
      for (std::size_t place = 0; place < n; ++place) outputs[order[place]] = sums[place];
      return outputs;
    });
  }
  if (name == "halving_doubling") {
    const std::size_t p = std::bit_floor(n);
    return chunk_by_chunk(inputs, p, alignment, [&](std::size_t owner, const Payloads& x) {
      return halving_doubling_chunk(oracle, x, owner, own);
    });
  }
  if (name == "tree") {
    return chunk_by_chunk(inputs, 2, alignment, [&](std::size_t half, const Payloads& x) {
      return tree_chunk(oracle, x, half == 1, own);
    });
  }
  if (name == "hierarchical" || name == "hierarchical_pipelined") {
    const std::size_t group_size = variant.options.group_size().value();
    return chunk_by_chunk(inputs, group_size, alignment, [&](std::size_t owner, const Payloads& x) {
      return hierarchical_chunk(oracle, x, owner, group_size, own);
    });
  }
  throw std::logic_error("oracle.h does not know the algorithm " + name);
}

}  // namespace arlab::testing

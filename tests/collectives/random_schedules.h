// Absurd schedules: those of random algorithms, with random fields changed.
#pragma once

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "tests/collectives/variants.h"

namespace arlab::testing {

inline constexpr Rank kMostRanks = 6;

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }
  template <class T>
  T& pick(std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  std::mt19937_64 engine_;
};

inline Schedule random_schedule(Random& random) {
  const auto world_size = static_cast<Rank>(1 + random.below(kMostRanks));
  std::vector<Variant> variants =
      all_variants(world_size, {static_cast<std::uint32_t>(1 + random.below(4))});
  std::vector<std::uint64_t> alignments = {1, 2, 3, 32};
  const std::uint64_t alignment = random.pick(alignments);
  return schedule_of(random.pick(variants), world_size, 1 + random.below(8 * alignment), alignment);
}

/// Another value for a field: a neighbour, an extreme, or one that could be meant.
template <class Integer>
void change(Integer& field, Random& random, std::uint64_t plausible) {
  constexpr Integer kMax = std::numeric_limits<Integer>::max();
  switch (random.below(8)) {
    case 0:
      field = 0;
      break;
    case 1:
      field = kMax;
      break;
    case 2:
      field = static_cast<Integer>(field + 1);
      break;
    case 3:
      field = static_cast<Integer>(field - 1);
      break;
    default:
      field = static_cast<Integer>(random.below(std::min(plausible, std::uint64_t{1} << 32) + 1));
  }
}

inline void mutate(Schedule& s, Random& random) {
  Op& op = random.pick(s.ops);
  const std::uint64_t ops = s.ops.size();
  switch (random.below(23)) {
    case 0:
      return change(s.world_size, random, kMostRanks);
    case 1:
      return change(s.elements, random, 64);
    case 2:
      return change(s.alignment, random, 32);
    case 3:
      return change(random.pick(s.chunks).begin, random, s.elements);
    case 4:
      return change(random.pick(s.chunks).end, random, s.elements);
    case 5:
      op.kind = static_cast<OpKind>(random.below(5));
      return;
    case 6:
      op.start = op.start == Start::zero ? Start::first : Start::zero;
      return;
    case 7:
      return change(op.step, random, 8);
    case 8:
      return change(op.rank, random, s.world_size);
    case 9:
      return change(op.peer, random, s.world_size);
    case 10:
      return change(op.chunk, random, s.chunks.size());
    case 11:
    case 12:
      return change(op.source, random, ops);
    case 13:
      return change(op.first_addend, random, s.addends.size());
    case 14:
      return change(op.addend_count, random, s.addends.size());
    case 15:
    case 16:
      if (!s.addends.empty()) change(random.pick(s.addends), random, ops);
      return;
    case 17:
      return change(random.pick(s.outputs).rank, random, s.world_size);
    case 18:
      return change(random.pick(s.outputs).chunk, random, s.chunks.size());
    case 19:
      return change(random.pick(s.outputs).value, random, ops);
    case 20:
      return change(random.pick(s.outputs).begin, random, s.elements);
    case 21:
      op.codec = static_cast<CodecRole>(random.below(4));
      return;
    default:
      if (!s.addends.empty()) std::swap(random.pick(s.addends), random.pick(s.addends));
  }
}

}  // namespace arlab::testing

// halving_doubling: recursive halving reduce-scatter, then recursive doubling all-gather.
//
// P = largest power of two <= N. The N - P ranks beyond P fold into a partner first and get the
// result last, so that P ranks take part in between (Rabenseifner's scheme, as in MPICH).
//
//   fold      rank P + i sends its tensor to rank i, which adds it to its own
//   halving   distances P/2, P/4, ..., 1: partner = rank XOR distance; a rank keeps the half of the
//             chunks that agrees with its own bit, sends the partial sums of the other half, and
//             adds what arrives to its own partial sums; at the end rank c owns chunk c
//   doubling  distances 1, 2, ..., P/2: a rank sends its partner all finished chunks it has; the
//             bytes that the owner encoded are forwarded unchanged, so all ranks hold the same bits
//   unfold    rank i sends all finished chunks to rank P + i
//
// A sum starts from the own value, exact unless own = encoded.

#include <bit>

#include "reference/collectives/schedule_builder.h"

namespace arlab {
namespace {

const Field kHalvingDoublingOwn = own_option("exact");

Schedule halving_doubling(const ScheduleRequest& request) {
  ScheduleBuilder s("halving_doubling", request);
  const bool own_encoded = text_of(kHalvingDoublingOwn, request.options) == "encoded";
  const Rank n = s.world_size();
  const Rank p = std::bit_floor(n);
  const std::uint32_t fold_steps = n > p ? 1 : 0;
  const auto rounds = static_cast<std::uint32_t>(std::countr_zero(p));
  const std::vector<Chunk> ranges = s.split(p);

  for (Rank owner = 0; owner < p; ++owner) {
    if (ranges[owner].size() == 0) continue;
    const ChunkId chunk = s.add_chunk(ranges[owner]);
    const auto add = [&](Value own, Value arrived) {
      return s.reduce(std::vector{own_encoded ? s.encode(own) : own, arrived}, Start::first);
    };

    std::vector<Value> partial;  // this chunk's, by rank below p
    for (Rank rank = 0; rank < p; ++rank) {
      partial.push_back(s.input(rank, chunk));
      if (p + rank >= n) continue;
      s.at_step(0);
      const Value folded = s.send(s.encode(s.input(p + rank, chunk)), rank);
      s.at_step(1);
      partial[rank] = add(partial[rank], folded);
    }

    for (std::uint32_t round = 0; round < rounds; ++round) {
      // Ranks that agree with the owner in all bits above this one still hold a partial sum.
      const Rank distance = p >> (round + 1);
      for (Rank rank = 0; rank < p; ++rank) {
        const bool in_play = (rank & ~(2 * distance - 1)) == (owner & ~(2 * distance - 1));
        const bool keeps = (rank & distance) == (owner & distance);
        if (!in_play || !keeps) continue;
        s.at_step(fold_steps + round);
        const Value arrived = s.send(s.encode(partial[rank ^ distance]), rank);
        s.at_step(fold_steps + round + 1);
        partial[rank] = add(partial[rank], arrived);
      }
    }

    s.at_step(fold_steps + rounds);
    std::vector<Value> result(p);  // by rank below p, filled in as the result spreads
    result[owner] = s.encode(partial[owner]);
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const Rank distance = Rank{1} << round;
      s.at_step(fold_steps + rounds + round);
      for (Rank from = 0; from < p; ++from) {
        // Ranks that agree with the owner in all bits from this one up have the result already.
        if ((from & ~(distance - 1)) != (owner & ~(distance - 1))) continue;
        result[from ^ distance] = s.send(result[from], from ^ distance);
      }
    }
    for (Rank rank = 0; rank < p; ++rank) s.output(result[rank]);
    s.at_step(fold_steps + 2 * rounds);
    for (Rank rank = 0; p + rank < n; ++rank) s.output(s.send(result[rank], p + rank));
  }
  return s.finish();
}

}  // namespace

Algorithm halving_doubling_algorithm() {
  return {.name = "halving_doubling",
          .summary = "recursive halving reduce-scatter, recursive doubling all-gather",
          .source = "Rabenseifner; MPICH",
          .options = {kHalvingDoublingOwn},
          .write = halving_doubling};
}

}  // namespace arlab

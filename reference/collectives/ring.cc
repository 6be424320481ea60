// ring: chunks travel around the ring twice, first collecting sums, then spreading the result.
//
//   steps 0 .. N-2      chunk c starts at rank c + 1 and moves to the next rank at every step; a
//                       rank adds what arrives to its own value and encodes the partial sum again;
//                       rank c is the last to add and owns the result           (reduce-scatter)
//   steps N-1 .. 2N-3   the owner encodes the result once; it moves around the ring (all-gather):
//                       forward = unchanged  every rank passes on the bytes it got: same bits
//                       forward = reencoded  every rank decodes and encodes again: ranks may differ
//
// With rings = R there are R of them, each of a share of the tensor: consecutive ranks are servers of
// R, and ring k enters a server at its rank k (walk_of_ring()), so that together they use all network
// cards, and inside a server all links alike. What is said of ranks 0, 1, 2, ... above is said of the
// places on a ring.
//
// A sum starts from the own value, exact unless own = encoded. Volume 2 (N - 1) payloads, 2 (N - 1)
// latencies, N - 1 roundings of partial sums: what QuickReduce avoids by two_shot.

#include "reference/collectives/ring.h"

#include <algorithm>
#include <numeric>

#include "reference/collectives/schedule_builder.h"

namespace arlab {

std::vector<Rank> walk_of_ring(Rank ring, Rank count, bool backwards) {
  std::vector<Rank> walk;
  for (Rank i = 0; i < count; ++i) {
    const Rank step = i % 2 == 1 ? (i + 1) / 2 : (count - i / 2) % count;
    walk.push_back((ring + step) % count);
  }
  if (backwards) std::reverse(walk.begin(), walk.end());
  return walk;
}

namespace {

const Field kRings = {.name = "rings",
                      .kind = Integer{1, 1024},
                      .otherwise = std::uint64_t{1},
                      .help = "run N rings at once, over servers of N ranks"};
const Field kRingOwn = own_option("exact");
/// Whether the all-gather passes the owner's bytes on, or decodes them and encodes them again.
const Field kForward = {.name = "forward",
                        .kind = OneOf{{"unchanged", "reencoded"}},
                        .otherwise = "unchanged",
                        .help = "pass on the all-gather's bytes unchanged, or encode them again"};

/// The ranks of a ring in its order.
std::vector<Rank> order_of(Rank ring, Rank rings, Rank n) {
  std::vector<Rank> order(n);
  std::iota(order.begin(), order.end(), Rank{0});
  if (rings == 1) return order;
  for (Rank server = 0; server < n / rings; ++server) {
    const std::vector<Rank> walk = walk_of_ring(ring, rings, server % 2 == 1);
    for (Rank i = 0; i < rings; ++i) order[server * rings + i] = server * rings + walk[i];
  }
  return order;
}

Schedule ring(const ScheduleRequest& request) {
  ScheduleBuilder s("ring", request);
  const bool own_encoded = text_of(kRingOwn, request.options) == "encoded";
  const bool reencode = text_of(kForward, request.options) == "reencoded";
  const Rank n = s.world_size();
  const auto rings = static_cast<Rank>(integer_of(kRings, request.options));
  if (n % rings != 0) {
    fail("ring: {} rings do not divide the {} ranks; allowed are numbers that do", rings, n);
  }
  const std::vector<Chunk> ranges = s.split(n * rings);

  for (Rank part = 0; part < n * rings; ++part) {
    if (ranges[part].size() == 0) continue;
    const ChunkId chunk = s.add_chunk(ranges[part]);
    const std::vector<Rank> rank_at = order_of(part / n, rings, n);
    const Rank place = part % n;  // the owner's
    const Rank owner = rank_at[place];

    const Rank first = (place + 1) % n;
    Value partial = s.input(rank_at[first], chunk);
    for (const Rank hop : s.hops_from(rank_at[first])) {
      const Rank from = rank_at[(first + hop) % n];
      if (partial.rank != from) partial = s.elsewhere(from, chunk, false);
      s.at_step(hop);
      const Rank next = rank_at[(first + hop + 1) % n];
      const Value arrived = s.send(s.encode(partial), next);
      s.at_step(hop + 1);
      const Value own = s.input(next, chunk);
      partial = s.reduce(std::vector{own_encoded ? s.encode(own) : own, arrived}, Start::first);
    }

    if (partial.rank != owner) partial = s.elsewhere(owner, chunk, false);
    s.at_step(n - 1);
    Value result = s.encode(partial);
    s.output(result);
    for (const Rank hop : s.hops_from(owner)) {
      const Rank from = rank_at[(place + hop) % n];
      if (result.rank != from) result = s.elsewhere(from, chunk, true);
      s.at_step(n - 1 + hop);
      if (reencode && hop > 0) result = s.encode(result);
      result = s.send(result, rank_at[(place + hop + 1) % n]);
      s.output(result);
    }
  }
  return s.finish();
}

}  // namespace

Algorithm ring_algorithm() {
  return {.name = "ring",
          .summary = "ring reduce-scatter, then ring all-gather",
          .source = "NCCL ring",
          .options = {kRingOwn, kForward, kRings},
          .write = ring,
          .symmetry = [](const ScheduleRequest& r) {
            const bool one = integer_of(kRings, r.options) == 1;
            const bool even = one && splits_evenly(r, r.world_size);
            return RankSymmetry{even ? RankSymmetry::cyclic : RankSymmetry::none};
          }};
}

}  // namespace arlab

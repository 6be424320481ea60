// one_shot where no block has more than one tile, with Lamport slots: of 2 to 8 ranks.
#pragma once

#include "kernels/codecs/plain.h"
#include "kernels/collectives/fused_tail.h"
#include "kernels/collectives/slots_of_codec.h"
#include "kernels/transport/lamport.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Element, class Tail>
ARLAB_DEVICE void one_shot_of_wires(const Call& call, const Codec& codec, const Tail& tail) {
  constexpr unsigned kWords = kLamportWords<Codec>;
  using Memory = MemoryWith<LamportMemory<kWords>, Tail>;
  ARLAB_SHARED_ARRAY(Memory, memory, 1);
  touch_parameter(call);
  begin_codec(codec);
  LamportExchange<kWords> exchange(call.team, tile_bytes_of<Codec>(call) / 16, memory[0]);
  TileSums<Element, Tail> sums(call, tail, memory[0]);
  const int rank = call.team.rank;
  Tile tile;
  if (!tile_at(call, call.chunk[0], 0, 0, tile)) return;  // nor has this block on other ranks
  pdl_wait();
  const Pack8<Element> x = tile.load<Element>(call.input);
  exchange.begin();
  sums.begin();
  const auto encoded = encode_tile(codec, call, 0, tile.begin, x, Batch::at());
  codec.store(encoded, exchange.wire(rank), Batch::at());
  exchange.send(0, kAllRanks, memory[0].wire[rank]);
  exchange.signal();
  sums.load(tile);  // while words are on their way, and behind what they are made of
  if (!exchange.receive(0, kAllRanks)) return;
  pdl_trigger();
  Pack8<Element> sum[1];
  sum_batch<SumFrom::first>(
      codec, call, [&](int from) ARLAB_INLINED_LAMBDA { return exchange.wire(from); }, 1, sum);
  sums.take(tile, sum[0]);
  exchange.end();
}

template <class Codec>
inline constexpr bool kIsPlain = false;
template <class Element>
inline constexpr bool kIsPlain<Plain<Element>> = true;

struct DirectMemory {
  std::uint32_t failed;
};

/// Elements are sent as they are: a thread has what it needs in registers.
template <class Codec, class Element, int kMostRanks, class Tail>
ARLAB_DEVICE void one_shot_direct(const Call& call, const Tail& tail) {
  using Memory = MemoryWith<DirectMemory, Tail>;
  ARLAB_SHARED_ARRAY(Memory, memory, 1);
  touch_parameter(call);
  LamportExchange<kLamportWords<Codec>, DirectMemory> exchange(
      call.team, tile_bytes_of<Codec>(call) / 16, memory[0]);
  TileSums<Element, Tail, true> sums(call, tail, memory[0]);
  Tile tile;
  if (!tile_at(call, call.chunk[0], 0, 0, tile)) return;
  pdl_wait();
  const Pack8<Element> x = tile.load<Element>(call.input);
  exchange.begin();
  sums.begin();
  constexpr bool kHasRegisters = kMostRanks == 2;
  Uint4 words[kMostRanks];
  const auto sent = [&]() ARLAB_INLINED_LAMBDA {
    if constexpr (kHasRegisters) sums.load(tile);
  };
  const bool arrived = exchange.exchange(__builtin_bit_cast(Uint4, x), words, sent);
  if (!arrived && !Tail::kIsThere) return;  // some threads; with a tail, the others wait for all
  if constexpr (!kHasRegisters) sums.load(tile);
  pdl_trigger();
  with_sums<Element, Codec::kClampsFp16Sums, kMostRanks>(
      call.fp32_sums, [&]<class Sum>(std::type_identity<Sum>) ARLAB_INLINED_LAMBDA {
        Sum sum;
        sum.begin_with(__builtin_bit_cast(Pack8<Element>, words[0]));
#pragma unroll
        for (int from = 1; from < kMostRanks; ++from) {
          if (from >= call.team.layout.ranks) continue;
          sum.template take<true>(__builtin_bit_cast(Pack8<Element>, words[from]));
        }
        sums.take(tile, sum.template rounded<true>());
      });
  exchange.end();
}

/// `kMostRanks` is a constant where elements are sent as they are: 2, or for all numbers of ranks.
template <class Codec, class Element, int kMostRanks, class Tail>
ARLAB_DEVICE void one_shot_lamport(const Call& call, [[maybe_unused]] const Codec& codec,
                                   const Tail& tail) {
  if constexpr (kIsPlain<Codec>) {
    one_shot_direct<Codec, Element, kMostRanks>(call, tail);
  } else {
    one_shot_of_wires<Codec, Element>(call, codec, tail);
  }
}
template <class Codec, class Element, int kMostRanks = kMaxRanks>
ARLAB_DEVICE void one_shot_lamport(const Call& call, const Codec& codec) {
  one_shot_lamport<Codec, Element, kMostRanks>(call, codec, NoTail());
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// ring: reference/collectives/ring.cc on GPUs. Chunk c starts at rank c + 1 and ends, summed, at
// rank c; then it goes around again.
//
//   hops 0 .. N-2      encode the partial sum of chunk rank - 1 - hop, write the wire to the next
//                      rank; exchange; add the own value (exact, first) and what arrived
//   hop N-1            encode the sum of the own chunk, decode it into the output, write the wire
//                      to the next rank
//   hops N .. 2N-3     exchange; decode what arrived into the output, pass the bytes on unchanged
//
// The own value of a chunk is read before its output is written, so the two may be the same memory.
#pragma once

#include "kernels/collectives/call.h"
#include "kernels/transport/flags.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Element>
ARLAB_DEVICE void ring(const Call& call, const Codec& codec) {
  begin_codec(codec);
  pdl_wait();
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  FlagExchange exchange(call.team, failed[0]);
  const int ranks = call.team.layout.ranks;
  const int rank = call.team.rank;
  const int next = (rank + 1) % ranks;
  const int previous = (rank + ranks - 1) % ranks;

#pragma unroll 1
  for (int round = 0; round < call.rounds; ++round) {
    for_each_tile(call, call.chunk[previous], round, [&](const Tile& tile) {
      send(codec, call, tile, tile.load<Element>(call.input), exchange.outgoing(next));
    });
#pragma unroll 1
    for (int hop = 1; hop < ranks; ++hop) {
      if (!exchange.run()) return;
      const int chunk = (rank + 2 * ranks - 1 - hop) % ranks;
      for_each_tile(call, call.chunk[chunk], round, [&](const Tile& tile) {
        const auto own = tile.load<Element>(call.input);
        const auto sum = add<Element, Codec::kClampsFp16Sums>(
            own, receive<Element>(codec, tile, exchange.incoming(previous)));
        const auto encoded = encode(codec, call, static_cast<unsigned>(hop), tile, sum);
        codec.store(encoded, exchange.outgoing(next) + tile.slot_offset, tile.at());
        if (chunk == rank) tile.store(call.output, codec.decode(encoded, tile.at()));
      });
    }
#pragma unroll 1
    for (int hop = 1; hop < ranks; ++hop) {
      if (!exchange.run()) return;
      const int chunk = (rank + ranks - hop) % ranks;
      const bool passes_on = hop + 1 < ranks;
      for_each_tile(call, call.chunk[chunk], round, [&](const Tile& tile) {
        tile.store(call.output, receive<Element>(codec, tile, exchange.incoming(previous)));
        if (passes_on) {
          copy_wire(exchange.incoming(previous) + tile.slot_offset,
                    exchange.outgoing(next) + tile.slot_offset,
                    static_cast<unsigned>(codec.wire_bytes(tile.elements)));
        }
      });
    }
  }
  exchange.end();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

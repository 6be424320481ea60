// all_to_all: reference/collectives/all_to_all.cc on GPUs. Chunk i is the slot for rank i.
//
//   1   encode every slot, write the wire to its rank
//   -   exchange
//   2   decode what came from rank i into slot i of the output
#pragma once

#include "kernels/collectives/call.h"
#include "kernels/transport/flags.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Element>
ARLAB_DEVICE void all_to_all(const Call& call, const Codec& codec) {
  begin_codec(codec);
  pdl_wait();
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  FlagExchange exchange(call.team, failed[0]);
  const int ranks = call.team.layout.ranks;

#pragma unroll 1
  for (int round = 0; round < call.rounds; ++round) {
#pragma unroll 1
    for (int i = 0; i < ranks; ++i) {  // 1
      const int to = (call.team.rank + i) % ranks;
      for_each_tile(call, call.chunk[to], round, [&](const Tile& tile) {
        send(codec, call, tile, tile.load<Element>(call.input), exchange.outgoing(to));
      });
    }
    if (!exchange.run()) return;
#pragma unroll 1
    for (int from = 0; from < ranks; ++from) {  // 2
      for_each_tile(call, call.chunk[from], round, [&](const Tile& tile) {
        tile.store(call.output, receive<Element>(codec, tile, exchange.incoming(from)));
      });
    }
  }
  exchange.end();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

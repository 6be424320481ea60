// two_shot: reference/collectives/two_shot.cc on GPUs. Every rank owns a chunk.
//
//   1   encode this rank's part of every chunk, write the wire to the chunk's owner
//   -   exchange
//   2   own chunk: add all contributions in ascending rank order from +0, encode the sum once,
//   write
//       the wire to every rank (this one too)
//   -   exchange
//   3   decode every chunk into the output: all ranks decode the same bytes
#include "kernels/collectives/launch.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Number>
__global__ void __launch_bounds__(kThreads)
    two_shot_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  Exchange exchange(call.team, failed[0]);
  if (!exchange.begin()) return;
  const int ranks = call.team.layout.ranks;
  const int rank = call.team.rank;

#pragma unroll 1
  for (int round = 0; round < call.rounds; ++round) {
#pragma unroll 1
    for (int i = 0; i < ranks; ++i) {  // 1; ranks start at different owners, to spread the links
      const int owner = (rank + i) % ranks;
      for_each_tile(call, call.chunk[owner], round, [&](const Tile& tile) {
        send(codec, tile, tile.load<Number>(call.input), exchange.outgoing(owner));
      });
    }
    if (!exchange.run()) return;
    for_each_tile(call, call.chunk[rank], round, [&](const Tile& tile) {  // 2
      Eight<Number> sum;
#pragma unroll 1
      for (int from = 0; from < ranks; ++from) {
        sum = receive_add(codec, tile, exchange.incoming(from), sum);
      }
      const auto encoded = codec.encode(sum, tile.at);
#pragma unroll 1
      for (int to = 0; to < ranks; ++to) {
        codec.store(encoded, exchange.outgoing(to) + tile.slot_offset, tile.at);
      }
    });
    if (!exchange.run()) return;
#pragma unroll 1
    for (int owner = 0; owner < ranks; ++owner) {  // 3
      for_each_tile(call, call.chunk[owner], round, [&](const Tile& tile) {
        tile.store(call.output, receive<Number>(codec, tile, exchange.incoming(owner)));
      });
    }
  }
  exchange.end();
}

hipError_t launch_two_shot(const Call& call, const CodecChoice& codec, DType dtype,
                           hipStream_t stream) {
  return with_codec(codec, dtype,
                    [&]<class Codec, class Number>(const Codec& device_codec, Number) {
                      hipLaunchKernelGGL(HIP_KERNEL_NAME(two_shot_kernel<Codec, Number>),
                                         dim3(static_cast<unsigned>(call.blocks)), dim3(kThreads),
                                         0, stream, call, device_codec);
                    });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// one_shot: reference/collectives/one_shot.cc on GPUs.
//
//   1   encode this rank's tensor once, write the wire to every rank (this one too)
//   -   exchange
//   2   add all contributions in ascending rank order, from the first; write the output
#include "kernels/collectives/launch.h"
#include "kernels/collectives/outbox.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Number>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<Codec>)
    one_shot_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ARLAB_SHARED_ARRAY(OutboxMemory, memory, 1);
  Exchange exchange(call.team, failed[0]);
  Outbox<Codec> outbox(codec, call, memory[0]);
  const int ranks = call.team.layout.ranks;
  const ElementRange& tensor = call.chunk[0];

#pragma unroll 1
  for (int round = 0; round < call.rounds; ++round) {
    for_each_tile(call, tensor, round, [&](const Tile& tile) {  // 1
      const auto encoded = codec.encode(tile.load<Number>(call.input), tile.at());
      outbox.put(0, encoded, tile);
      outbox.fill();
#pragma unroll 1
      for (int i = 0; i < ranks; ++i) {
        const int distance = (static_cast<int>(blockIdx.x) + i) % ranks;
        outbox.send(0, encoded, tile, exchange.outgoing((call.team.rank + distance) % ranks));
      }
      outbox.next();
    });
    if (!exchange.run()) return;
    for_each_tile(call, tensor, round, [&](const Tile& tile) {  // 2
      Eight<Number> sum = receive<Number>(codec, tile, exchange.incoming(0));
#pragma unroll 3
      for (int from = 1; from < ranks; ++from) {
        sum = receive_add(codec, tile, exchange.incoming(from), sum);
      }
      tile.store(call.output, sum);
    });
  }
  exchange.end();
}

hipError_t launch_one_shot(const Call& call, const CodecChoice& codec, DType dtype,
                           hipStream_t stream) {
  return with_codec(codec, dtype,
                    [&]<class Codec, class Number>(const Codec& device_codec, Number) {
                      hipLaunchKernelGGL(HIP_KERNEL_NAME(one_shot_kernel<Codec, Number>),
                                         dim3(static_cast<unsigned>(call.blocks)), dim3(kThreads),
                                         0, stream, call, device_codec);
                    });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// two_shot: reference/collectives/two_shot.cc on GPUs. Every rank owns a chunk.
//
//   contribute   encode this rank's part of the other ranks' chunks, write the wire to the owners
//   -            exchange
//   reduce       own chunk: add all contributions in ascending rank order from +0, the own one
//                encoded and decoded like the others; encode the sum once, write the wire to the
//                other ranks, and what it decodes to to the output
//   -            exchange
//   gather       decode the other ranks' chunks into the output: all ranks decode the same bytes
//
// Rounds overlap: the contributions of the next one travel with the sums of this one, behind them
// in the slots, in one exchange. Blocks start with different peers, to keep all links busy.
#include "kernels/collectives/launch.h"
#include "kernels/collectives/outbox.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Goes through the tiles of a round in the chunks of the other ranks: rank by rank, tile by tile.
class OthersTiles {
 public:
  ARLAB_DEVICE OthersTiles(const Call& call, int round)
      : call_(call), round_(round), others_(call.team.layout.ranks - 1) {
    start_ = static_cast<int>(blockIdx.x) % others_;
  }

  ARLAB_DEVICE bool done() const { return k_ >= call_.tiles_per_slot; }

  /// The next tile and the rank whose chunk it is in; false where that chunk has ended.
  ARLAB_DEVICE bool next(Tile& tile, int& owner) {
    if (done()) return false;
    int distance = start_ + turn_;
    if (distance >= others_) distance -= others_;
    owner = call_.team.rank + 1 + distance;
    if (owner > others_) owner -= others_ + 1;
    const bool there = tile_at(call_, call_.chunk[owner], round_, k_, tile);
    if (++turn_ == others_) {
      turn_ = 0;
      ++k_;
    }
    return there;
  }

 private:
  const Call& call_;
  const int round_;
  const int others_;
  int start_;
  int turn_ = 0;
  int k_ = 0;
};

template <class Codec, class Number>
class TwoShot {
 public:
  ARLAB_DEVICE TwoShot(const Call& call, const Codec& codec, std::uint32_t& failed,
                       OutboxMemory& memory)
      : call_(call),
        codec_(codec),
        exchange_(call.team, failed),
        outbox_(codec, call, memory),
        sums_at_(static_cast<unsigned>(call.tiles_per_slot) * call.tile_bytes) {}

  ARLAB_DEVICE void run() {
    contribute(0);
    if (!exchange_.run()) return;
#pragma unroll 1
    for (int round = 0; round < call_.rounds; ++round) {
      reduce(round);
      if (round + 1 < call_.rounds) contribute(round + 1);
      if (!exchange_.run()) return;
      gather(round);
    }
    exchange_.end();
  }

 private:
  using Encoded = typename Codec::Encoded;

  ARLAB_DEVICE void contribute(int round) {
    const int capacity = outbox_.capacity();
    OthersTiles tiles(call_, round);
#pragma unroll 1
    while (!tiles.done()) {
      Tile tile[kBatch];
      int owner[kBatch];
      bool there[kBatch];
      Eight<Number> x[kBatch];
      Encoded encoded[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        there[i] = i < capacity && tiles.next(tile[i], owner[i]);
        if (there[i]) x[i] = tile[i].template load<Number>(call_.input);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (!there[i]) continue;
        encoded[i] = codec_.encode(x[i], tile[i].at());
        outbox_.put(i, encoded[i], tile[i]);
      }
      outbox_.fill();
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (there[i]) outbox_.send(i, encoded[i], tile[i], exchange_.outgoing(owner[i]));
      }
      outbox_.next();
    }
  }

  ARLAB_DEVICE void reduce(int round) {
    const int ranks = call_.team.layout.ranks;
    const int rank = call_.team.rank;
    const int capacity = outbox_.capacity();
#pragma unroll 1
    for (int k = 0; k < call_.tiles_per_slot; k += capacity) {
      Tile tile[kBatch];
      bool there[kBatch];
      Eight<Number> own[kBatch];
      Eight<Number> sum[kBatch];
      Encoded encoded[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        there[i] = i < capacity && k + i < call_.tiles_per_slot &&
                   tile_at(call_, call_.chunk[rank], round, k + i, tile[i]);
        if (there[i]) own[i] = tile[i].template load<Number>(call_.input);
      }
      if (!there[0]) return;
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (there[i]) own[i] = codec_.decode(codec_.encode(own[i], tile[i].at()), tile[i].at());
      }
#pragma unroll 1
      for (int from = 0; from < ranks; ++from) {
        if (from != rank) load_batch(encoded, tile, there, exchange_.incoming(from));
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (!there[i]) continue;
          const Eight<Number> x = from == rank ? own[i] : codec_.decode(encoded[i], tile[i].at());
          sum[i] = add<Number, Codec::kClampsFp16Sums>(sum[i], x);
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (!there[i]) continue;
        encoded[i] = codec_.encode(sum[i], tile[i].at());
        outbox_.put(i, encoded[i], tile[i]);
        tile[i].store(call_.output, codec_.decode(encoded[i], tile[i].at()));
      }
      outbox_.fill();
#pragma unroll 1
      for (int distance = 1; distance < ranks; ++distance) {
        const int to = rank + distance < ranks ? rank + distance : rank + distance - ranks;
        std::uint8_t* slot = exchange_.outgoing(to) + sums_at_;
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (there[i]) outbox_.send(i, encoded[i], tile[i], slot);
        }
      }
      outbox_.next();
    }
  }

  ARLAB_DEVICE void gather(int round) {
    OthersTiles tiles(call_, round);
#pragma unroll 1
    while (!tiles.done()) {
      Tile tile[kBatch];
      bool there[kBatch];
      Encoded encoded[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        int owner = 0;
        there[i] = tiles.next(tile[i], owner);
        if (there[i]) {
          encoded[i] = codec_.load(exchange_.incoming(owner) + sums_at_ + tile[i].slot_offset,
                                   tile[i].at());
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (there[i]) tile[i].store(call_.output, codec_.decode(encoded[i], tile[i].at()));
      }
    }
  }

  ARLAB_DEVICE void load_batch(Encoded (&encoded)[kBatch], const Tile (&tile)[kBatch],
                               const bool (&there)[kBatch], const std::uint8_t* slot) const {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (there[i]) encoded[i] = codec_.load(slot + tile[i].slot_offset, tile[i].at());
    }
  }

  const Call& call_;
  const Codec& codec_;
  Exchange exchange_;
  Outbox<Codec> outbox_;
  const unsigned sums_at_;  // in a slot
};

template <class Codec, class Number>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<Codec>)
    two_shot_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ARLAB_SHARED_ARRAY(OutboxMemory, memory, 1);
  TwoShot<Codec, Number>(call, codec, failed[0], memory[0]).run();
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

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
// Rounds overlap. The sums of one travel with the contributions of the next, behind them in the
// slots, in one exchange; and between a signal and the wait for it, the round after it contributes
// and the round before it gathers. Blocks start with different peers, to keep all links busy.
#include "kernels/collectives/launch.h"
#include "kernels/collectives/peers.h"
#include "kernels/collectives/staging_buffer.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Element>
class TwoShot {
 public:
  ARLAB_DEVICE TwoShot(const Call& call, const Codec& codec, std::uint32_t& failed,
                       StagingMemory& memory)
      : call_(call),
        codec_(codec),
        exchange_(call.team, failed),
        staging_(codec, call, memory),
        sums_at_(static_cast<unsigned>(call.tiles_per_slot) * call.tile_bytes) {}

  ARLAB_DEVICE void run() {
    const int rounds = call_.rounds;
    contribute(0);
    exchange_.signal();
#pragma unroll 1
    for (int round = 0; round <= rounds; ++round) {
      // While signals are under way: what does not depend on them. The thread that signals joins
      // late, so that what needs no barrier comes first.
      if (round >= 2) gather(round - 2);
      if (round + 1 < rounds) contribute(round + 1);
      if constexpr (kBatch > 1) {
        OwnTiles own;
        if (round < rounds) own = own_tiles(round);
        if (!exchange_.wait()) return;
        if (round == rounds) break;
        reduce(round, own);
      } else {  // tiles one by one, the own ones too
        if (!exchange_.wait()) return;
        if (round == rounds) break;
        reduce(round, OwnTiles());
      }
      exchange_.signal();
    }
    pdl_trigger();
    gather(rounds - 1);
    exchange_.end();
  }

 private:
  using Encoded = typename Codec::Encoded;
  static constexpr int kBatch = Codec::kTuning.batch;

  ARLAB_DEVICE void contribute(int round) {
    for_each_peer(call_.team, [&](int owner) ARLAB_INLINED_LAMBDA {
      std::uint8_t* slot = exchange_.outgoing(owner);
      for_each_batch<Codec>(
          call_, call_.chunk[owner], round,
          [&](const Batch& batch) ARLAB_INLINED_LAMBDA {
            Pack8<Element> x[kBatch];
            Encoded encoded[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
              if (i < batch.count) x[i] = batch.load<Element>(call_.input, i);
            }
            encode_batch(codec_, x, batch.count, encoded);
            staging_.put(encoded, batch.count);
            staging_.fill();
            staging_.send(encoded, batch, slot);
            staging_.next();
          },
          [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
            const Encoded encoded = codec_.encode(tile.load<Element>(call_.input), tile.at());
            staging_.put(0, encoded, tile.at());
            staging_.fill();
            staging_.send(encoded, tile, slot);
            staging_.next();
          });
    });
  }

  /// What the own contributions decode to, of the round's whole tiles.
  struct OwnTiles {
    Pack8<Element> x[kBatch];
  };
  ARLAB_DEVICE OwnTiles own_tiles(int round) const {
    OwnTiles own;
    for_each_batch<Codec>(
        call_, call_.chunk[call_.team.rank], round,
        [&](const Batch& batch) ARLAB_INLINED_LAMBDA {
          Encoded encoded[kBatch];
#pragma unroll
          for (int i = 0; i < kBatch; ++i) {
            if (i < batch.count) own.x[i] = batch.load<Element>(call_.input, i);
          }
          encode_batch(codec_, own.x, batch.count, encoded);
          decode_batch(codec_, encoded, batch.count, own.x);
        },
        [](const Tile&) {});
    return own;
  }

  ARLAB_DEVICE void reduce(int round, const OwnTiles& own_tiles) {
    const int ranks = call_.team.layout.ranks;
    const int rank = call_.team.rank;
    const Pack8<Element>(&own)[kBatch] = own_tiles.x;
    for_each_batch<Codec>(
        call_, call_.chunk[rank], round,
        [&](const Batch& batch) ARLAB_INLINED_LAMBDA {
          Pack8<Element> sum[kBatch];
          Encoded encoded[kBatch];
#pragma unroll 1
          for (int from = 0; from < ranks; ++from) {
            if (from == rank) {
#pragma unroll
              for (int i = 0; i < kBatch; ++i) {
                sum[i] = add_for_sum<Element, Codec>(sum[i], own[i]);
              }
            } else {
              load_batch(codec_, call_, exchange_.incoming(from), batch.count, encoded);
              add_batch(codec_, encoded, batch.count, sum);
            }
          }
          if (needs_checked_sum<Codec>(sum, batch.count)) {
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
              if (i < batch.count) {
                sum[i] = sum_of(own[i], Batch::at(), offset_of(i));
              }
            }
          }
          encode_batch(codec_, sum, batch.count, encoded);
          staging_.put(encoded, batch.count);
          decode_batch(codec_, encoded, batch.count, sum);
#pragma unroll
          for (int i = 0; i < kBatch; ++i) {
            if (i < batch.count) batch.store<Element>(call_.output, i, sum[i]);
          }
          staging_.fill();
          for_each_peer(call_.team, [&](int to) ARLAB_INLINED_LAMBDA {
            staging_.send(encoded, batch, exchange_.outgoing(to) + sums_at_);
          });
          staging_.next();
        },
        [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
          const Pack8<Element> own =
              codec_.decode(codec_.encode(tile.load<Element>(call_.input), tile.at()), tile.at());
          const Encoded encoded =
              codec_.encode(sum_of(own, tile.at(), tile.slot_offset), tile.at());
          tile.store(call_.output, codec_.decode(encoded, tile.at()));
          staging_.put(0, encoded, tile.at());
          staging_.fill();
          for_each_peer(call_.team, [&](int to) ARLAB_INLINED_LAMBDA {
            staging_.send(encoded, tile, exchange_.outgoing(to) + sums_at_);
          });
          staging_.next();
        });
  }

  ARLAB_DEVICE void gather(int round) {
    for_each_peer(call_.team, [&](int owner) ARLAB_INLINED_LAMBDA {
      const std::uint8_t* slot = exchange_.incoming(owner) + sums_at_;
      for_each_batch<Codec>(
          call_, call_.chunk[owner], round,
          [&](const Batch& batch) ARLAB_INLINED_LAMBDA {
            Encoded encoded[kBatch];
            Pack8<Element> x[kBatch];
            load_batch(codec_, call_, slot, batch.count, encoded);
            decode_batch(codec_, encoded, batch.count, x);
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
              if (i < batch.count) batch.store<Element>(call_.output, i, x[i]);
            }
          },
          [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
            tile.store(call_.output, receive<Element>(codec_, tile, slot));
          });
    });
  }

  /// The contributions to a tile of the own chunk, whose wires are at `offset` in the slots.
  ARLAB_DEVICE Pack8<Element> sum_of(const Pack8<Element>& own, Position at,
                                     unsigned offset) const {
    Pack8<Element> sum;
#pragma unroll 1
    for (int from = 0; from < call_.team.layout.ranks; ++from) {
      const Pack8<Element> x =
          from == call_.team.rank
              ? own
              : codec_.decode(codec_.load(exchange_.incoming(from) + offset, at), at);
      sum = add<Element, Codec::kClampsFp16Sums>(sum, x);
    }
    return sum;
  }

  ARLAB_DEVICE unsigned offset_of(int tile) const {
    return static_cast<unsigned>(tile) * tile_bytes_of<Codec>(call_);
  }

  const Call& call_;
  const Codec& codec_;
  Exchange exchange_;
  StagingBuffer<Codec> staging_;
  const unsigned sums_at_;  // in a slot
};

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads, Codec::kTuning.resident_blocks)
    two_shot_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  pdl_wait();
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ARLAB_SHARED_ARRAY(StagingMemory, memory, 1);
  TwoShot<Codec, Element>(call, codec, failed[0], memory[0]).run();
}

hipError_t launch_two_shot(const Call& call, const CodecChoice& codec, DType dtype,
                           hipStream_t stream) {
  return with_codec(codec, dtype,
                    [&]<class Codec, class Element>(const Codec& device_codec, Element) {
                      launch_pdl(two_shot_kernel<Codec, Element>,
                                 static_cast<unsigned>(call.blocks), stream, call, device_codec);
                    });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

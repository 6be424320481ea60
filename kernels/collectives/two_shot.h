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
#pragma once

#include "kernels/collectives/staging_buffer.h"
#include "kernels/transport/flags.h"
#include "kernels/transport/peers.h"

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
        Own own{call_.team.rank, {}};
        if (round < rounds && !call_.fp32_sums) decode_own_tiles(round, own.x);
        if (!exchange_.wait()) return;
        if (round == rounds) break;
        reduce(round, own);
      } else {  // tiles one by one, the own ones too
        if (!exchange_.wait()) return;
        if (round == rounds) break;
        reduce(round, Own());
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
            encode_batch(codec_, call_, 0, batch, x, encoded);
            staging_.put(encoded, batch.count);
            staging_.fill();
            staging_.send(encoded, batch, slot);
            staging_.next();
          },
          [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
            const Encoded encoded = encode(codec_, call_, 0, tile, tile.load<Element>(call_.input));
            staging_.put(0, encoded, tile.at());
            staging_.fill();
            staging_.send(encoded, tile, slot);
            staging_.next();
          });
    });
  }

  /// Decoded contributions of the rank's own, of the round's whole tiles.
  using Own = OwnTiles<Element, kBatch>;
  ARLAB_DEVICE void decode_own_tiles(int round, Pack8<Element> (&own)[kBatch]) const {
    for_each_batch<Codec>(
        call_, call_.chunk[call_.team.rank], round,
        [&](const Batch& batch) ARLAB_INLINED_LAMBDA {
          Encoded encoded[kBatch];
#pragma unroll
          for (int i = 0; i < kBatch; ++i) {
            if (i < batch.count) own[i] = batch.load<Element>(call_.input, i);
          }
          encode_batch(codec_, call_, 0, batch, own, encoded);
          decode_batch(codec_, encoded, batch.count, own);
        },
        [](const Tile&) {});
  }

  /// The same, where there are no registers for all of them until they are added.
  struct OwnInput {
    const TwoShot& of;
    const Batch& batch;

    ARLAB_DEVICE bool is_of(int from) const { return from == of.call_.team.rank; }
    ARLAB_DEVICE OwnTiles<Element, 1> tile(int i) const {
      const Encoded encoded = encode_tile(of.codec_, of.call_, 0, batch.begin_of(i),
                                          batch.load<Element>(of.call_.input, i), Batch::at());
      return {of.call_.team.rank, {of.codec_.decode(encoded, Batch::at())}};
    }
  };

  ARLAB_DEVICE void reduce(int round, const Own& own) {
    const auto wires = [&](int from) ARLAB_INLINED_LAMBDA { return exchange_.incoming(from); };
    for_each_batch<Codec>(
        call_, call_.chunk[call_.team.rank], round,
        [&](const Batch& batch) ARLAB_INLINED_LAMBDA {
          Pack8<Element> sum[kBatch];
          Encoded encoded[kBatch];
          const auto keep = [&](int tile, const Pack8<Element>& of_tile)
                                ARLAB_INLINED_LAMBDA { put_tile(sum, tile, of_tile); };
          for_each_sum<SumFrom::zero, Element, kBatch, kMaxRanks, kBatch>(
              codec_, call_, wires, batch.count, keep, own, OwnInput{*this, batch});
          encode_batch(codec_, call_, 1, batch, sum, encoded);
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
          const OwnTiles<Element, 1> decoded = {
              call_.team.rank,
              {codec_.decode(encode(codec_, call_, 0, tile, tile.load<Element>(call_.input)),
                             tile.at())}};
          const Encoded encoded =
              encode(codec_, call_, 1, tile,
                     sum_tile<SumFrom::zero, Element>(codec_, call_, wires, tile.slot_offset,
                                                      tile.at(), decoded));
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

  const Call& call_;
  const Codec& codec_;
  FlagExchange exchange_;
  StagingBuffer<Codec> staging_;
  const unsigned sums_at_;  // in a slot
};

template <class Codec, class Element>
ARLAB_DEVICE void two_shot(const Call& call, const Codec& codec) {
  begin_codec(codec);
  pdl_wait();
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ARLAB_SHARED_ARRAY(StagingMemory, memory, 1);
  TwoShot<Codec, Element>(call, codec, failed[0], memory[0]).run();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// one_shot: reference/collectives/one_shot.cc on GPUs.
//
//   1   encode this rank's tensor once, write the wire to every rank (this one too)
//   -   exchange
//   2   add all contributions in ascending rank order, from the first; write the output
#pragma once

#include "kernels/collectives/staging_buffer.h"
#include "kernels/transport/flags.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Element>
class OneShot {
 public:
  ARLAB_DEVICE OneShot(const Call& call, const Codec& codec, std::uint32_t& failed,
                       StagingMemory& memory)
      : call_(call), codec_(codec), exchange_(call.team, failed), staging_(codec, call, memory) {}

  ARLAB_DEVICE void run() {
    const int rounds = call_.rounds;
    contribute(0);
    exchange_.signal();
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
      if (round + 1 < rounds) contribute(round + 1);  // while the signal is under way
      if (!exchange_.wait()) return;
      if (round + 1 < rounds) {
        exchange_.signal();
      } else {
        pdl_trigger();
      }
      reduce(round);
    }
    exchange_.end();
  }

 private:
  using Encoded = typename Codec::Encoded;
  static constexpr int kBatch = Codec::kTuning.batch;

  ARLAB_DEVICE void contribute(int round) {
    for_each_batch<Codec>(
        call_, call_.chunk[0], round,
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
          for_each_rank([&](int to) ARLAB_INLINED_LAMBDA {
            staging_.send(encoded, batch, exchange_.outgoing(to));
          });
          staging_.next();
        },
        [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
          const Encoded encoded = encode(codec_, call_, 0, tile, tile.load<Element>(call_.input));
          staging_.put(0, encoded, tile.at());
          staging_.fill();
          for_each_rank([&](int to) ARLAB_INLINED_LAMBDA {
            staging_.send(encoded, tile, exchange_.outgoing(to));
          });
          staging_.next();
        });
  }

  ARLAB_DEVICE void reduce(int round) {
    const auto wires = [&](int from) ARLAB_INLINED_LAMBDA { return exchange_.incoming(from); };
    for_each_batch<Codec>(
        call_, call_.chunk[0], round,
        [&](const Batch& batch) ARLAB_INLINED_LAMBDA {
          for_each_sum<SumFrom::first, Element, kBatch, kMaxRanks, kBatch>(
              codec_, call_, wires, batch.count,
              [&](int i, const Pack8<Element>& sum)
                  ARLAB_INLINED_LAMBDA { batch.store<Element>(call_.output, i, sum); });
        },
        [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
          tile.store(call_.output, sum_tile<SumFrom::first, Element>(codec_, call_, wires,
                                                                     tile.slot_offset, tile.at()));
        });
  }

  /// f of every rank; blocks begin with different ones.
  template <class F>
  ARLAB_DEVICE void for_each_rank(F f) const {
    const int ranks = call_.team.layout.ranks;
    int rank = static_cast<int>((blockIdx.x + static_cast<unsigned>(call_.team.rank)) %
                                static_cast<unsigned>(ranks));
#pragma unroll 1
    for (int i = 0; i < ranks; ++i) {
      f(rank);
      if (++rank == ranks) rank = 0;
    }
  }

  const Call& call_;
  const Codec& codec_;
  FlagExchange exchange_;
  StagingBuffer<Codec> staging_;
};

template <class Codec, class Element>
ARLAB_DEVICE void one_shot(const Call& call, const Codec& codec) {
  begin_codec(codec);
  pdl_wait();
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ARLAB_SHARED_ARRAY(StagingMemory, memory, 1);
  OneShot<Codec, Element>(call, codec, failed[0], memory[0]).run();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

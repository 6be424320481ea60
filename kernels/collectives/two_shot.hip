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
#include "kernels/collectives/outbox.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

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
    if constexpr (kPlaces > 1) {
      if (has_single_tiles(call_)) return run_single_tiles();
    }
    const int rounds = call_.rounds;
    contribute(0);
    exchange_.signal();
#pragma unroll 1
    for (int round = 0; round <= rounds; ++round) {
      // While signals are under way: what does not depend on them.
      if (round + 1 < rounds) contribute(round + 1);
      if (round >= 2) gather(round - 2);
      if (!exchange_.wait()) return;
      if (round == rounds) break;
      reduce(round);
      exchange_.signal();
    }
    gather(rounds - 1);
    exchange_.end();
  }

 private:
  using Encoded = typename Codec::Encoded;
  static constexpr int kPlaces = kBatch<Codec>;

  ARLAB_DEVICE void contribute(int round) {
    for_each_peer([&](int owner) ARLAB_INLINED_LAMBDA {
      std::uint8_t* slot = exchange_.outgoing(owner);
      for_each_batch<Codec>(
          call_, call_.chunk[owner], round, outbox_.capacity(),
          [&](const Batch& batch) ARLAB_INLINED_LAMBDA {
            Eight<Number> x[kPlaces];
            Encoded encoded[kPlaces];
#pragma unroll
            for (int i = 0; i < kPlaces; ++i) {
              if (i < batch.count) x[i] = batch.load<Number>(call_.input, i);
            }
            encode_batch(codec_, x, batch.count, encoded);
            outbox_.put(encoded, batch.count);
            outbox_.fill();
            outbox_.send(encoded, batch, slot);
            outbox_.next();
          },
          [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
            const Encoded encoded = codec_.encode(tile.load<Number>(call_.input), tile.at());
            outbox_.put(0, encoded, tile.at());
            outbox_.fill();
            outbox_.send(encoded, tile, slot);
            outbox_.next();
          });
    });
  }

  ARLAB_DEVICE void reduce(int round) {
    const int ranks = call_.team.layout.ranks;
    const int rank = call_.team.rank;
    for_each_batch<Codec>(
        call_, call_.chunk[rank], round, outbox_.capacity(),
        [&](const Batch& batch) ARLAB_INLINED_LAMBDA {
          Eight<Number> own[kPlaces];
          Eight<Number> sum[kPlaces];
          Encoded encoded[kPlaces];
#pragma unroll
          for (int i = 0; i < kPlaces; ++i) {
            if (i < batch.count) own[i] = batch.load<Number>(call_.input, i);
          }
          encode_batch(codec_, own, batch.count, encoded);
          decode_batch(codec_, encoded, batch.count, own);
#pragma unroll 1
          for (int from = 0; from < ranks; ++from) {
            if (from == rank) {
#pragma unroll
              for (int i = 0; i < kPlaces; ++i) {
                sum[i] = add_for_sum<Number, Codec>(sum[i], own[i]);
              }
            } else {
              load_batch(codec_, call_, exchange_.incoming(from) + batch.slot_offset, batch.count,
                         encoded);
              add_batch(codec_, encoded, batch.count, sum);
            }
          }
          if (is_to_be_made_again<Codec>(sum, batch.count)) {
#pragma unroll
            for (int i = 0; i < kPlaces; ++i) {
              if (i < batch.count) {
                sum[i] = sum_of(own[i], Batch::at(), batch.slot_offset + offset_of(i));
              }
            }
          }
          encode_batch(codec_, sum, batch.count, encoded);
          outbox_.put(encoded, batch.count);
          decode_batch(codec_, encoded, batch.count, sum);
#pragma unroll
          for (int i = 0; i < kPlaces; ++i) {
            if (i < batch.count) batch.store<Number>(call_.output, i, sum[i]);
          }
          outbox_.fill();
          for_each_peer([&](int to) ARLAB_INLINED_LAMBDA {
            outbox_.send(encoded, batch, exchange_.outgoing(to) + sums_at_);
          });
          outbox_.next();
        },
        [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
          const Eight<Number> own =
              codec_.decode(codec_.encode(tile.load<Number>(call_.input), tile.at()), tile.at());
          const Encoded encoded =
              codec_.encode(sum_of(own, tile.at(), tile.slot_offset), tile.at());
          tile.store(call_.output, codec_.decode(encoded, tile.at()));
          outbox_.put(0, encoded, tile.at());
          outbox_.fill();
          for_each_peer([&](int to) ARLAB_INLINED_LAMBDA {
            outbox_.send(encoded, tile, exchange_.outgoing(to) + sums_at_);
          });
          outbox_.next();
        });
  }

  ARLAB_DEVICE void gather(int round) {
    for_each_peer([&](int owner) ARLAB_INLINED_LAMBDA {
      const std::uint8_t* slot = exchange_.incoming(owner) + sums_at_;
      for_each_batch<Codec>(
          call_, call_.chunk[owner], round, kPlaces,
          [&](const Batch& batch) ARLAB_INLINED_LAMBDA {
            Encoded encoded[kPlaces];
            Eight<Number> x[kPlaces];
            load_batch(codec_, call_, slot + batch.slot_offset, batch.count, encoded);
            decode_batch(codec_, encoded, batch.count, x);
#pragma unroll
            for (int i = 0; i < kPlaces; ++i) {
              if (i < batch.count) batch.store<Number>(call_.output, i, x[i]);
            }
          },
          [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
            tile.store(call_.output, receive<Number>(codec_, tile, slot));
          });
    });
  }

  // ------------------------------------------------------------ one tile of every chunk
  // Small tensors: what counts is how often the block waits for memory. Batches are of several
  // ranks' tiles, whose loads are under way together.

  ARLAB_DEVICE void run_single_tiles() {
    contribute_single_tiles();
    exchange_.signal();
    const Eight<Number> own = own_of_single_tile();  // while the signal is under way
    if (!exchange_.wait()) return;
    reduce_single_tile(own);
    exchange_.signal();
    if (!exchange_.wait()) return;
    gather_single_tiles();
    exchange_.end();
  }

  ARLAB_DEVICE void contribute_single_tiles() {
    for_each_peers(outbox_.capacity(), [&](const Peers& owners) ARLAB_INLINED_LAMBDA {
      Eight<Number> x[kPlaces];
      Encoded encoded[kPlaces];
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        if (i < owners.count) x[i] = load_single(owners.rank[i]);
      }
      encode_batch(codec_, x, owners.count, encoded);
      outbox_.put(encoded, owners.count);
      outbox_.fill();
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        if (i < owners.count) {
          outbox_.send_place(i, encoded[i], exchange_.outgoing(owners.rank[i]));
        }
      }
      outbox_.next();
    });
  }

  ARLAB_DEVICE Eight<Number> own_of_single_tile() const {
    return codec_.decode(codec_.encode(load_single(call_.team.rank), Batch::at()), Batch::at());
  }

  ARLAB_DEVICE void reduce_single_tile(const Eight<Number>& own) {
    const int ranks = call_.team.layout.ranks;
    const int rank = call_.team.rank;
    Eight<Number> sum[1];
#pragma unroll 1
    for (int first = 0; first < ranks; first += kPlaces) {
      Encoded encoded[kPlaces];
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        if (first + i < ranks && first + i != rank) {
          encoded[i] = codec_.load(exchange_.incoming(first + i), Batch::at());
        }
      }
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        if (first + i >= ranks) continue;
        sum[0] = add_for_sum<Number, Codec>(
            sum[0], first + i == rank ? own : decode_for_sum<Number>(codec_, encoded[i]));
      }
    }
    if (is_to_be_made_again<Codec>(sum, 1)) sum[0] = sum_of(own, Batch::at(), 0);
    const Encoded encoded = codec_.encode(sum[0], Batch::at());
    outbox_.put(0, encoded, Batch::at());
    outbox_.fill();
    for_each_peer([&](int to) ARLAB_INLINED_LAMBDA {
      outbox_.send_place(0, encoded, exchange_.outgoing(to) + sums_at_);
    });
    outbox_.next();
    store_single(rank, codec_.decode(encoded, Batch::at()));
  }

  ARLAB_DEVICE void gather_single_tiles() {
    for_each_peers(kPlaces, [&](const Peers& owners) ARLAB_INLINED_LAMBDA {
      Encoded encoded[kPlaces];
      Eight<Number> x[kPlaces];
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        if (i < owners.count) {
          encoded[i] = codec_.load(exchange_.incoming(owners.rank[i]) + sums_at_, Batch::at());
        }
      }
      decode_batch(codec_, encoded, owners.count, x);
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        if (i < owners.count) store_single(owners.rank[i], x[i]);
      }
    });
  }

  ARLAB_DEVICE Eight<Number> load_single(int owner) const {
    return single_tile(owner).template load<Number>(call_.input, 0);
  }
  ARLAB_DEVICE void store_single(int owner, const Eight<Number>& x) const {
    single_tile(owner).template store<Number>(call_.output, 0, x);
  }
  ARLAB_DEVICE Batch single_tile(int owner) const {
    return {1, call_.chunk[owner].begin + static_cast<std::size_t>(blockIdx.x) * kTile, 0, 0};
  }

  /// The contributions to a tile of the own chunk, whose wires are at `offset` in the slots.
  ARLAB_DEVICE Eight<Number> sum_of(const Eight<Number>& own, Position at, unsigned offset) const {
    Eight<Number> sum;
#pragma unroll 1
    for (int from = 0; from < call_.team.layout.ranks; ++from) {
      const Eight<Number> x =
          from == call_.team.rank
              ? own
              : codec_.decode(codec_.load(exchange_.incoming(from) + offset, at), at);
      sum = add<Number, Codec::kClampsFp16Sums>(sum, x);
    }
    return sum;
  }

  ARLAB_DEVICE unsigned offset_of(int tile) const {
    return static_cast<unsigned>(tile) * tile_bytes_of<Codec>(call_);
  }

  /// f of every other rank; blocks begin with different ones.
  template <class F>
  ARLAB_DEVICE void for_each_peer(F f) const {
    const int peers = call_.team.layout.ranks - 1;
    int distance = static_cast<int>(blockIdx.x) % peers;
#pragma unroll 1
    for (int i = 0; i < peers; ++i) f(peer_at(distance));
  }
  struct Peers {
    int count;
    int rank[kPlaces];
  };
  /// f of up to `most` of them at once.
  template <class F>
  ARLAB_DEVICE void for_each_peers(int most, F f) const {
    const int all = call_.team.layout.ranks - 1;
    int distance = static_cast<int>(blockIdx.x) % all;
#pragma unroll 1
    for (int first = 0; first < all; first += most) {
      Peers peers;
      peers.count = all - first < most ? all - first : most;
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        if (i < peers.count) peers.rank[i] = peer_at(distance);
      }
      f(peers);
    }
  }
  /// The rank behind this one by 1 + distance, which becomes that of the next.
  ARLAB_DEVICE int peer_at(int& distance) const {
    const int peers = call_.team.layout.ranks - 1;
    const int peer = call_.team.rank + 1 + distance;
    if (++distance == peers) distance = 0;
    return peer > peers ? peer - peers - 1 : peer;
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

// two_shot where no block has more than one tile of a chunk: what counts is how often a block waits
// for memory. The work is that of two_shot.hip, in one round; but loads of several ranks' tiles are
// under way together.
#include "kernels/collectives/launch.h"
#include "kernels/collectives/peers.h"
#include "kernels/collectives/small.h"
#include "kernels/collectives/staging_buffer.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

template <class Codec, class Element>
class TwoShotSmall {
 public:
  ARLAB_DEVICE TwoShotSmall(const Call& call, const Codec& codec, std::uint32_t& failed,
                            StagingMemory& memory)
      : call_(call),
        codec_(codec),
        exchange_(call.team, failed),
        staging_(codec, call, memory),
        sums_at_(call.tile_bytes) {}

  ARLAB_DEVICE void run() {
    contribute();
    exchange_.signal();
    Tile tile{};
    Pack8<Element> own;
    const bool has_own = tile_at(call_, call_.chunk[call_.team.rank], 0, 0, tile);
    if (has_own) {  // while the signal is under way
      const Encoded encoded = codec_.encode(tile.load<Element>(call_.input), Batch::at());
      own = codec_.decode(encoded, Batch::at());
    }
    if (!exchange_.wait()) return;
    if (has_own) reduce(tile, own);
    if (!exchange_.run()) return;
    pdl_trigger();
    gather();
    exchange_.end();
  }

 private:
  using Encoded = typename Codec::Encoded;
  static constexpr int kBatch = Codec::kTuning.batch;

  /// One tile of each owner, where it has one.
  struct OwnersTiles {
    Tile tile[kBatch] = {};
    bool used[kBatch];
  };
  ARLAB_DEVICE OwnersTiles tiles_of(const Peers<kBatch>& owners) const {
    OwnersTiles tiles;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      tiles.used[i] =
          i < owners.count && tile_at(call_, call_.chunk[owners.rank[i]], 0, 0, tiles.tile[i]);
    }
    return tiles;
  }

  ARLAB_DEVICE void contribute() {
    const auto of_owners = [&](const Peers<kBatch>& owners) ARLAB_INLINED_LAMBDA {
      const OwnersTiles tiles = tiles_of(owners);
      Pack8<Element> x[kBatch];
      Encoded encoded[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (tiles.used[i]) x[i] = tiles.tile[i].template load<Element>(call_.input);
      }
      encode_batch(codec_, x, owners.count, encoded);
      staging_.put(encoded, owners.count);
      staging_.fill();
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (tiles.used[i]) {
          staging_.send_tile(i, encoded[i], exchange_.outgoing(owners.rank[i]));
        }
      }
      staging_.next();
    };
    for_each_peers<kBatch>(call_.team, kBatch, of_owners);
  }

  ARLAB_DEVICE void reduce(const Tile& tile, const Pack8<Element>& own) {
    const Pack8<Element> sum =
        small_sum<SumFrom::zero>(codec_, exchange_, call_.team.layout.ranks, call_.team.rank, own);
    const Encoded encoded = codec_.encode(sum, Batch::at());
    staging_.put(0, encoded, Batch::at());
    staging_.fill();
    for_each_peer(call_.team, [&](int to) ARLAB_INLINED_LAMBDA {
      staging_.send_tile(0, encoded, exchange_.outgoing(to) + sums_at_);
    });
    staging_.next();
    tile.store(call_.output, codec_.decode(encoded, Batch::at()));
  }

  ARLAB_DEVICE void gather() {
    const auto of_owners = [&](const Peers<kBatch>& owners) ARLAB_INLINED_LAMBDA {
      const OwnersTiles tiles = tiles_of(owners);
      Encoded encoded[kBatch];
      Pack8<Element> x[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (i < owners.count) {
          encoded[i] = codec_.load(exchange_.incoming(owners.rank[i]) + sums_at_, Batch::at());
        }
      }
      decode_batch(codec_, encoded, owners.count, x);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (tiles.used[i]) tiles.tile[i].store(call_.output, x[i]);
      }
    };
    for_each_peers<kBatch>(call_.team, kBatch, of_owners);
  }

  const Call& call_;
  const Codec& codec_;
  Exchange exchange_;
  StagingBuffer<Codec> staging_;
  const unsigned sums_at_;  // in a slot
};

template <class Codec, class Element>
__global__ void __launch_bounds__(kThreads, Codec::kTuning.resident_blocks)
    two_shot_small_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  pdl_wait();
  ARLAB_SHARED_ARRAY(std::uint32_t, failed, 1);
  ARLAB_SHARED_ARRAY(StagingMemory, memory, 1);
  TwoShotSmall<Codec, Element>(call, codec, failed[0], memory[0]).run();
}

hipError_t launch_two_shot_small(const Call& call, const CodecChoice& codec, DType dtype,
                                 hipStream_t stream) {
  return with_small_codec(
      codec, dtype, [&]<class Codec, class Element>(const Codec& device_codec, Element) {
        launch_pdl(two_shot_small_kernel<Codec, Element>, static_cast<unsigned>(call.blocks),
                   stream, call, device_codec);
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// one_shot of two ranks, which send as much in it as in two_shot: the same as one_shot.h, with
// sentinel slots.
//
// In each turn, a block encodes an item and sends it, and reads what the other rank has sent for
// the item before, adds, and writes the output. It waits twice for all its threads, and for the
// other rank where that is late, but never for what it has sent.
#pragma once

#include "kernels/collectives/slots_of_codec.h"
#include "kernels/transport/sentinels.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// An item has as many tiles as its slot holds, two at most: more take registers.
template <class Codec>
inline constexpr std::size_t kItemTiles =
    2 * kSentinelTileBytes<Codec> <= kOneShotWireBytes ? 2 : 1;

template <class Codec>
struct OneShotMemory : SentinelMemory {
  /// Wires: one to send, one to add, and one that slow threads may read.
  static constexpr unsigned kSent = 3;
  static constexpr std::size_t kWords = kItemTiles<Codec> * kSentinelTileBytes<Codec> / 16;
  static_assert(kWords * 16 <= kOneShotWireBytes);

  Uint4 input[kItemTiles<Codec>][kThreads];
  Uint4 sent[kSent][kWords];
  Uint4 received[kWords];
};

template <class Codec, class Element>
class OneShotSentinel {
 public:
  ARLAB_DEVICE OneShotSentinel(const Call& call, const Codec& codec, OneShotMemory<Codec>& memory)
      : call_(call),
        codec_(codec),
        memory_(memory),
        exchange_(call.team, call.team.one_shot_sentinel, call.team.one_shot_words, items(),
                  memory) {}

  ARLAB_DEVICE void run() {
    fetch(exchange_.item_at_start(0));
    exchange_.begin();
    __syncthreads();
    if (memory_.failed != 0) return;
    std::uint32_t before = kNoItem;
#pragma unroll 1
    for (unsigned turn = 0;; ++turn) {
      const std::uint32_t now = memory_.item[turn % memory_.kTurns];
      if (now == kNoItem && before == kNoItem) break;
      std::uint32_t after_next = 0;
      if (threadIdx.x == 0) after_next = exchange_.take_item();
      if (now != kNoItem) {
        contribute(now, turn);
        fetch(memory_.item[(turn + 1) % memory_.kTurns]);
      }
      const bool is_free = now != kNoItem && exchange_.may_send(now);
      if (threadIdx.x == 0) {
        memory_.item[(turn + 2) % memory_.kTurns] = after_next;
        memory_.slot_is_free = is_free ? 1 : 0;
      }
      __syncthreads();
      const bool sends = memory_.slot_is_free != 0;
      if (sends) send(now, turn);
      if (turn == 0) exchange_.signal(thread_index() - kIdle);
      if (turn == 1) exchange_.meet(thread_index() - kIdle, memory_.failed);
      if (before != kNoItem) receive(before);
      __syncthreads();
      if (memory_.failed != 0) return;
      if (before != kNoItem && threadIdx.x == 0) exchange_.return_credit(before, now);
      if (now == kNoItem) pdl_trigger();
      if (before != kNoItem) reduce(before, turn - 1);
      if (now != kNoItem && !sends) {
        exchange_.wait_for_slot(now);
        __syncthreads();
        if (memory_.slot_failed != 0) return;
        send(now, turn);
      }
      before = now;
    }
    if (threadIdx.x == 0) exchange_.leave();
  }

 private:
  using Encoded = typename Codec::Encoded;
  using Bits = typename Element::Bits;
  static constexpr unsigned kRanks = 2;
  static constexpr unsigned kSent = OneShotMemory<Codec>::kSent;
  static constexpr int kTiles = static_cast<int>(kItemTiles<Codec>);
  static constexpr std::size_t kItemElements = kItemTiles<Codec> * kTile;

  ARLAB_DEVICE int rank() const { return call_.team.rank; }
  ARLAB_DEVICE int peer() const { return 1 - call_.team.rank; }
  ARLAB_DEVICE std::uint32_t items() const {
    return static_cast<std::uint32_t>((call_.chunk[0].end + kItemElements - 1) / kItemElements);
  }

  // ---- tiles of an item

  ARLAB_DEVICE bool is_whole(std::uint32_t number) const {
    return call_.aligned && (number + std::size_t{1}) * kItemElements <= call_.chunk[0].end;
  }
  ARLAB_DEVICE Batch batch_of(std::uint32_t number) const {
    return {kTiles, number * kItemElements, kTile};
  }
  /// Calls f for each tile, with its number in the item: of items that are not whole.
  template <class F>
  ARLAB_DEVICE void for_each_tile_of(std::uint32_t number, F f) const {
#pragma unroll 1
    for (unsigned i = 0; i < kItemTiles<Codec>; ++i) {
      Tile tile;
      tile.begin = number * kItemElements + i * kTile;
      if (tile.begin >= call_.chunk[0].end) return;
      const std::size_t rest = call_.chunk[0].end - tile.begin;
      tile.elements = static_cast<unsigned>(rest < kTile ? rest : kTile);
      tile.slot_offset = i * tile_bytes_of<Codec>(call_);
      tile.whole = call_.aligned && tile.elements == kTile;
      f(tile);
    }
  }
  /// Words of 16 bytes of its wires.
  ARLAB_DEVICE unsigned wire_words(std::uint32_t number) const {
    const std::size_t rest = call_.chunk[0].end - number * kItemElements;
    const unsigned of_tile = tile_bytes_of<Codec>(call_) / 16;
    return rest > kItemElements - kTile ? static_cast<unsigned>(kItemTiles<Codec>) * of_tile
                                        : of_tile;
  }
  ARLAB_DEVICE std::uint8_t* sent(unsigned turn) const {
    return reinterpret_cast<std::uint8_t*>(memory_.sent[turn % kSent]);
  }

  // ---- what a turn does

  ARLAB_DEVICE void fetch(std::uint32_t number) const {
    if (number == kNoItem || !is_whole(number)) return;
    const Batch batch = batch_of(number);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      cp_async_128(&memory_.input[i][thread_index()], batch.address<Element>(call_.input, i));
    }
    cp_async_commit();
  }

  ARLAB_DEVICE void contribute(std::uint32_t number, unsigned turn) const {
    std::uint8_t* wire = sent(turn);
    if (is_whole(number)) {
      cp_async_wait<0>();
      Pack8<Element> x[kTiles];
      Encoded encoded[kTiles];
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const Uint4 words = load_128(&memory_.input[i][thread_index()]);
#pragma unroll
        for (int j = 0; j < 4; ++j) x[i].word[j] = words.word[j];
      }
      encode_batch(codec_, call_, 0, batch_of(number), x, encoded);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        codec_.store(encoded[i], wire + static_cast<unsigned>(i) * tile_bytes_of<Codec>(call_),
                     Batch::at());
      }
    } else {
      for_each_tile_of(number, [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
        arlab::kernels::send(codec_, call_, tile, tile.load<Element>(call_.input), wire);
      });
    }
  }

  ARLAB_DEVICE void send(std::uint32_t number, unsigned turn) const {
    const unsigned words = wire_words(number);
    std::uint8_t* slot = exchange_.wire(peer(), 0) + exchange_.slot_of(number);
#pragma unroll
    for (unsigned at = thread_index(); at < OneShotMemory<Codec>::kWords; at += kThreads) {
      if (at >= words) continue;
      exchange_.send_words(slot + at * 16, load_128(&memory_.sent[turn % kSent][at]), peer(),
                           {number, 0, at});
    }
  }

  ARLAB_DEVICE void receive(std::uint32_t number) const {
    constexpr unsigned kAtOnce = (OneShotMemory<Codec>::kWords + kThreads - 1) / kThreads;
    const unsigned words = wire_words(number);
    std::uint8_t* slot = exchange_.wire(rank(), 0) + exchange_.slot_of(number);
    Uint4 wire[kAtOnce];
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned at = thread_index() + i * kThreads;
      if (at < words) wire[i] = load_relaxed_v4(slot + at * 16);
    }
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned at = thread_index() + i * kThreads;
      if (at >= words) continue;
      exchange_.take_words(slot + at * 16, wire[i], peer(), {number, 0, at}, memory_.received[at]);
    }
  }

  ARLAB_DEVICE void reduce(std::uint32_t number, unsigned turn) const {
    const auto* received = reinterpret_cast<const std::uint8_t*>(memory_.received);
    const auto wires = [&](int from)
                           ARLAB_INLINED_LAMBDA { return from == rank() ? sent(turn) : received; };
    if (is_whole(number)) {
      const Batch batch = batch_of(number);
      Pack8<Element> sum[kTiles];
      sum_batch<SumFrom::first, kRanks>(codec_, call_, wires, kTiles, sum);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) batch.store<Element>(call_.output, i, sum[i]);
    } else {
      for_each_tile_of(number, [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
        tile.store(call_.output, sum_tile<SumFrom::first, Element, kRanks>(
                                     codec_, call_, wires, tile.slot_offset, tile.at()));
      });
    }
  }

  const Call& call_;
  const Codec& codec_;
  OneShotMemory<Codec>& memory_;
  SentinelExchange exchange_;
};

template <class Codec, class Element>
ARLAB_DEVICE void one_shot_sentinel(const Call& call, const Codec& codec) {
  begin_codec(codec);
  pdl_wait();
  ARLAB_SHARED_ARRAY(OneShotMemory<Codec>, memory, 1);
  OneShotSentinel<Codec, Element>(call, codec, memory[0]).run();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// one_shot of two ranks, where it sends as much as two_shot: the same as one_shot.hip, with places.
//
// In each turn, a block encodes an item and sends it, and reads what the other rank has sent for
// the item before, adds, and writes the output. It waits twice for all its threads, and for the
// other rank where that is late, but never for what it has sent.
#include "kernels/collectives/batch.h"
#include "kernels/collectives/launch.h"
#include "kernels/collectives/tickets.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

constexpr std::uint32_t kNoItem = 0xFFFFFFFF;
constexpr unsigned kSent = 3;  // wires: one to send, one to add, and one that slow threads may read
constexpr unsigned kTurns = 4;  // whose items are known: one before, the current one, two to come

/// An item has as many tiles as its place holds, two at most: more take registers.
template <class Codec>
inline constexpr std::size_t kItemTiles = 2 * Codec::kTileBytes <= kPlaceBytes ? 2 : 1;

template <class Codec>
struct PairMemory {
  static constexpr std::size_t kWords = kItemTiles<Codec> * Codec::kTileBytes / 16;
  static_assert(kWords * 16 <= kPlaceBytes);

  Words4 input[kItemTiles<Codec>][kThreads];
  Words4 sent[kSent][kWords];
  Words4 received[kWords];
  std::uint32_t item[kTurns];   // numbers in this call
  std::uint32_t place_is_free;  // of the item to send
  std::uint32_t holds_absent;   // the item that is sent has a word like kAbsent
  std::uint32_t was_completed;  // the item that is read had one
  std::uint32_t first_item;     // number, through all calls, of this call's first
  std::uint32_t failed;
  std::uint32_t place_failed;  // not `failed`, which slow threads may be about to read
};

template <class Codec, class Number>
class OneShotPair {
 public:
  ARLAB_DEVICE OneShotPair(const Call& call, const Codec& codec, PairMemory<Codec>& memory)
      : call_(call),
        codec_(codec),
        memory_(memory),
        places_(call.team.places),
        words_(*global_pointer(call.team.place_words)) {}

  ARLAB_DEVICE void run() {
    fetch(one_of_them(blockIdx.x));
    begin();
    __syncthreads();
    if (memory_.failed != 0) return;
    first_item_ = memory_.first_item;
    std::uint32_t before = kNoItem;
#pragma unroll 1
    for (unsigned turn = 0;; ++turn) {
      const std::uint32_t now = memory_.item[turn % kTurns];
      if (now == kNoItem && before == kNoItem) break;
      std::uint32_t ticket = 0;
      if (threadIdx.x == 0) ticket = one_of_them(take_ticket(call_.team));
      if (now != kNoItem) {
        contribute(now, turn);
        fetch(memory_.item[(turn + 1) % kTurns]);
      }
      if (threadIdx.x == 0) {
        memory_.item[(turn + 2) % kTurns] = ticket;
        memory_.place_is_free = now != kNoItem && may_send(now) ? 1 : 0;
      }
      __syncthreads();
      const bool sends = memory_.place_is_free != 0;
      if (sends) send(now, turn);
      if (before != kNoItem) receive(before);
      __syncthreads();
      if (memory_.failed != 0) return;
      if (threadIdx.x == 0) {
        if (sends) say_complete(now);
        if (before != kNoItem) count(before, now);
      }
      if (now == kNoItem) let_next_kernel_start();
      if (before != kNoItem) reduce(before, turn - 1);
      if (now != kNoItem && !sends) {
        if (threadIdx.x == 0) wait_for_place(now);
        __syncthreads();
        if (memory_.place_failed != 0) return;
        send(now, turn);
        __syncthreads();
        if (threadIdx.x == 0) say_complete(now);
      }
      before = now;
    }
    if (threadIdx.x == 0) leave();
  }

 private:
  using Encoded = typename Codec::Encoded;
  using Bits = typename Number::Bits;
  static constexpr int kTiles = static_cast<int>(kItemTiles<Codec>);
  static constexpr std::size_t kItemElements = kItemTiles<Codec> * kTile;
  static constexpr unsigned kTileBytes = static_cast<unsigned>(Codec::kTileBytes);

  ARLAB_DEVICE int rank() const { return call_.team.rank; }
  ARLAB_DEVICE int peer() const { return 1 - call_.team.rank; }
  ARLAB_DEVICE std::uint32_t* word(int at, std::size_t offset) const {
    return reinterpret_cast<std::uint32_t*>(buffer_of(call_.team, at) + offset);
  }

  // ---- items

  ARLAB_DEVICE std::uint32_t items() const {
    return static_cast<std::uint32_t>((call_.chunk[0].end + kItemElements - 1) / kItemElements);
  }
  ARLAB_DEVICE std::uint32_t one_of_them(std::uint32_t number) const {
    return number < items() ? number : kNoItem;
  }

  ARLAB_DEVICE void begin() {
    if (threadIdx.x == 0) {
      const std::uint32_t aborted = load_relaxed(abort_word(buffer_of(call_.team, rank())));
      if (aborted != 0) store_relaxed(global_pointer(call_.team.status), aborted);
      memory_.failed = aborted;
      memory_.place_failed = 0;
      memory_.first_item = load_relaxed(&words_.next_item);
      memory_.item[0] = one_of_them(blockIdx.x);
      memory_.item[1] = one_of_them(blockIdx.x + gridDim.x);
      memory_.holds_absent = 0;
      memory_.was_completed = 0;
    }
    // Of all calls before, at once.
    if (blockIdx.x == 0 && threadIdx.x < 2 * kPlaceWindows) {
      const std::uint32_t next =
          load_relaxed(&words_.next_item) - threadIdx.x / 2 * places_.window();
      const int at = static_cast<int>(threadIdx.x % 2);
      store_release(word(at, places_.freed(rank(), next - 1)), next);
    }
  }
  ARLAB_DEVICE void leave() const {
    if (!is_last_to_end(call_.team)) return;
    store_relaxed(&words_.next_item,
                  first_item_ + places_.window_of(items() + places_.window() - 1));
  }

  // ---- places; one thread

  /// What `freed` of both ranks must have come to before the item is sent.
  ARLAB_DEVICE std::uint32_t freed_for(std::uint32_t number) const {
    return places_.window_of(first_item_ + number) - (kPlaceWindows - 1) * places_.window();
  }
  ARLAB_DEVICE const std::uint32_t* freed_by(int by, std::uint32_t number) const {
    return word(rank(), places_.freed(by, first_item_ + number));
  }
  ARLAB_DEVICE bool may_send(std::uint32_t number) {
    const std::uint32_t freed = freed_for(number);
    if (knows_freed_ && freed == freed_) return true;
    knows_freed_ = static_cast<std::int32_t>(load_acquire(freed_by(0, number)) - freed) >= 0 &&
                   static_cast<std::int32_t>(load_acquire(freed_by(1, number)) - freed) >= 0;
    freed_ = freed;
    return knows_freed_;
  }
  ARLAB_DEVICE void wait_for_place(std::uint32_t number) const {
    for (int by = 0; by < 2; ++by) {
      wait_for_flag(call_.team, freed_by(by, number), by, freed_for(number), memory_.place_failed);
    }
  }
  /// The item is read, and its place empty. `next`: that this block reads next.
  ARLAB_DEVICE void count(std::uint32_t number, std::uint32_t next) {
    if (memory_.was_completed != 0) {
      memory_.was_completed = 0;
      store_relaxed(word(rank(), places_.complete(first_item_ + number)), 0);
    }
    const std::uint32_t window = places_.window_of(number);
    if (window + places_.count >= items()) return;  // this call does not use it again
    ++counted_;
    if (next != kNoItem && places_.window_of(next) == window) return;
    const std::uint32_t item = first_item_ + window;
    std::uint32_t* read = &words_.read[places_.residue(item)];
    if (atomic_add_in_order(read, counted_) + counted_ == places_.window()) {
      store_relaxed(read, 0);
      for (const int at : {peer(), rank()}) {
        store_release(word(at, places_.freed(rank(), item)), item + places_.window());
      }
    }
    counted_ = 0;
  }
  ARLAB_DEVICE void say_complete(std::uint32_t number) const {
    if (memory_.holds_absent == 0) return;
    memory_.holds_absent = 0;
    store_release(word(peer(), places_.complete(first_item_ + number)), 1);
  }

  // ---- tiles of an item

  ARLAB_DEVICE bool is_whole(std::uint32_t number) const {
    return call_.aligned && (number + std::size_t{1}) * kItemElements <= call_.chunk[0].end;
  }
  ARLAB_DEVICE Batch batch_of(std::uint32_t number) const {
    return {kTiles, number * kItemElements, kTile};
  }
  /// Calls f for each tile, with its place in the item: of items that are not whole.
  template <class F>
  ARLAB_DEVICE void for_each_tile_of(std::uint32_t number, F f) const {
#pragma unroll 1
    for (unsigned i = 0; i < kItemTiles<Codec>; ++i) {
      Tile tile;
      tile.begin = number * kItemElements + i * kTile;
      if (tile.begin >= call_.chunk[0].end) return;
      const std::size_t rest = call_.chunk[0].end - tile.begin;
      tile.elements = static_cast<unsigned>(rest < kTile ? rest : kTile);
      tile.slot_offset = i * kTileBytes;
      tile.whole = call_.aligned && tile.elements == kTile;
      f(tile);
    }
  }
  /// Words of 16 bytes of its wires.
  ARLAB_DEVICE unsigned wire_words(std::uint32_t number) const {
    const std::size_t rest = call_.chunk[0].end - number * kItemElements;
    return rest > kItemElements - kTile ? PairMemory<Codec>::kWords
                                        : PairMemory<Codec>::kWords / kItemTiles<Codec>;
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
      fetch_128(&memory_.input[i][thread_index()], batch.address<Number>(call_.input, i));
    }
    commit_fetches();
  }

  ARLAB_DEVICE void contribute(std::uint32_t number, unsigned turn) const {
    std::uint8_t* wire = sent(turn);
    if (is_whole(number)) {
      wait_for_fetches<0>();
      Eight<Number> x[kTiles];
      Encoded encoded[kTiles];
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const Words4 words = load_128(&memory_.input[i][thread_index()]);
#pragma unroll
        for (int j = 0; j < 4; ++j) x[i].word[j] = words.word[j];
      }
      encode_batch(codec_, x, kTiles, encoded);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        codec_.store(encoded[i], wire + static_cast<unsigned>(i) * kTileBytes, Batch::at());
      }
    } else {
      for_each_tile_of(number, [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
        arlab::kernels::send(codec_, tile, tile.load<Number>(call_.input), wire);
      });
    }
  }

  ARLAB_DEVICE static bool any_absent(const Words4& words) {
    return words.word[0] == kAbsent || words.word[1] == kAbsent || words.word[2] == kAbsent ||
           words.word[3] == kAbsent;
  }

  ARLAB_DEVICE void send(std::uint32_t number, unsigned turn) const {
    const unsigned words = wire_words(number);
    std::uint8_t* slot = buffer_of(call_.team, peer()) + places_.slot(first_item_ + number);
#pragma unroll
    for (unsigned at = thread_index(); at < PairMemory<Codec>::kWords; at += kThreads) {
      if (at >= words) continue;
      const Words4 wire = load_128(&memory_.sent[turn % kSent][at]);
      store_words(slot + at * 16, wire);
      if (any_absent(wire)) store_relaxed(&memory_.holds_absent, 1);
    }
  }

  ARLAB_DEVICE void receive(std::uint32_t number) const {
    constexpr unsigned kAtOnce = (PairMemory<Codec>::kWords + kThreads - 1) / kThreads;
    const unsigned words = wire_words(number);
    std::uint8_t* slot = buffer_of(call_.team, rank()) + places_.slot(first_item_ + number);
    Words4 wire[kAtOnce];
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned at = thread_index() + i * kThreads;
      if (at < words) wire[i] = load_words(slot + at * 16);
    }
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned at = thread_index() + i * kThreads;
      if (at >= words) continue;
      if (any_absent(wire[i])) wire[i] = wait_for_words(slot + at * 16, number);
      store_128(&memory_.received[at], wire[i]);
      store_words(slot + at * 16, {{kAbsent, kAbsent, kAbsent, kAbsent}});
    }
  }
  /// Until they are there, or the other rank has not sent them in time: then this one gives up.
  ARLAB_DEVICE Words4 wait_for_words(const std::uint8_t* at, std::uint32_t number) const {
    const std::uint32_t* complete = word(rank(), places_.complete(first_item_ + number));
    Patience patience(call_.team, peer());
    for (;;) {
      const bool is_complete = load_acquire(complete) != 0;
      const Words4 words = load_words(at);
      if (!any_absent(words)) return words;
      if (is_complete) {
        store_relaxed(&memory_.was_completed, 1);
        return words;
      }
      if (patience.ends(memory_.failed)) return words;
    }
  }

  ARLAB_DEVICE void reduce(std::uint32_t number, unsigned turn) const {
    const auto* received = reinterpret_cast<const std::uint8_t*>(memory_.received);
    const auto wires = [&](int from)
                           ARLAB_INLINED_LAMBDA { return from == rank() ? sent(turn) : received; };
    if (is_whole(number)) {
      const Batch batch = batch_of(number);
      Eight<Number> sum[kTiles];
      sum_batch(codec_, call_, wires, kTiles, sum);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) batch.store<Number>(call_.output, i, sum[i]);
    } else {
      for_each_tile_of(number, [&](const Tile& tile) ARLAB_INLINED_LAMBDA {
        tile.store(call_.output,
                   sum_tile<Number>(codec_, call_, wires, tile.slot_offset, tile.at()));
      });
    }
  }

  const Call& call_;
  const Codec& codec_;
  PairMemory<Codec>& memory_;
  const Places& places_;
  PlaceWords& words_;
  std::uint32_t first_item_ = 0;
  std::uint32_t freed_ = 0;  // one thread's, as what follows: what it asked for last
  bool knows_freed_ = false;
  std::uint32_t counted_ = 0;  // items of a window, read by this block
};

template <class Codec, class Number>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<Codec>)
    one_shot_pair_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  wait_for_kernel_before();
  ARLAB_SHARED_ARRAY(PairMemory<Codec>, memory, 1);
  OneShotPair<Codec, Number>(call, codec, memory[0]).run();
}

}  // namespace

hipError_t launch_one_shot_pair(const Call& call, const CodecChoice& codec, DType dtype,
                                hipStream_t stream) {
  return with_codec(
      codec, dtype,
      [&]<class Codec, class Number>([[maybe_unused]] const Codec& device_codec, Number) {
        if constexpr (kWorksInPlaces<Codec, Number>) {
          launch_behind(one_shot_pair_kernel<Codec, Number>,
                        LaunchSize{static_cast<unsigned>(call.blocks)}, stream, call, device_codec);
        }
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

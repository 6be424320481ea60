// two_shot of up to four ranks: the same as two_shot.h, with sentinel slots.
//
// An item is a tile, or with two ranks two tiles, of every chunk. A block works on several of its
// items at once, each in a stage of its own (Pipeline). In each turn it adds up the contributions
// to one, encodes its own to another, and stores the sums of a third; then it sends what it has
// encoded, and reads what the other ranks have sent for the two items of which it sent something a
// turn before. It waits twice for all its threads, and for other ranks where those are late, but
// never for what it has sent.
//
// With a scale of the message, no sum is encoded before all of the rank's are known. Then a call has every item twice: first its
// contributions are added up, and the sums kept in the output; then these are sent. A block has the same items both times, so that
// every thread reads what it has stored itself.
#pragma once

#include "kernels/collectives/measuring.h"
#include "kernels/collectives/slots_of_codec.h"
#include "kernels/transport/sentinels.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// The items that a block has in work, one in each of five stages, or none (kNoItem): a shift
/// register, whose items go a stage on at the end of every turn.
struct Pipeline {
  std::uint32_t send = kNoItem;          ///< encoded; waits for its slot, and is sent
  std::uint32_t receive = kNoItem;       ///< contributions of the other ranks are read
  std::uint32_t reduce = kNoItem;        ///< these are added up, and the sum is sent
  std::uint32_t receive_sums = kNoItem;  ///< sums of the other ranks are read
  std::uint32_t store = kNoItem;         ///< these are decoded into the output

  /// An item that was not `sent`, since its slot was not free, stays.
  ARLAB_DEVICE void shift(bool sent) {
    store = receive_sums;
    receive_sums = reduce;
    reduce = receive;
    receive = sent ? send : kNoItem;
    if (sent) send = kNoItem;
  }
  ARLAB_DEVICE bool only_sends_or_stores() const {
    return receive == kNoItem && reduce == kNoItem && receive_sums == kNoItem;
  }
  /// The item that is stored next after the present one.
  ARLAB_DEVICE std::uint32_t oldest_before_store() const {
    return receive_sums != kNoItem ? receive_sums
           : reduce != kNoItem     ? reduce
           : receive != kNoItem    ? receive
                                   : send;
  }
};

template <class Codec, unsigned kRanks>
struct TwoShotMemory : SentinelMemory, MeasuringMemoryOf<Codec> {
  static constexpr unsigned kOwn = 3;  // items whose own contribution is kept
  static constexpr unsigned kTiles = two_shot_tiles(kRanks);   // a chunk's in an item
  static constexpr unsigned kParcels = (kRanks - 1) * kTiles;  // tiles of other ranks' chunks
  static constexpr unsigned kWires = 3 * kParcels + (1 + kOwn) * kTiles;
  static constexpr unsigned kMostWords = static_cast<unsigned>(kSentinelTileBytes<Codec>) / 16;
  static_assert(kMostWords * 16 == kSentinelTileBytes<Codec> &&
                kMostWords * 16 <= kTwoShotWireBytes);

  Uint4 input[kParcels + kTiles][kThreads];
  Uint4 words[kWires * kMostWords];  // wires behind each other
};

template <class Codec, class Element, unsigned kRanks>
class TwoShotSentinel {
 public:
  ARLAB_DEVICE TwoShotSentinel(const Call& call, const Codec& codec,
                               TwoShotMemory<Codec, kRanks>& memory)
      : call_(call),
        codec_(codec),
        memory_(memory),
        wire_words_(tile_bytes_of<Codec>(call) / 16),
        items_((call.chunk_tiles + kTiles - 1) / kTiles),
        whole_items_(whole_items()),
        exchange_(call.team, call.team.two_shot_sentinel, call.team.two_shot_words,
                  kMeasures<Codec> ? 2 * items_ : items_, memory),
        measuring_(call.team, call.blocks, memory) {}

  ARLAB_DEVICE void run() {
    fetch(exchange_.item_at_start(0));
    exchange_.begin();
    __syncthreads();
    if (memory_.failed != 0) return;
    find_words();
    Pipeline stage;
    unsigned taken = 0;
    bool signalled = false;
#pragma unroll 1
    for (;;) {
      if (stage.reduce != kNoItem) reduce(stage.reduce);
      if (stage.send == kNoItem) {
        stage.send = memory_.item[taken % memory_.kTurns];
        if (stage.send != kNoItem) {
          std::uint32_t after_next = 0;
          if (threadIdx.x == 0) after_next = exchange_.take_item();
          contribute(stage.send);
          ++taken;
          fetch(memory_.item[taken % memory_.kTurns]);
          if (threadIdx.x == 0) memory_.item[(taken + 1) % memory_.kTurns] = after_next;
        }
      }
      if (stage.send != kNoItem) {
        const bool is_free = exchange_.may_send(stage.send);
        if (threadIdx.x == 0) memory_.slot_is_free = is_free ? 1 : 0;
      }
      if (stage.store != kNoItem) store_sums(stage.store);
      if (stage.oldest_before_store() == kNoItem) break;
      __syncthreads();
      if (stage.store != kNoItem && threadIdx.x == 0) {
        exchange_.return_credit(stage.store, stage.oldest_before_store());
      }
      const bool sends = stage.send != kNoItem && memory_.slot_is_free != 0;
      if (stage.reduce != kNoItem) send_sums(stage.reduce);
      if (sends) send_contributions(stage.send);
      // The first threads have no words to send or to read, or the fewest.
      if (!signalled) exchange_.signal(thread_index());
      signalled = true;
      if (stage.receive != kNoItem && stage.reduce == kNoItem && stage.receive_sums == kNoItem) {
        exchange_.meet(thread_index(), memory_.failed);
      }
      receive(stage.receive, stage.receive_sums);
      __syncthreads();
      if (memory_.failed != 0) return;
      stage.shift(sends);
      if (!stage.only_sends_or_stores()) continue;
      if (stage.send == kNoItem) {
        pdl_trigger();
      } else {
        if (stage.store != kNoItem) {
          if (threadIdx.x == 0) exchange_.return_credit(stage.store, stage.send);
          store_sums(stage.store);
          stage.store = kNoItem;
        }
        exchange_.wait_for_slot(stage.send);
        __syncthreads();
        if (memory_.slot_failed != 0) return;
      }
    }
    if (threadIdx.x == 0) {
      if (stage.store != kNoItem) exchange_.return_credit(stage.store, kNoItem);
      exchange_.leave();
    }
  }

  ARLAB_DEVICE void run_measured() {
    measuring_.begin();
    exchange_.begin();
    measure_input();
    if (!measuring_.measure(kRanks) || memory_.failed != 0) return;
    find_words();
    if (!pass<false>()) return;
    measuring_.found(0, range_of_sums_);
    if (!measuring_.measure(1)) return;
    pdl_trigger();
    first_ = items_;
    if (!pass<true>()) return;
    if (threadIdx.x == 0) exchange_.leave();
    measuring_.end();
  }

 private:
  using Encoded = typename Codec::Encoded;
  using Bits = typename Element::Bits;
  static constexpr unsigned kTiles = TwoShotMemory<Codec, kRanks>::kTiles;
  static constexpr unsigned kParcels = TwoShotMemory<Codec, kRanks>::kParcels;
  static constexpr unsigned kParts = kParcels + kTiles;
  static constexpr unsigned kMostWords = TwoShotMemory<Codec, kRanks>::kMostWords;
  static constexpr unsigned kOwn = TwoShotMemory<Codec, kRanks>::kOwn;
  static constexpr int kAtOnce = 2;  // tiles
  static constexpr unsigned kCounting = 32;

  ARLAB_DEVICE int rank() const { return call_.team.rank; }

  // ---- a scale of the message

  /// All items once: contributions are sent and added up, or sums are sent and stored. False when the team has given up.
  template <bool kSums>
  ARLAB_DEVICE bool pass() {
    std::uint32_t send = kNoItem;
    std::uint32_t receive = kNoItem;
    std::uint32_t finish = kNoItem;
    const auto finish_item = [&]() ARLAB_INLINED_LAMBDA {
      if constexpr (kSums) {
        store_sums(finish);
      } else {
        add_up(finish);
      }
    };
    std::uint32_t next = blockIdx.x;
    fetch_of_pass<kSums>(next);
#pragma unroll 1
    for (;;) {
      if (finish != kNoItem) finish_item();
      if (send == kNoItem && next < items_) {
        send = next;
        next += gridDim.x;
        if constexpr (kSums) {
          encode_sums(send);
        } else {
          contribute(send);
        }
        fetch_of_pass<kSums>(next);
      }
      if (send != kNoItem) {
        const bool is_free = exchange_.may_send(in_call(send));
        if (threadIdx.x == 0) memory_.slot_is_free = is_free ? 1 : 0;
      }
      if (send == kNoItem && receive == kNoItem) {
        if (threadIdx.x == 0 && finish != kNoItem) {
          exchange_.return_credit(in_call(finish), kNoItem);
        }
        return true;
      }
      __syncthreads();
      if (threadIdx.x == 0 && finish != kNoItem) {
        exchange_.return_credit(in_call(finish), in_call(receive != kNoItem ? receive : send));
      }
      const bool sends = send != kNoItem && memory_.slot_is_free != 0;
      if (sends && kSums) send_sums(send);
      if (sends && !kSums) send_contributions(send);
      if (!signalled_) exchange_.signal(thread_index());
      signalled_ = true;
      if (!kSums && receive != kNoItem && finish == kNoItem) {
        exchange_.meet(thread_index(), memory_.failed);
      }
      if constexpr (kSums) {
        this->receive(kNoItem, receive);
      } else {
        this->receive(receive, kNoItem);
      }
      __syncthreads();
      if (memory_.failed != 0) return false;
      finish = receive;
      receive = sends ? send : kNoItem;
      if (sends) send = kNoItem;
      if (receive != kNoItem || send == kNoItem) continue;
      if (finish != kNoItem) {
        if (threadIdx.x == 0) exchange_.return_credit(in_call(finish), in_call(send));
        finish_item();
        finish = kNoItem;
      }
      exchange_.wait_for_slot(in_call(send));
      __syncthreads();
      if (memory_.slot_failed != 0) return false;
    }
  }

  template <bool kSums>
  ARLAB_DEVICE void fetch_of_pass(std::uint32_t number) const {
    if constexpr (!kSums) {
      fetch(number);
    } else if (number < whole_items_) {
#pragma unroll
      for (unsigned part = 0; part < kTiles; ++part) {
        cp_async_128(&memory_.input[part][thread_index()],
                     global_pointer(static_cast<const Bits*>(call_.output)) +
                         begin_of(number, part) + thread_index() * kPerThread);
      }
      cp_async_commit();
    }
  }

  /// Measures the items that this block sends: where the output is the input, its threads store there later, and no others do.
  ARLAB_DEVICE void measure_input() const {
    std::uint32_t range[kRanks];
#pragma unroll
    for (std::uint32_t& each : range) each = Codec::no_range();
    const auto found = [&](unsigned part, const Pack8<Element>& x,
                           std::size_t count) ARLAB_INLINED_LAMBDA {
      std::uint32_t& of_owner = range[distance(part)];
      of_owner = Codec::range_of_both(of_owner, measuring_.range_of(x, count));
    };
#pragma unroll 1
    for (std::uint32_t number = blockIdx.x; number < items_; number += gridDim.x) {
      if (number < whole_items_) {
        Pack8<Element> x[kParts];
#pragma unroll
        for (unsigned part = 0; part < kParts; ++part) {
          x[part] = load_elements<Element>(input(number, part), kPerThread);
        }
#pragma unroll
        for (unsigned part = 0; part < kParts; ++part) found(part, x[part], kPerThread);
      } else {
#pragma unroll
        for (unsigned part = 0; part < kParts; ++part) {
          const Tile tile = tile_of(number, part);
          if (tile.elements == 0) continue;
          found(part, tile.load<Element>(call_.input), tile.at().count());
        }
      }
    }
#pragma unroll
    for (unsigned i = 0; i < kRanks; ++i) measuring_.found(owner(i * kTiles), range[i]);
  }

  ARLAB_DEVICE void add_up(std::uint32_t number) {
    reduced_ = reduced_ + 1 == kOwn ? 0 : reduced_ + 1;
    const auto wires = [&](int from) ARLAB_INLINED_LAMBDA { return contribution_of(from); };
    auto* const output = global_pointer(static_cast<Bits*>(call_.output));
    const auto keep = [&](std::size_t begin, std::size_t count,
                          const Pack8<Element>& sum) ARLAB_INLINED_LAMBDA {
      // It stays in the cache, since it is read again.
      store_elements<Element>(output + begin + thread_index() * kPerThread, sum, count);
      range_of_sums_ = Codec::range_of_both(range_of_sums_, measuring_.range_of(sum, count));
    };
    if (number < whole_items_) {
      Pack8<Element> sum[kAtOnce];
      sum_batch<SumFrom::zero, kRanks>(codec_, call_, wires, static_cast<int>(kTiles), sum);
#pragma unroll
      for (unsigned part = 0; part < kTiles; ++part) {
        keep(begin_of(number, part), kPerThread, sum[part]);
      }
    } else {
#pragma unroll 1
      for (unsigned part = 0; part < kTiles; ++part) {
        const Tile tile = tile_of(number, part);
        if (tile.elements == 0) continue;
        keep(tile.begin, tile.at().count(),
             sum_tile<SumFrom::zero, Element, kRanks>(
                 codec_, call_, wires, part * tile_bytes_of<Codec>(call_), tile.at()));
      }
    }
  }
  ARLAB_DEVICE void encode_sums(std::uint32_t number) const {
    const Codec codec = measuring_.codec_of(codec_, 0);
    if (number < whole_items_) {
      cp_async_wait<0>();
#pragma unroll
      for (unsigned part = 0; part < kTiles; ++part) {
        const Encoded encoded = codec.encode(fetched(part), Batch::at());
        codec.store(encoded, bytes(own_sums() + part), Batch::at());
        store(number, part, codec.decode(encoded, Batch::at()));
      }
    } else {
#pragma unroll 1
      for (unsigned part = 0; part < kTiles; ++part) {
        const Tile tile = tile_of(number, part);
        if (tile.elements == 0) continue;
        const auto* sums = global_pointer(static_cast<const Bits*>(call_.output));
        const Encoded encoded =
            codec.encode(load_elements<Element>(sums + tile.begin + thread_index() * kPerThread,
                                                tile.at().count()),
                         tile.at());
        codec.store(encoded, bytes(own_sums() + part), tile.at());
        tile.store(call_.output, codec.decode(encoded, tile.at()));
      }
    }
  }

  // ---- parts of an item: own ones first, then those of the rank behind this one, and so on

  ARLAB_DEVICE unsigned distance(unsigned part) const { return part / kTiles; }
  ARLAB_DEVICE unsigned tile(unsigned part) const { return part % kTiles; }
  ARLAB_DEVICE int owner(unsigned part) const {
    const unsigned owner = static_cast<unsigned>(rank()) + distance(part);
    return static_cast<int>(owner >= kRanks ? owner - kRanks : owner);
  }
  /// At that rank, the parcel that comes from this one.
  ARLAB_DEVICE unsigned parcel_there(unsigned part) const {
    return (kRanks - distance(part) - 1) * kTiles + tile(part);
  }

  /// Items before this one have nothing but whole tiles.
  ARLAB_DEVICE std::uint32_t whole_items() const {
    std::uint32_t items = call_.aligned ? items_ : 0;
#pragma unroll 1
    for (unsigned i = 0; i < kRanks; ++i) {
      const ElementRange& chunk = call_.chunk[i];
      const auto whole = static_cast<std::uint32_t>((chunk.end - chunk.begin) / (kTile * kTiles));
      if (whole < items) items = whole;
      if (chunk.begin % kPerThread != 0) items = 0;
    }
    return items;
  }
  ARLAB_DEVICE std::size_t begin_of(std::uint32_t number, unsigned part) const {
    return call_.chunk[owner(part)].begin +
           (static_cast<std::size_t>(number) * kTiles + tile(part)) * kTile;
  }
  /// The tile of any item; without elements where the chunk has no such tile.
  ARLAB_DEVICE Tile tile_of(std::uint32_t number, unsigned part) const {
    Tile tile;
    tile.begin = begin_of(number, part);
    const std::size_t end = call_.chunk[owner(part)].end;
    const std::size_t rest = tile.begin < end ? end - tile.begin : 0;
    tile.elements = static_cast<unsigned>(rest < kTile ? rest : kTile);
    tile.slot_offset = 0;
    tile.whole = call_.aligned && tile.elements == kTile && tile.begin % kPerThread == 0;
    return tile;
  }
  ARLAB_DEVICE bool is_there(std::uint32_t number, unsigned part) const {
    return number < whole_items_ || begin_of(number, part) < call_.chunk[owner(part)].end;
  }

  ARLAB_DEVICE Uint4* wire(unsigned number) const { return memory_.words + number * wire_words_; }
  ARLAB_DEVICE std::uint8_t* bytes(unsigned number) const {
    return reinterpret_cast<std::uint8_t*>(wire(number));
  }
  ARLAB_DEVICE unsigned outgoing() const { return 0; }
  ARLAB_DEVICE unsigned contributions() const { return kParcels; }
  ARLAB_DEVICE unsigned sums() const { return 2 * kParcels; }
  ARLAB_DEVICE unsigned own_sums() const { return 3 * kParcels; }
  ARLAB_DEVICE unsigned own(unsigned turn) const { return 3 * kParcels + (1 + turn) * kTiles; }

  ARLAB_DEVICE const Bits* input(std::uint32_t number, unsigned part) const {
    return global_pointer(static_cast<const Bits*>(call_.input)) + begin_of(number, part) +
           thread_index() * kPerThread;
  }
  ARLAB_DEVICE void store(std::uint32_t number, unsigned part, const Pack8<Element>& x) const {
    store_whole<Element>(global_pointer(static_cast<Bits*>(call_.output)) + begin_of(number, part) +
                             thread_index() * kPerThread,
                         x);
  }

  // ---- what a turn does

  ARLAB_DEVICE void fetch(std::uint32_t number) const {
    if (number >= whole_items_) return;
#pragma unroll
    for (unsigned part = 0; part < kParts; ++part) {
      cp_async_128(&memory_.input[part][thread_index()], input(number, part));
    }
    cp_async_commit();
  }

  ARLAB_DEVICE Pack8<Element> fetched(unsigned part) const {
    const Uint4 words = load_128(&memory_.input[part][thread_index()]);
    Pack8<Element> x;
#pragma unroll
    for (int i = 0; i < 4; ++i) x.word[i] = words.word[i];
    return x;
  }

  /// Where a part's wire is put together.
  ARLAB_DEVICE std::uint8_t* wire_of_part(unsigned part) const {
    return part < kTiles ? bytes(own(contributed_) + part) : bytes(outgoing() + part - kTiles);
  }
  ARLAB_DEVICE void contribute(std::uint32_t number) {
    contributed_ = contributed_ + 1 == kOwn ? 0 : contributed_ + 1;
    if (number < whole_items_) {
      cp_async_wait<0>();
#pragma unroll 1
      for (unsigned first = 0; first < kParts; first += kAtOnce) {
        const int count = kParts - first == 1 ? 1 : kAtOnce;
        Pack8<Element> x[kAtOnce];
        Encoded encoded[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (i >= count) continue;
          x[i] = fetched(first + static_cast<unsigned>(i));
        }
        if constexpr (kMeasures<Codec>) {
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) {
            if (i >= count) continue;
            const unsigned part = first + static_cast<unsigned>(i);
            const int message = owner(part);
            encoded[i] = measuring_.codec_of(codec_, message).encode(x[i], Batch::at());
          }
        } else {
          const auto begin_of_part = [&](int i) ARLAB_INLINED_LAMBDA {
            return begin_of(number, first + static_cast<unsigned>(i));
          };
          encode_batch(codec_, call_, 0, begin_of_part, x, count, encoded);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (i >= count) continue;
          codec_.store(encoded[i], wire_of_part(first + static_cast<unsigned>(i)), Batch::at());
        }
      }
    } else {
#pragma unroll 1
      for (unsigned part = 0; part < kParts; ++part) {
        const Tile tile = tile_of(number, part);
        if (tile.elements == 0) continue;
        arlab::kernels::send(measuring_.codec_of(codec_, owner(part)), call_, tile,
                             tile.load<Element>(call_.input), wire_of_part(part));
      }
    }
  }

  static constexpr unsigned kWordsOfThread = (kParcels * kMostWords + kThreads - 1) / kThreads;
  using Read = Uint4[kWordsOfThread];

  /// Where the words of 16 bytes are that this thread sends and reads: of the parcels to, and from,
  /// each of the other ranks.
  ARLAB_DEVICE void find_words() {
    for_each_word([&](unsigned i, unsigned parcel, unsigned word) ARLAB_INLINED_LAMBDA {
      const unsigned part = parcel + kTiles;
      to_[i] = exchange_.wire(owner(part), parcel_there(part)) + word * 16;
      from_[i] = exchange_.wire(rank(), parcel) + word * 16;
    });
  }
  /// The number of an item among those of the call.
  ARLAB_DEVICE std::uint32_t in_call(std::uint32_t number) const {
    if constexpr (kMeasures<Codec>) return first_ + number;
    return number;
  }
  ARLAB_DEVICE std::uint32_t slot_at(std::uint32_t number, unsigned wires) const {
    return exchange_.slot_of(in_call(number)) + wires * kTwoShotWireBytes;
  }
  /// Calls f(i, parcel, word) for the words of 16 bytes that this thread has of the parcels. The
  /// first threads have none of them, or the fewest: one of those counts items meanwhile.
  template <class F>
  ARLAB_DEVICE void for_each_word(F f) const {
#pragma unroll
    for (unsigned i = 0; i < kWordsOfThread; ++i) {
      const unsigned at = i * kThreads + (thread_index() + kThreads - kCounting) % kThreads;
      if (at < kParcels * wire_words_) f(i, at / wire_words_, at % wire_words_);
    }
  }
  ARLAB_DEVICE void send_contributions(std::uint32_t number) const {
    const std::uint32_t slot = slot_at(number, 0);
    for_each_word([&](unsigned i, unsigned parcel, unsigned word) ARLAB_INLINED_LAMBDA {
      const unsigned part = parcel + kTiles;
      if (!is_there(number, part)) return;
      exchange_.send_words(to_[i] + slot, load_128(&wire(outgoing() + parcel)[word]), owner(part),
                           {in_call(number), parcel_there(part), word});
    });
  }
  ARLAB_DEVICE void send_sums(std::uint32_t number) const {
    const std::uint32_t slot = slot_at(number, kParcels);
    for_each_word([&](unsigned i, unsigned parcel, unsigned word) ARLAB_INLINED_LAMBDA {
      const unsigned part = parcel + kTiles;
      if (!is_there(number, tile(part))) return;
      exchange_.send_words(to_[i] + slot, load_128(&wire(own_sums() + tile(part))[word]),
                           owner(part), {in_call(number), kParcels + parcel_there(part), word});
    });
  }
  ARLAB_DEVICE void begin_to_read(std::uint32_t number, unsigned wires, Read& read) const {
    const std::uint32_t slot = slot_at(number, wires);
    for_each_word([&](unsigned i, unsigned, unsigned)
                      ARLAB_INLINED_LAMBDA { read[i] = load_relaxed_v4(from_[i] + slot); });
  }
  /// own_parts: what is read are contributions, to them.
  ARLAB_DEVICE void read(std::uint32_t number, unsigned wires, bool own_parts, unsigned to,
                         Read& read) const {
    const std::uint32_t slot = slot_at(number, wires);
    for_each_word([&](unsigned i, unsigned parcel, unsigned word) ARLAB_INLINED_LAMBDA {
      const unsigned part = parcel + kTiles;
      if (!is_there(number, own_parts ? tile(part) : part)) return;
      exchange_.take_words(from_[i] + slot, read[i], owner(part),
                           {in_call(number), wires + parcel, word}, wire(to + parcel)[word]);
    });
  }
  ARLAB_DEVICE void receive(std::uint32_t contributed, std::uint32_t summed) const {
    Read of_contributions;
    Read of_sums;
    if (summed != kNoItem) begin_to_read(summed, kParcels, of_sums);
    if (contributed != kNoItem) begin_to_read(contributed, 0, of_contributions);
    if (summed != kNoItem) read(summed, kParcels, false, sums(), of_sums);
    if (contributed != kNoItem) read(contributed, 0, true, contributions(), of_contributions);
  }

  /// To the item that is added up.
  ARLAB_DEVICE std::uint8_t* contribution_of(int from) const {
    if (from == rank()) return bytes(own(reduced_));
    const unsigned distance = static_cast<unsigned>(
        from < rank() ? from - rank() + static_cast<int>(kRanks) : from - rank());
    return bytes(contributions() + (distance - 1) * kTiles);
  }

  ARLAB_DEVICE void reduce(std::uint32_t number) {
    reduced_ = reduced_ + 1 == kOwn ? 0 : reduced_ + 1;
    const auto wires = [&](int from) ARLAB_INLINED_LAMBDA { return contribution_of(from); };
    if (number < whole_items_) {
      const auto count = static_cast<int>(kTiles);
      Pack8<Element> sum[kAtOnce];
      Encoded encoded[kAtOnce];
      sum_batch<SumFrom::zero, kRanks>(codec_, call_, wires, count, sum);
      const auto begin_of_part = [&](int i) ARLAB_INLINED_LAMBDA {
        return begin_of(number, static_cast<unsigned>(i));
      };
      encode_batch(codec_, call_, 1, begin_of_part, sum, count, encoded);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (i < count) {
          codec_.store(encoded[i], bytes(own_sums() + static_cast<unsigned>(i)), Batch::at());
        }
      }
      decode_batch(codec_, encoded, count, sum);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (i < count) store(number, static_cast<unsigned>(i), sum[i]);
      }
    } else {
#pragma unroll 1
      for (unsigned part = 0; part < kTiles; ++part) {
        const Tile tile = tile_of(number, part);
        if (tile.elements == 0) continue;
        const Encoded encoded =
            encode(codec_, call_, 1, tile,
                   sum_tile<SumFrom::zero, Element, kRanks>(
                       codec_, call_, wires, part * tile_bytes_of<Codec>(call_), tile.at()));
        codec_.store(encoded, bytes(own_sums() + part), tile.at());
        tile.store(call_.output, codec_.decode(encoded, tile.at()));
      }
    }
  }

  ARLAB_DEVICE void store_sums(std::uint32_t number) const {
    if (number < whole_items_) {
#pragma unroll
      for (unsigned first = 0; first < kParcels; first += kAtOnce) {
        const int count = kParcels - first == 1 ? 1 : kAtOnce;
        Encoded encoded[kAtOnce];
        Pack8<Element> x[kAtOnce];
        load_batch(codec_, call_, bytes(sums() + first), count, encoded);
        decode_batch(codec_, encoded, count, x);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (i < count) store(number, kTiles + first + static_cast<unsigned>(i), x[i]);
        }
      }
    } else {
#pragma unroll 1
      for (unsigned parcel = 0; parcel < kParcels; ++parcel) {
        const Tile tile = tile_of(number, kTiles + parcel);
        if (tile.elements == 0) continue;
        tile.store(call_.output,
                   arlab::kernels::receive<Element>(codec_, tile, bytes(sums() + parcel)));
      }
    }
  }

  ARLAB_DEVICE static std::uint32_t no_range() {
    if constexpr (kMeasures<Codec>) return Codec::no_range();
    return 0;
  }

  const Call& call_;
  const Codec& codec_;
  TwoShotMemory<Codec, kRanks>& memory_;
  const unsigned wire_words_;  // a constant where the codec has one
  const std::uint32_t items_;
  const std::uint32_t whole_items_;
  SentinelExchange exchange_;
  unsigned contributed_ = 0;  // items, modulo kOwn
  unsigned reduced_ = 0;
  MeasuringOf<Codec, Element> measuring_;
  std::uint32_t range_of_sums_ =
      no_range();            // this thread's; where the codec measures, as the following
  std::uint32_t first_ = 0;  // item of the pass
  bool signalled_ = false;
  std::uint8_t* to_[kWordsOfThread];
  std::uint8_t* from_[kWordsOfThread];
};

template <class Codec, class Element, unsigned kRanks>
ARLAB_DEVICE void two_shot_sentinel(const Call& call, const Codec& codec) {
  begin_codec(codec);
  pdl_wait();
  using Memory = TwoShotMemory<Codec, kRanks>;
  ARLAB_SHARED_ARRAY(Memory, memory, 1);
  TwoShotSentinel<Codec, Element, kRanks> two_shot(call, codec, memory[0]);
  if constexpr (kMeasures<Codec>) {
    two_shot.run_measured();
  } else {
    two_shot.run();
  }
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

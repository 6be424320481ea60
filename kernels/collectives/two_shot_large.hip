// two_shot for large tensors, where the links set the time: the same as two_shot.hip, in lanes.
//
// 256 threads of a block compute; 32 serve them: they take steps, look whether flags have come,
// send wires, wait until these have arrived, and signal. So nobody who computes waits for a link.
// Input is fetched into shared memory two batches ahead. A step computes its parcels (batches of
// wire) in order, contributions to the peers first, then the sums for all, and hands them over two
// at a time.
#include "kernels/collectives/batch.h"
#include "kernels/collectives/launch.h"
#include "kernels/collectives/tickets.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {
namespace {

constexpr int kServing = 32;
constexpr int kBlockThreads = kThreads + kServing;
constexpr int kTiles = kFastBatch;  // of a batch
constexpr unsigned kSteps = 4;      // known at a time: the current one, two ahead, and one to spare
constexpr int kNoLane = -1;         // of a step that is none

enum Barrier : int {
  kComputing = 1,  // among those who compute
  kServed,         // among those who serve
  kHandedOver,     // parcels are complete
  kTakenOver,      // the parcels before are sent; what was found out about steps to come is stored
};

struct LargeShared {
  Words4 input[2][kTiles][kThreads];
  Words4 wire[2][2][kLaneWireBytes / 16];
  Step step[kSteps];
  std::uint32_t arrived[kSteps][kMaxRanks];  // not 0: the flag that the step waits for has come
  std::uint32_t groups;                      // of parcels that are complete; a hint
  std::uint32_t failed;
};

template <class Codec>
class LargeCall {
 public:
  ARLAB_DEVICE explicit LargeCall(const Call& call)
      : call_(call), steps_(static_cast<unsigned>(call.lanes * (call.lane_rounds + 2))) {}

  ARLAB_DEVICE int ranks() const { return call_.team.layout.ranks; }
  ARLAB_DEVICE int rank() const { return call_.team.rank; }
  /// The step with this number, of a lane whose colour was this when the call began.
  ARLAB_DEVICE Step step_of(std::uint32_t number, std::uint32_t colour) const {
    if (number >= steps_) return {kNoLane, 0, 0, 0};
    const auto lanes = static_cast<unsigned>(call_.lanes);
    const std::uint32_t k = number / lanes;
    const std::uint32_t lane = number - k * lanes;
    return {static_cast<int>(lane), static_cast<int>(k), colour + k,
            static_cast<int>(lane % static_cast<unsigned>(ranks() - 1))};
  }
  /// Of the steps that blocks begin with. The first is one of a lane's first steps, since there are
  /// no fewer lanes than blocks: it waits for nothing.
  ARLAB_DEVICE std::uint32_t first_number(unsigned turn) const {
    return blockIdx.x + turn * gridDim.x;
  }
  /// Parcel p of a step is for this rank; the last for all.
  ARLAB_DEVICE int owner_of(const Step& step, int p) const {
    const int all = ranks() - 1;
    if (p == all) return rank();
    int distance = p + step.distance;
    if (distance >= all) distance -= all;
    const int peer = rank() + 1 + distance;
    return peer > all ? peer - all - 1 : peer;
  }
  /// The first tile of the lane's batch in this round of a chunk.
  ARLAB_DEVICE unsigned first_tile(const Step& step, int round) const {
    return static_cast<unsigned>(round * kTiles * call_.lanes + step.lane);
  }
  /// Tiles of that batch; none where there is no such round.
  ARLAB_DEVICE int tiles_of(const ElementRange& chunk, const Step& step, int round) const {
    if (round < 0 || round >= call_.lane_rounds) return 0;
    const auto all = static_cast<unsigned>((chunk.end - chunk.begin) / kTile);
    int count = 0;
    unsigned tile = first_tile(step, round);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (tile < all) ++count;
      tile += static_cast<unsigned>(call_.lanes);
    }
    return count;
  }

  /// Parcel p of a step: its round, and how many tiles it has.
  ARLAB_DEVICE int round_of(const Step& step, int p) const {
    return p == ranks() - 1 ? step.k - 1 : step.k;
  }
  ARLAB_DEVICE int tiles_of_parcel(const Step& step, int p) const {
    return tiles_of(call_.chunk[owner_of(step, p)], step, round_of(step, p));
  }
  /// Parcels are handed over after this one.
  ARLAB_DEVICE bool ends_group(int p) const { return p % 2 == 1 || p == ranks() - 1; }

  ARLAB_DEVICE std::uint8_t* slot(int at, int from, int lane, std::uint32_t colour) const {
    return buffer_of(call_.team, at) + call_.team.lanes.slot(colour, lane, from);
  }
  ARLAB_DEVICE std::uint32_t* flag(int at, int from, int lane, std::uint32_t colour) const {
    return reinterpret_cast<std::uint32_t*>(buffer_of(call_.team, at) +
                                            call_.team.lanes.flag(lane, from, colour));
  }

 protected:
  static constexpr unsigned kTileBytes = static_cast<unsigned>(Codec::kTileBytes);
  static constexpr unsigned kSumsAt = static_cast<unsigned>(kLaneWireBytes);  // in a slot

  const Call& call_;
  const unsigned steps_;
};

/// Of the 256 threads that compute. kAligned: Call::aligned, in which ranks may differ.
template <class Codec, class Number, bool kAligned>
class Computing : private LargeCall<Codec> {
 public:
  ARLAB_DEVICE Computing(const Call& call, const Codec& codec, LargeShared& shared)
      : LargeCall<Codec>(call), codec_(codec), shared_(shared) {}

  ARLAB_DEVICE void run() {
    const Step first = step_of(first_number(0), 0);
    fetch(first, 0);
    fetch(first, 1);
    sync_threads(kTakenOver, kBlockThreads);  // the first steps are known
    if (shared_.failed != 0) return;
#pragma unroll 1
    for (unsigned turn = 0;; ++turn) {
      const Step step = shared_.step[turn % kSteps];
      if (step.lane == kNoLane) return;
      if (!wait(step, turn)) return announce();
      const int last = ranks() - 1;
#pragma unroll 1
      for (int p = 0; p < last; ++p) {
        contribute(step, p);
        fetch_after(step, p, turn);
        if (ends_group(p)) hand_over();
      }
      reduce(step);
      fetch_after(step, last, turn);
      gather(step);
      hand_over();
    }
  }

 private:
  using Base = LargeCall<Codec>;
  using Base::call_;
  using Base::ends_group;
  using Base::first_number;
  using Base::first_tile;
  using Base::flag;
  using Base::kSumsAt;
  using Base::kTileBytes;
  using Base::owner_of;
  using Base::rank;
  using Base::ranks;
  using Base::round_of;
  using Base::slot;
  using Base::step_of;
  using Base::tiles_of;
  using Base::tiles_of_parcel;
  using Encoded = typename Codec::Encoded;
  using Packed = typename Codec::Packed;
  using Bits = typename Number::Bits;
  static_assert(kBatch<Codec> == kTiles && kTiles * kTileBytes <= kLaneWireBytes);

  /// False when a rank did not arrive in time, as Exchange::wait().
  ARLAB_DEVICE bool wait(const Step& step, unsigned turn) {
    if (step.k == 0) return true;
    std::uint32_t all = 1;
#pragma unroll 1
    for (int from = 0; from < ranks(); ++from) all &= shared_.arrived[turn % kSteps][from];
    if (all != 0) return true;
    const auto from = static_cast<int>(thread_index());
    if (from < ranks()) {
      wait_for_flag(call_.team, flag(rank(), from, step.lane, step.colour), from, step.colour,
                    shared_.failed);
    }
    sync_threads(kComputing, kThreads);
    return shared_.failed == 0;
  }

  // ---- input

  /// Begins to fetch the input of the parcel after the next.
  ARLAB_DEVICE void fetch_after(const Step& step, int p, unsigned turn) {
    p += 2;
    if (p < ranks()) return fetch(step, p);
    fetch(shared_.step[(turn + 1) % kSteps], p - ranks());
  }
  ARLAB_DEVICE void fetch(const Step& step, int p) {
    if (step.lane != kNoLane) {
      const ElementRange& chunk = call_.chunk[owner_of(step, p)];
      const unsigned first = first_tile(step, round_of(step, p));
      const int tiles = tiles_of_parcel(step, p);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (i < tiles) {
          Words4* to = &shared_.input[fetched_ % 2][i][thread_index()];
          const auto* from =
              global_pointer(static_cast<const Bits*>(call_.input)) + element(chunk, first, i);
          if constexpr (kAligned) {
            fetch_128(to, from);
          } else {
            const Eight<Number> x = load_elements<Number>(from, kPerThread);
#pragma unroll
            for (int j = 0; j < 4; ++j) to->word[j] = x.word[j];
          }
        }
      }
    }
    commit_fetches();
    ++fetched_;
  }
  ARLAB_DEVICE Eight<Number> input(int tile) const {
    const Words4 words = load_128(&shared_.input[used_ % 2][tile][thread_index()]);
    Eight<Number> x;
#pragma unroll
    for (int i = 0; i < 4; ++i) x.word[i] = words.word[i];
    return x;
  }
  ARLAB_DEVICE std::size_t element(const ElementRange& chunk, unsigned first, int i) const {
    const unsigned tile = first + static_cast<unsigned>(i * call_.lanes);
    return chunk.begin + static_cast<std::size_t>(tile) * kTile + thread_index() * kPerThread;
  }
  ARLAB_DEVICE void store(const ElementRange& chunk, unsigned first, int i,
                          const Eight<Number>& x) const {
    auto* to = global_pointer(static_cast<Bits*>(call_.output)) + element(chunk, first, i);
    if constexpr (kAligned) {
      store_whole<Number>(to, x);
    } else {
      store_elements<Number>(to, x, kPerThread);
    }
  }

  // ---- wires

  ARLAB_DEVICE void put(int parcel, int tile, const Encoded& encoded) const {
    auto* wire = reinterpret_cast<std::uint8_t*>(shared_.wire[groups_ % 2][parcel % 2]);
    codec_.store(encoded, wire + static_cast<unsigned>(tile) * kTileBytes, Batch::at());
  }
  ARLAB_DEVICE void announce() {
    ++groups_;
    if (threadIdx.x == 0) store_relaxed(&shared_.groups, groups_);
    arrive_threads(kHandedOver, kBlockThreads);
  }
  ARLAB_DEVICE void hand_over() {
    announce();
    sync_threads(kTakenOver, kBlockThreads);
  }
  ARLAB_DEVICE void load(const std::uint8_t* wires, int tiles, Packed (&packed)[kTiles]) const {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (i < tiles) {
        packed[i] = codec_.load_packed(wires + static_cast<unsigned>(i) * kTileBytes, Batch::at());
      }
    }
  }
  ARLAB_DEVICE Eight<Number> own(int tile) const {
    return codec_.decode(codec_.encode(input(tile), Batch::at()), Batch::at());
  }

  // ---- what a step does

  ARLAB_DEVICE void contribute(const Step& step, int p) {
    const int tiles = tiles_of_parcel(step, p);
    wait_for_fetches<1>();
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (i < tiles) put(p, i, codec_.encode(input(i), Batch::at()));
    }
    ++used_;
  }

  ARLAB_DEVICE void reduce(const Step& step) {
    const int p = ranks() - 1;
    const ElementRange& chunk = call_.chunk[rank()];
    const int tiles = tiles_of_parcel(step, p);
    wait_for_fetches<1>();
    if (tiles > 0) {
      Eight<Number> sum[kTiles];
#pragma unroll 1
      for (int from = 0; from < ranks(); ++from) {
        if (from == rank()) {
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
            if (i < tiles) sum[i] = add_unchecked(sum[i], own(i));
          }
        } else {
          Packed packed[kTiles];
          load(slot(rank(), from, step.lane, step.colour), tiles, packed);
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
            if (i < tiles) {
              sum[i] = add_unchecked(sum[i], codec_.decode_unchecked(codec_.unpack(packed[i])));
            }
          }
        }
      }
      bool non_finite = false;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (i < tiles) non_finite = non_finite || any_non_finite(sum[i].word);
      }
      if (any_of_wave(non_finite)) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          if (i < tiles) sum[i] = checked_sum(step, i);
        }
      }
      const unsigned first = first_tile(step, round_of(step, p));
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (i < tiles) {
          const Encoded encoded = codec_.encode(sum[i], Batch::at());
          put(p, i, encoded);
          store(chunk, first, i, codec_.decode(encoded, Batch::at()));
        }
      }
    }
    ++used_;
  }
  /// Infinities and NaNs, rare, need care at every addition. All lanes of a wave together.
  ARLAB_DEVICE Eight<Number> checked_sum(const Step& step, int tile) const {
    Eight<Number> sum;
#pragma unroll 1
    for (int from = 0; from < ranks(); ++from) {
      const std::uint8_t* wire =
          slot(rank(), from, step.lane, step.colour) + static_cast<unsigned>(tile) * kTileBytes;
      const Eight<Number> x =
          from == rank() ? own(tile) : codec_.decode(codec_.load(wire, Batch::at()), Batch::at());
      sum = add<Number, Codec::kClampsFp16Sums>(sum, x);
    }
    return sum;
  }

  ARLAB_DEVICE void gather(const Step& step) {
    const int round = step.k - 2;
    if (round < 0) return;
#pragma unroll 1
    for (int p = 0; p < ranks() - 1; ++p) {
      const int owner = owner_of(step, p);
      const ElementRange& chunk = call_.chunk[owner];
      const int tiles = tiles_of(chunk, step, round);
      Packed packed[kTiles];
      load(slot(rank(), owner, step.lane, step.colour) + kSumsAt, tiles, packed);
      const unsigned first = first_tile(step, round);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (i < tiles) {
          store(chunk, first, i, codec_.decode(codec_.unpack(packed[i]), Batch::at()));
        }
      }
    }
  }

  const Codec& codec_;
  LargeShared& shared_;
  unsigned fetched_ = 0;  // batches whose fetch has begun
  unsigned used_ = 0;
  unsigned groups_ = 0;  // of parcels, handed over
};

/// Of the 32 threads that serve them.
template <class Codec>
class Serving : private LargeCall<Codec> {
 public:
  ARLAB_DEVICE Serving(const Call& call, LargeShared& shared)
      : LargeCall<Codec>(call),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x) - kThreads) {}

  ARLAB_DEVICE void run() {
    begin();
    std::uint32_t ticket = 0;  // thread 0's
    if (thread_ == 0) ticket = take_ticket(call_.team);
    if (shared_.failed != 0) return;
#pragma unroll 1
    for (unsigned turn = 0;; ++turn) {
      const Step step = shared_.step[turn % kSteps];
      if (step.lane == kNoLane) break;
      prepare(turn, ticket);
      int sent = 0;
#pragma unroll 1
      for (int p = 0; p < ranks(); ++p) {
        if (!ends_group(p)) continue;
        sync_threads(kHandedOver, kBlockThreads);
        if (shared_.failed != 0) return;
        arrive_threads(kTakenOver, kBlockThreads);
#pragma unroll 1
        for (; sent <= p; ++sent) send(step, sent);
        ++groups_;
      }
      if (thread_ == 0) ticket = take_ticket(call_.team);  // under way while the wires are
      end(step);
    }
    if (thread_ == 0) (void)is_last_to_end(call_.team);
  }

 private:
  using Base = LargeCall<Codec>;
  using Base::call_;
  using Base::ends_group;
  using Base::first_number;
  using Base::flag;
  using Base::kSumsAt;
  using Base::kTileBytes;
  using Base::owner_of;
  using Base::rank;
  using Base::ranks;
  using Base::slot;
  using Base::step_of;
  using Base::steps_;
  using Base::tiles_of_parcel;

  /// The colour of the step's lane when the call began. Behind the last step, nobody's: lanes are
  /// left there.
  ARLAB_DEVICE std::uint32_t colour_of(std::uint32_t number) const {
    if (number >= steps_) return 0;
    const auto lane = number % static_cast<unsigned>(call_.lanes);
    return global_pointer(call_.team.lane_colours)[lane];
  }

  ARLAB_DEVICE void begin() {
    if (thread_ < 2) {
      const std::uint32_t number = first_number(static_cast<unsigned>(thread_));
      shared_.step[thread_] = step_of(number, colour_of(number));
    } else if (thread_ == 2) {
      const std::uint32_t aborted = load_relaxed(abort_word(buffer_of(call_.team, rank())));
      shared_.failed = aborted;
      shared_.groups = 0;
      if (aborted != 0) store_relaxed(global_pointer(call_.team.status), aborted);
    }
    sync_threads(kServed, kServing);
    arrive_threads(kTakenOver, kBlockThreads);
  }

  /// While a step is computed: finds out what the one after the next is, and whether the flags of
  /// the next have come, looking until the step's first parcels are complete. Those who compute
  /// wait for flags that come later.
  ARLAB_DEVICE void prepare(unsigned turn, std::uint32_t ticket) {
    std::uint32_t colour = 0;
    if (thread_ == 0) colour = colour_of(ticket);
    const Step next = shared_.step[(turn + 1) % kSteps];
    if (thread_ < ranks() && next.lane != kNoLane) {
      const std::uint32_t* arrived = flag(rank(), thread_, next.lane, next.colour);
      bool has_come = false;
      for (;;) {
        has_come = static_cast<std::int32_t>(load_relaxed(arrived) - next.colour) >= 0;
        if (has_come || load_relaxed(&shared_.groups) != groups_) break;
        pause();
      }
      if (has_come) (void)load_acquire(arrived);
      shared_.arrived[(turn + 1) % kSteps][thread_] = has_come ? 1 : 0;
    }
    if (thread_ == 0) shared_.step[(turn + 2) % kSteps] = step_of(ticket, colour);
  }

  ARLAB_DEVICE void send(const Step& step, int p) {
    const Words4* wire = shared_.wire[groups_ % 2][p % 2];
    const unsigned bytes = static_cast<unsigned>(tiles_of_parcel(step, p)) * kTileBytes;
    if (bytes == 0) return;
    if (p < ranks() - 1) return copy(wire, bytes, step, owner_of(step, p), 0);
#pragma unroll 1
    for (int q = 0; q < p; ++q) copy(wire, bytes, step, owner_of(step, q), kSumsAt);
  }
  ARLAB_DEVICE void copy(const Words4* wire, unsigned bytes, const Step& step, int to,
                         unsigned offset) const {
    std::uint8_t* slot_of_peer = slot(to, rank(), step.lane, step.colour + 1) + offset;
#pragma unroll 3
    for (unsigned at = static_cast<unsigned>(thread_); at < bytes / 16; at += kServing) {
      store_128(slot_of_peer + at * 16, load_128(wire + at));
    }
  }

  /// The step is done: the other ranks are told, and the lane's next step on this one. In its last
  /// step, the lane is left for its next call.
  ARLAB_DEVICE void end(const Step& step) const {
    sync_threads(kServed, kServing);
    if (step.k > call_.lane_rounds) {
      if (thread_ == 0) global_pointer(call_.team.lane_colours)[step.lane] = step.colour;
    } else if (thread_ < ranks()) {
      store_release(flag(thread_, rank(), step.lane, step.colour + 1), step.colour + 1);
    }
  }

  LargeShared& shared_;
  const int thread_;
  unsigned groups_ = 0;
};

template <class Codec, class Number, bool kAligned>
__global__ void __launch_bounds__(kBlockThreads, kResidentBlocks<Codec>)
    two_shot_large_kernel(ARLAB_KERNEL_PARAMETER Call call, ARLAB_KERNEL_PARAMETER Codec codec) {
  wait_for_kernel_before();
  ARLAB_LARGE_SHARED(LargeShared, shared);
  if (threadIdx.x < kThreads) {
    Computing<Codec, Number, kAligned>(call, codec, shared).run();
  } else {
    Serving<Codec>(call, shared).run();
  }
}

}  // namespace

hipError_t launch_two_shot_large(const Call& call, const CodecChoice& codec, DType dtype,
                                 hipStream_t stream) {
  return with_codec(
      codec, dtype,
      [&]<class Codec, class Number>([[maybe_unused]] const Codec& device_codec, Number) {
        if constexpr (kWorksInLanes<Codec, Number>) {
          const auto kernel = call.aligned ? two_shot_large_kernel<Codec, Number, true>
                                           : two_shot_large_kernel<Codec, Number, false>;
          launch_behind(
              kernel,
              LaunchSize{static_cast<unsigned>(call.blocks), kBlockThreads, sizeof(LargeShared)},
              stream, call, device_codec);
        }
      });
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

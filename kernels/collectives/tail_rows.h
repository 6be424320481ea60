// A tail behind a collective, in a kernel of its own: a block for each row.
#pragma once

#include "kernels/codecs/device_codec.h"
#include "kernels/collectives/tail.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Packs of a row that a thread has in registers, at most. A row of more is read twice.
inline constexpr int kMostPacks = 8;
/// Trees of the longest row, whose blocks of threads end within a tree.
inline constexpr unsigned kMostTrees = 8192;

/// Lanes that have a pack of a row, and lanes between them.
ARLAB_HOST_DEVICE constexpr unsigned lanes_of_row(const TailSteps& steps, unsigned hidden) {
  const unsigned packs = (hidden + kOfLane - 1) / kOfLane;
  return packs / steps.threads * steps.trees() * kTreeLanes + packs % steps.threads;
}

/// Whether a codec can encode the rows in their kernel: their threads are those of its tiles.
constexpr bool encodes_rows(const TailSteps& steps, const TailCall& tail) {
  return steps.threads % kTreeLanes == 0 && tail.hidden % kPerThread == 0 &&
         tail.hidden <= kMostPacks * kTile && (tail.elements != kTile || tail.hidden == kTile);
}
/// Rows are encoded behind it, or in steps of the tail.
struct NoCodec {};

/// The packs of a row, by lanes of trees: a block of threads that ends within a tree leaves its last lanes empty.
template <class Element>
class TailRow {
 public:
  using Bits = typename Element::Bits;

  ARLAB_DEVICE TailRow(const TailCall& tail, const TailSteps& steps)
      : tail_(tail), steps_(steps), begin_(std::size_t{gridDim.x - 1 - blockIdx.x} * tail.hidden) {}

  ARLAB_DEVICE Pack8<Element> load(const void* tensor, unsigned lane) const {
    const auto* row = global_pointer(static_cast<const Bits*>(tensor)) + begin_;
    return load_elements<Element>(row + at(lane), count(lane));
  }
  ARLAB_DEVICE Pack8<Element> load_residual(unsigned lane) const {
    if (!steps_.adds_residual) return {};
    return load(tail_.residual, lane);
  }
  ARLAB_DEVICE Pack8<Element> load_weights(unsigned lane) const {
    return arlab::kernels::load_weights<Element>(steps_, tail_, at(lane), count(lane));
  }
  /// Returns the normalized elements.
  ARLAB_DEVICE Pack8<Element> store(const RowPack<Element>& x, const Pack8<Element>& weights,
                                    const RowRoot& root, unsigned lane) const {
    if (steps_.adds_residual) store(tail_.residual_out, x.of_dtype, lane);
    const Pack8<Element> y = normalized(steps_, tail_, x, weights, root);
    store(tail_.normalized, y, lane);
    return y;
  }
  /// The bits of the largest magnitude, but for NaNs.
  ARLAB_DEVICE std::uint32_t largest_of(const Pack8<Element>& y, unsigned lane) const {
    const Float8 x = to_floats(y);
    std::uint32_t largest = 0;
#pragma unroll
    for (std::size_t i = 0; i < kPerThread; ++i) {
      const std::uint32_t own = float_bits(magnitude_of(x.value[i]));
      if (i < count(lane) && x.value[i] == x.value[i]) largest = max_of(largest, own);
    }
    return largest;
  }
  /// Returns what store_codes() takes. All threads call it, each with its largest magnitude.
  ARLAB_DEVICE float fp8_scale(std::uint32_t largest) const {
    if (steps_.fp8 == TailSteps::Fp8::given) return tail_.inverse;
    const auto larger = [](std::uint32_t a, std::uint32_t b) { return max_of(a, b); };
    const float scale = Fp8RowsFormat::scale_of(float_of(group_reduce(largest, kThreads, larger)));
    std::uint8_t* const scales = tail_.wire + tail_.elements;
    if (thread_index() == 0)
      store_word(scales + begin_ / tail_.hidden * sizeof(float), float_bits(scale));
    return scale;
  }
  ARLAB_DEVICE void store_codes(const Pack8<Element>& y, float scale, unsigned lane) const {
    store_fp8(steps_, y, scale, tail_.wire + begin_ + at(lane), count(lane));
  }
  /// Groups of a codec are whole lanes of a row, which is as a message of its own for what is exchanged among them.
  template <class Codec>
  ARLAB_DEVICE void encode(const Codec& codec, const Pack8<Element>& y, unsigned lane) const {
    const Position in_row = {tail_.hidden, std::size_t{lane} * kPerThread};
    const Position on_wire = {tail_.elements, begin_ + in_row.first};
    typename Codec::Encoded encoded;
    if constexpr (UsesContext<Codec, Element>) {
      encoded = codec.encode(y, in_row, {.position = begin_});
    } else {
      encoded = codec.encode(y, in_row);
    }
    if (in_row.count() != 0) codec.store(encoded, tail_.wire, on_wire);
  }

 private:
  ARLAB_DEVICE std::size_t at(unsigned lane) const {
    const unsigned of_block = steps_.trees() * kTreeLanes;
    const unsigned thread = lane % of_block;
    if (thread >= steps_.threads) return tail_.hidden;
    return std::size_t{lane / of_block * steps_.threads + thread} * kPerThread;
  }
  ARLAB_DEVICE std::size_t count(unsigned lane) const {
    return Position{tail_.hidden, at(lane)}.count();
  }
  ARLAB_DEVICE void store(void* tensor, const Pack8<Element>& x, unsigned lane) const {
    auto* row = global_pointer(static_cast<Bits*>(tensor)) + begin_;
    store_elements<Element>(row + at(lane), x, count(lane));
  }

  const TailCall& tail_;
  const TailSteps steps_;
  const std::size_t begin_;  // element of the tensor; the last rows first, whose sums are in caches
};

/// kPacks: of each thread, at most; 0: any number. Residual and weights are of kernels before the collective, and are on
/// their way while that ends.
template <class Element, int kPacks, class Codec = NoCodec>
ARLAB_DEVICE void tail_rows(const TailCall& tail, const TailSteps& steps,
                            [[maybe_unused]] const Codec& codec = {}) {
  if constexpr (!std::is_same_v<Codec, NoCodec>) begin_codec(codec);
  constexpr int kHeld = kPacks == 0 ? 1 : kPacks;
  constexpr unsigned kTrees = kPacks == 0 ? kMostTrees : kHeld * kThreads / kTreeLanes;
  ARLAB_SHARED_ARRAY(float, of_tree, kTrees);
  const TailRow<Element> row(tail, steps);
  const unsigned lanes = lanes_of_row(steps, tail.hidden);
  Pack8<Element> residual[kHeld];
  Pack8<Element> weights[kHeld];
  RowPack<Element> x[kHeld];
  const auto lane_of = [](int i) ARLAB_INLINED_LAMBDA {
    return static_cast<unsigned>(i) * kThreads + thread_index();
  };
  if constexpr (kPacks != 0) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      residual[i] = row.load_residual(lane_of(i));
      weights[i] = row.load_weights(lane_of(i));
    }
  }
  pdl_wait();
  const auto add_squares = [&](const Float8& value, unsigned lane) ARLAB_INLINED_LAMBDA {
    if (!steps.normalizes) return;
    const float sum = tree_of_lanes(squares_of(value));
    if (lane % kTreeLanes == 0 && lane < lanes) of_tree[lane / kTreeLanes] = sum;
  };
  const auto added = [&](unsigned lane) ARLAB_INLINED_LAMBDA {
    return add_residual<Element>(steps, row.load(tail.sums, lane), row.load_residual(lane));
  };
  if constexpr (kPacks != 0) {
    Pack8<Element> sums[kHeld];
#pragma unroll
    for (int i = 0; i < kPacks; ++i) sums[i] = row.load(tail.sums, lane_of(i));
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      x[i] = add_residual<Element>(steps, sums[i], residual[i]);
      add_squares(x[i].value, lane_of(i));
    }
  } else {
#pragma unroll 1
    for (unsigned first = 0; first < lanes; first += kThreads) {
      const unsigned lane = first + thread_index();
      add_squares(added(lane).value, lane);
    }
  }
  __syncthreads();
  RowRoot root = {1.0f, 1.0f};
  if (steps.normalizes) {
    const unsigned trees = (lanes + kTreeLanes - 1) / kTreeLanes;
    root = root_of(steps, tail, sum_of_trees(steps, trees, [&](unsigned tree) ARLAB_INLINED_LAMBDA {
                     return of_tree[tree];
                   }));
  }
  constexpr bool kEncodes = !std::is_same_v<Codec, NoCodec>;
  Pack8<Element> y[kHeld];
  std::uint32_t largest = 0;
  if constexpr (kPacks != 0) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      y[i] = row.store(x[i], weights[i], root, lane_of(i));
      if constexpr (kEncodes) row.encode(codec, y[i], lane_of(i));
      if (steps.fp8 == TailSteps::Fp8::of_row)
        largest = max_of(largest, row.largest_of(y[i], lane_of(i)));
    }
  } else {
#pragma unroll 1
    for (unsigned first = 0; first < lanes; first += kThreads) {
      const unsigned lane = first + thread_index();
      y[0] = row.store(added(lane), row.load_weights(lane), root, lane);
      largest = max_of(largest, row.largest_of(y[0], lane));
    }
  }
  if (steps.fp8 == TailSteps::Fp8::none) return;
  const float scale = row.fp8_scale(largest);
  if constexpr (kPacks != 0) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) row.store_codes(y[i], scale, lane_of(i));
  } else {
#pragma unroll 1
    for (unsigned first = 0; first < lanes; first += kThreads) {
      const unsigned lane = first + thread_index();
      row.store_codes(row.load(tail.normalized, lane), scale, lane);
    }
  }
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

// A tail in the kernel of a collective: sums stay in registers, and blocks tell each other the sums of squares of their rows.
#pragma once

#include "kernels/collectives/call.h"
#include "kernels/collectives/tail.h"
#include "kernels/transport/row_sums.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

/// Sums that are the output as they are.
struct NoTail {
  static constexpr bool kIsThere = false;
};

/// A tail as a parameter of kernels.
struct WithTail {
  static constexpr bool kIsThere = true;
  const TailCall& call;
  TailSteps steps;
};

/// Rows that a tile has a part of, and their trees, at most: of rows that are not whole trees (has_row_sums()).
inline constexpr unsigned kLeastHidden = 512;
inline constexpr unsigned kMostHidden = 8192;
inline constexpr unsigned kMostTileTrees = 96;

/// Whether sums of squares of such rows can be told: rows are whole packs, blocks of threads whole trees.
constexpr bool has_row_sums(const TailSteps& steps, unsigned hidden) {
  if (!steps.normalizes) return hidden % kPerThread == 0;
  return hidden % kPerThread == 0 && steps.threads % kTreeLanes == 0 && hidden >= kLeastHidden &&
         (steps.has_whole_trees || hidden <= kMostHidden);
}
/// Elements whose squares are one word.
ARLAB_HOST_DEVICE constexpr unsigned elements_of_word(const TailSteps& steps) {
  return steps.has_whole_trees ? kTreeElements : kOfLane;
}

struct FusedTailMemory {
  float of_tree[kMostTileTrees];
};

/// All threads of a block use it together, for one tile. The elements of a thread are one of SPEC's threads: rows and tiles
/// begin at a multiple of 8. kOneWaits: where a tile is of one row, one wave waits for its words, as fewer loads of all
/// blocks then meet in the cache.
template <class Element, bool kOneWaits>
class FusedTail {
 public:
  ARLAB_DEVICE FusedTail(const Team& team, const WithTail& tail, FusedTailMemory& memory,
                         std::uint32_t& failed)
      : tail_(tail.call),
        steps_(tail.steps),
        memory_(memory),
        sums_(team, static_cast<unsigned>(tail.call.elements / elements_of_word(tail.steps)),
              failed) {}

  /// Behind pdl_wait(). What is loaded is still on its way.
  ARLAB_DEVICE void begin() {
    if (steps_.normalizes) sums_.begin();
  }
  ARLAB_DEVICE Pack8<Element> load_residual(const Tile& tile) const {
    if (!steps_.adds_residual) return {};
    return tile.load<Element>(tail_.residual);
  }
  ARLAB_DEVICE Pack8<Element> load_weights(const Tile& tile) {
    row_ = first_of(tile) / tail_.hidden;  // here, where nothing waits for the division
    return arlab::kernels::load_weights<Element>(
        steps_, tail_, first_of(tile) - row_ * tail_.hidden, tile.at().count());
  }

  /// Adds the residual, and tells the sum of squares.
  ARLAB_DEVICE RowPack<Element> add(const Tile& tile, const Pack8<Element>& sum,
                                    const Pack8<Element>& residual) const {
    const RowPack<Element> x = add_residual<Element>(steps_, sum, residual);
    if (!steps_.normalizes) return x;
    const bool is_there = tile.at().count() != 0;
    float squares = is_there ? squares_of(x.value) : 0.0f;
    const unsigned word = first_of(tile) / elements_of_word(steps_);
    if (steps_.has_whole_trees) {
      squares = tree_of_lanes(squares);
      if (is_there && thread_index() % kTreeLanes == 0) sums_.tell(word, squares);
    } else if (is_there) {
      sums_.tell(word, squares);
    }
    return x;
  }
  /// Waits for the rows' sums of squares, and stores what comes out.
  ARLAB_DEVICE void finish(const Tile& tile, const RowPack<Element>& x,
                           const Pack8<Element>& weights) const {
    if (steps_.adds_residual) tile.store(tail_.residual_out, x.of_dtype);
    RowRoot root = {1.0f, 1.0f};
    if (steps_.normalizes) {
      root = root_of(steps_, tail_,
                     steps_.has_whole_trees ? squares_of_trees(tile) : squares_of_packs(tile));
    }
    const Pack8<Element> y = normalized(steps_, tail_, x, weights, root);
    tile.store(tail_.normalized, y);
    if (steps_.fp8 == TailSteps::Fp8::given) {
      store_fp8(steps_, y, tail_.inverse, tail_.wire + first_of(tile), tile.at().count());
    }
  }
  /// Behind add().
  ARLAB_DEVICE void end() const {
    if (steps_.normalizes) sums_.end();
  }

 private:
  ARLAB_DEVICE static unsigned first_of(const Tile& tile) {
    return static_cast<unsigned>(tile.begin) + thread_index() * kOfLane;
  }
  ARLAB_DEVICE unsigned last_row_to(std::size_t end) const {
    return static_cast<unsigned>((end < tail_.elements ? end : tail_.elements) - 1) / tail_.hidden;
  }
  ARLAB_DEVICE unsigned trees_of_row() const {
    return (tail_.hidden + kTreeElements - 1) / kTreeElements;
  }

  /// The thread's, of rows that a wave goes through together; of_tree() counts their trees one after the other.
  template <class OfTree>
  ARLAB_DEVICE float sum_of_own_row(unsigned first, unsigned last, OfTree of_tree) const {
    float squares = 1.0f;
#pragma unroll 1
    for (unsigned row = first; row <= last; ++row) {
      const unsigned begin = (row - first) * trees_of_row();
      const float of_row =
          sum_of_trees(steps_, trees_of_row(),
                       [&](unsigned tree) ARLAB_INLINED_LAMBDA { return of_tree(begin + tree); });
      if (row == row_) squares = of_row;
    }
    return squares;
  }

  ARLAB_DEVICE float squares_of_trees(const Tile& tile) const {
    if (!kOneWaits || tail_.hidden % kTile != 0) return squares_of_wave(tile);
    if (thread_index() < kMostLanes) {
      const float squares = squares_of_wave(tile);
      if (thread_index() == 0) memory_.of_tree[0] = squares;
    }
    __syncthreads();
    return memory_.of_tree[0];
  }
  /// The lanes of a tree have one row. A wave of 64 lanes has two at most, and goes through both.
  ARLAB_DEVICE float squares_of_wave(const Tile& tile) const {
    const std::size_t begin =
        tile.begin + thread_index() / kMostLanes * kMostLanes * std::size_t{kPerThread};
    if (begin >= tail_.elements) return 1.0f;
    const bool is_tree = kMostLanes == kTreeLanes;
    const unsigned first = is_tree ? row_ : static_cast<unsigned>(begin) / tail_.hidden;
    const unsigned last = is_tree ? row_ : last_row_to(begin + kMostLanes * kPerThread);
    return sum_of_own_row(first, last, [&](unsigned tree) ARLAB_INLINED_LAMBDA {
      return sums_.wait(first * trees_of_row() + tree);
    });
  }

  /// The trees of all rows that the tile has a part of, one after the other; each wave makes some of them.
  ARLAB_DEVICE float squares_of_packs(const Tile& tile) const {
    const unsigned first = static_cast<unsigned>(tile.begin) / tail_.hidden;
    const unsigned last = last_row_to(tile.begin + tile.elements);
    const unsigned packs = tail_.hidden / kOfLane;
    const unsigned lane = thread_index() % kTreeLanes;
    constexpr unsigned kAtOnce = kThreads / kTreeLanes;
    const unsigned trees = (last + 1 - first) * trees_of_row();
#pragma unroll 1
    for (unsigned begin = 0; begin < trees; begin += kAtOnce) {
      const unsigned tree = begin + thread_index() / kTreeLanes;
      const unsigned pack = tree % trees_of_row() * kTreeLanes + lane;
      const unsigned row = first + tree / trees_of_row();
      const float sum =
          tree_of_lanes(tree < trees && pack < packs ? sums_.wait(row * packs + pack) : 0.0f);
      if (tree < trees && lane == 0) memory_.of_tree[tree] = sum;
    }
    __syncthreads();
    const float squares = sum_of_own_row(
        first, last, [&](unsigned tree) ARLAB_INLINED_LAMBDA { return memory_.of_tree[tree]; });
    __syncthreads();  // before another tile's trees are stored there
    return squares;
  }

  const TailCall& tail_;
  const TailSteps steps_;
  FusedTailMemory& memory_;
  RowSums sums_;
  unsigned row_ = 0;  ///< the thread's
};

/// Work of a block on the sums of its tile. All threads call it together.
template <class Element, class Tail, bool kOneWaits = false>
class TileSums {
 public:
  template <class Memory>
  ARLAB_DEVICE TileSums(const Call& call, const Tail&, Memory&) : call_(call) {}
  ARLAB_DEVICE void begin() {}
  ARLAB_DEVICE void load(const Tile&) {}
  ARLAB_DEVICE void take(const Tile& tile, const Pack8<Element>& sum) const {
    tile.store(call_.output, sum);
  }

 private:
  const Call& call_;
};
template <class Element, bool kOneWaits>
class TileSums<Element, WithTail, kOneWaits> {
 public:
  template <class Memory>
  ARLAB_DEVICE TileSums(const Call& call, const WithTail& tail, Memory& memory)
      : tail_(call.team, tail, memory.tail, memory.failed) {}

  ARLAB_DEVICE void begin() { tail_.begin(); }
  /// Behind pdl_wait(), best once the tile is sent: what it needs is on its way while ranks exchange.
  ARLAB_DEVICE void load(const Tile& tile) {
    residual_ = tail_.load_residual(tile);
    weights_ = tail_.load_weights(tile);
  }
  ARLAB_DEVICE void take(const Tile& tile, const Pack8<Element>& sum) const {
    const RowPack<Element> x = tail_.add(tile, sum, residual_);
    tail_.end();  // while other blocks' sums are on their way
    tail_.finish(tile, x, weights_);
  }

 private:
  FusedTail<Element, kOneWaits> tail_;
  Pack8<Element> residual_;
  Pack8<Element> weights_;
};

/// `Memory` with room for a tail.
template <class Memory, class Tail>
struct MemoryWith : Memory {};
template <class Memory>
struct MemoryWith<Memory, WithTail> : Memory {
  FusedTailMemory tail;
};

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels

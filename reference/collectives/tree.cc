// tree: sums go up a binary tree and the result comes down again; two trees share the work.
//
//   Ranks stand in a tree as in a heap: below position p stand 2 p + 1 and 2 p + 2. In the first
//   tree rank r has position r, in the second N - 1 - r, so that a rank with children in one tree
//   is a leaf in the other, and every rank sends and receives about as much. Each tree takes half
//   of every chunk's range; micro-chunks follow each other through both.
//
//   up      a rank adds what its children sent to its own value (own, left, right), encodes the sum
//           and sends it to its parent; depth d sends in step (micro-chunk) + (height - d)
//   down    the root encodes the result once; every rank passes the bytes on unchanged
//
// A sum starts from the own value, exact unless own = encoded. All ranks decode the same bytes.
// Volume 2 (N - 1) payloads, 2 log2 N latencies, log2 N roundings of partial sums.
// Source: NCCL's double binary tree (Sanders, Speck, Traff 2009).

#include "reference/collectives/schedule_builder.h"

namespace arlab {
namespace {

const Field kTreeOwn = own_option("exact");
const Field kTreeMicroChunks = {.name = "micro_chunks",
                                .kind = Integer{1, 4096},
                                .otherwise = std::uint64_t{4},
                                .help = "cut each chunk into N micro-chunks",
                                .trials = {1, 2, 8, 16}};

std::uint32_t depth_of(Rank position) {
  std::uint32_t depth = 0;
  for (; position > 0; position = (position - 1) / 2) ++depth;
  return depth;
}

/// One micro-chunk's way through one tree.
class Climb {
 public:
  Climb(ScheduleBuilder& s, Chunk range, bool mirrored, bool own_encoded, std::uint32_t first_step)
      : s_(s),
        chunk_(s.add_chunk(range)),
        mirrored_(mirrored),
        own_encoded_(own_encoded),
        first_step_(first_step),
        height_(depth_of(s.world_size() - 1)) {}

  void write() {
    const Value sum = up(0);
    s_.at_step(first_step_ + height_);
    down(0, s_.encode(sum));
  }

 private:
  Rank rank_at(Rank position) const {
    return mirrored_ ? s_.world_size() - 1 - position : position;
  }

  /// The sum of a position and all below it, on its rank.
  Value up(Rank position) {
    const std::uint32_t step = first_step_ + height_ - depth_of(position);
    std::vector<Value> addends;
    for (const Rank child : {2 * position + 1, 2 * position + 2}) {
      if (child >= s_.world_size()) break;
      const Value partial = up(child);
      s_.at_step(step - 1);
      addends.push_back(s_.send(s_.encode(partial), rank_at(position)));
    }
    s_.at_step(step);
    const Value input = s_.input(rank_at(position), chunk_);
    if (addends.empty()) return input;  // a leaf's is encoded to be sent, whatever the option
    addends.insert(addends.begin(), own_encoded_ ? s_.encode(input) : input);
    return s_.reduce(addends, Start::first);
  }

  void down(Rank position, Value result) {
    s_.output(result);
    for (const Rank child : {2 * position + 1, 2 * position + 2}) {
      if (child >= s_.world_size()) break;
      s_.at_step(first_step_ + height_ + depth_of(position));
      down(child, s_.send(result, rank_at(child)));
    }
  }

  ScheduleBuilder& s_;
  ChunkId chunk_;
  bool mirrored_;
  bool own_encoded_;
  std::uint32_t first_step_;
  std::uint32_t height_;
};

Schedule tree(const ScheduleRequest& request) {
  ScheduleBuilder s("tree", request);
  const bool own_encoded = text_of(kTreeOwn, request.options) == "encoded";
  const auto micro_chunks =
      static_cast<std::uint32_t>(integer_of(kTreeMicroChunks, request.options));
  const std::vector<Chunk> halves = s.split(2);
  for (const std::size_t half : {std::size_t{0}, std::size_t{1}}) {
    if (halves[half].size() == 0) continue;
    const std::vector<Chunk> micro = s.split(halves[half], micro_chunks);
    for (std::uint32_t m = 0; m < micro_chunks; ++m) {
      if (micro[m].size() == 0) continue;
      Climb(s, micro[m], half == 1, own_encoded, m).write();
    }
  }
  return s.finish();
}

}  // namespace

Algorithm tree_algorithm() {
  return {.name = "tree",
          .summary = "two binary trees: sums up, result down, in micro-chunks",
          .source = "NCCL double binary tree",
          .options = {kTreeOwn, kTreeMicroChunks},
          .write = tree};
}

}  // namespace arlab

// A collective as programs ask for it, and what it is for so many ranks: codecs that are found, a schedule that is proved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "reference/collectives/algorithm.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/schedule.h"
#include "reference/collectives/sum.h"
#include "reference/dtype.h"
#include "reference/tails/tail.h"

namespace arlab {

/// One collective. Of the same team, all ranks make the same calls in the same order.
struct CollectiveRequest {
  std::string algorithm;  ///< an algorithm of the reference
  std::string codec;
  DType dtype = DType::fp16;
  std::size_t elements = 0;       ///< per rank
  AlgorithmOptions options = {};  ///< options of the algorithm
  /// A schedule of one's own, for these ranks and elements; `algorithm` then is just its name.
  std::shared_ptr<const Schedule> schedule = nullptr;
  std::uint64_t seed = 0;  ///< for codecs with random numbers
  Sum sum = {};            ///< native or fp32; its `own` is an option of the algorithm
  int root =
      0;  ///< in a broadcast: all get its tensor; it takes rank 0's part, and rank 0 the root's

  /// An all-reduce's tail: what becomes of rows of its sums (reference/tails/SPEC.md, "What is computed"), on every
  /// rank. Its `normalized` is the output.
  std::optional<Tail> tail = {};
  /// Owners of rows make it, and send what comes out, which is then the output of all (TailPlacement).
  bool tail_at_owners = false;

  bool operator==(const CollectiveRequest&) const = default;
};

struct ResolvedCollective {
  CollectiveRequest request;  ///< its codec is the outer one; the inner one is an option
  CodecPtr outer;
  CodecPtr inner;
  Schedule schedule;

  Codecs codecs() const { return {*outer, *inner}; }
  /// In words: "qr-q4+ag:fp16, sum fp32".
  std::string codecs_and_sum() const;
};

/// Throws InvalidInput for names that are not known, a dtype that a codec does not take, and a root that is no rank; also for a
/// schedule of one's own that is wrong, cuts a codec's blocks or is for other ranks or elements.
ResolvedCollective resolve(const CollectiveRequest& asked, Rank ranks);

}  // namespace arlab

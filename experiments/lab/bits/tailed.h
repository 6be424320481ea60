// The tail behind the all-reduce of a question: --tail, --tail-place, --residual, --norm-weight.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/lab/bits/reduction.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/tailed.h"
#include "reference/tails/tail.h"

namespace arlab::lab {

/// The tail behind an all-reduce, and its place.
struct TailPlaceOptions {
  std::string tail;
  std::string tail_place;     ///< empty: after
  std::string tail_residual;  ///< empty: stays

  bool is_set() const { return !tail.empty(); }
  /// `hidden`: elements of a row where the text does not say; 0: it has to. Nothing where there is no tail.
  std::optional<Tail> parse(std::size_t hidden = 0) const;
  TailPlacement placement() const;
};
std::vector<BoundField> fields(TailPlaceOptions& options);
BoundField tail_field(std::string& tail);
BoundField tail_place_field(std::string& place);

struct TailOptions : TailPlaceOptions {
  std::string residual;
  std::string norm_weight;
  std::string tail_out;

  /// Runs an all-reduce with the tail, and writes what that makes to tail_out if it is named; its figures, of one rank's rows, against
  /// the exact result. `schedule` is the all-reduce alone. Throws InvalidInput: which option, what is allowed.
  std::vector<Figure> apply(const Tail& tail, const Schedule& schedule, const Codecs& codecs,
                            const Tensor& inputs, const ExactResult& exact,
                            const ExecuteOptions& options) const;
};
std::vector<BoundField> fields(TailOptions& options);

}  // namespace arlab::lab

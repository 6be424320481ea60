// A collective as a question names it: an algorithm with its options, or a schedule.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "experiments/lab/result.h"
#include "reference/codecs/codec.h"
#include "reference/collectives/algorithm.h"
#include "reference/field.h"

namespace arlab::lab {

/// One of three says what runs: an algorithm, the file of a schedule, or a schedule.
struct CollectiveSpec {
  std::string algorithm = {};
  AlgorithmOptions options = {};
  std::string schedule_file = {};
  std::shared_ptr<const Schedule> given = {};

  bool has_schedule() const { return given != nullptr || !schedule_file.empty(); }
  bool is_named() const { return has_schedule() || !algorithm.empty(); }
  /// The algorithm, or the schedule's name for people.
  const std::string& name() const;
  /// Returns the inner codec of the options; empty: it is the codec of all others.
  std::string inner_codec() const { return options.inner_codec().value_or(""); }

  /// The schedule asked for, checked: correct, for this world size and element count.
  /// `world_size` 0 and `elements` 0 take what a schedule says. `alignment`: of both codecs.
  Schedule make(Rank world_size, std::uint64_t elements, std::uint64_t alignment) const;

  /// The inner codec that the options name, else the outer one.
  CodecPtr inner(const CodecPtr& outer) const;

  /// Returns the request of the algorithm and its options.
  ScheduleRequest request(Rank world_size, std::uint64_t elements, std::uint64_t alignment) const;

  /// Throws InvalidInput when options are set that a schedule leaves no room for.
  void require_no_algorithm_options() const;

  /// Group size for volume classes: the one asked for, else the algorithm's default.
  Rank volume_group_size(Rank world_size) const;

 private:
  Schedule as_given(Rank world_size, std::uint64_t elements, std::uint64_t alignment) const;
  void require_group_size_divides(Rank world_size) const;
};

/// The schedule of an algorithm as a file of it is to be: messages that an inner codec may have are marked, whether one is named or
/// not, so that the file takes one, too.
Schedule marked_schedule(const std::string& algorithm, const ScheduleRequest& request);

/// Returns the options that are set and have no figures of their own: all but inner_codec and group_size.
std::vector<Figure> option_figures(const AlgorithmOptions& options);

/// algorithm, schedule, and the options of all algorithms.
std::vector<BoundField> fields(CollectiveSpec& spec);

/// The first of fp16, bf16 and fp32 that the codec and the others take, where there are any; if there is none, one that the codec takes.
DType default_dtype(const Codec& codec, std::initializer_list<const Codec*> others = {});

}  // namespace arlab::lab

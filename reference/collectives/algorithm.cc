#include "reference/collectives/algorithm.h"

#include <algorithm>

// The algorithms: one line each. A function `Algorithm NAME_algorithm()` in the file NAME.cc.
#define ARLAB_ALGORITHMS(X) \
  X(one_shot)               \
  X(two_shot)               \
  X(ring)                   \
  X(hierarchical)           \
  X(hierarchical_pipelined) \
  X(halving_doubling)       \
  X(tree)                   \
  X(all_to_all)             \
  X(reduce_scatter)         \
  X(all_gather)             \
  X(broadcast)

namespace arlab {

#define ARLAB_DECLARE(name) Algorithm name##_algorithm();
ARLAB_ALGORITHMS(ARLAB_DECLARE)
#undef ARLAB_DECLARE

const std::vector<Algorithm>& all_algorithms() {
  static const std::vector<Algorithm> algorithms = {
#define ARLAB_CALL(name) name##_algorithm(),
      ARLAB_ALGORITHMS(ARLAB_CALL)
#undef ARLAB_CALL
  };
  return algorithms;
}

const Algorithm& find_algorithm(std::string_view name) {
  std::string known;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.name == name) return algorithm;
    if (!known.empty()) known += ", ";
    known += algorithm.name;
  }
  fail("unknown algorithm '{}': known are {}", name, known);
}

namespace {

void check_has_option(const Algorithm& algorithm, bool is_set, std::string_view option) {
  if (!is_set) return;
  std::string known;
  for (const AlgorithmOption& has : algorithm.options) {
    if (has.name == option) return;
    if (!known.empty()) known += ", ";
    known += has.name;
  }
  fail("algorithm {} has no option {}: it has {}", algorithm.name, option, known);
}

}  // namespace

Schedule make_schedule(std::string_view name, const ScheduleRequest& request) {
  const Algorithm& algorithm = find_algorithm(name);
  check_has_option(algorithm, request.options.own.has_value(), "own");
  check_has_option(algorithm, request.options.forward.has_value(), "forward");
  check_has_option(algorithm, request.options.combine.has_value(), "combine");
  check_has_option(algorithm, request.options.micro_chunks.has_value(), "micro-chunks");
  check_has_option(algorithm, request.options.inner_codec.has_value(), "inner-codec");
  ScheduleRequest sized = request;
  sized.only_size = &sized.expected;
  algorithm.write(sized);
  sized.only_size = nullptr;
  return algorithm.write(sized);
}

CodecRole inner_role(const AlgorithmOptions& options) {
  return options.inner_codec ? CodecRole::inner : CodecRole::outer;
}

Rank default_group_size(Rank world_size) {
  for (Rank groups = 2; groups <= world_size; ++groups) {
    if (world_size % groups == 0) return world_size / groups;
  }
  return 1;
}

}  // namespace arlab

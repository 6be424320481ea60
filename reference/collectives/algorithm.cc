#include "reference/collectives/algorithm.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <system_error>

#include "reference/collectives/check.h"
#include "reference/collectives/schedule_json.h"
#include "reference/words.h"

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

namespace {

const std::vector<Algorithm>& built_in() {
  static const std::vector<Algorithm> algorithms = {
#define ARLAB_CALL(name) name##_algorithm(),
      ARLAB_ALGORITHMS(ARLAB_CALL)
#undef ARLAB_CALL
  };
  return algorithms;
}

/// Those that were made known at run time. Never forgotten: who has found one may still use it.
struct Registered {
  std::mutex mutex;
  std::deque<Algorithm> all;
  std::vector<const Algorithm*> known;  // the last of every name
};
Registered& registered() {
  static Registered instance;
  return instance;
}

/// What a file's algorithm is known by.
struct Reading {
  std::string path;
  std::filesystem::file_time_type time;
  std::uintmax_t bytes;
  Algorithm algorithm;
};

Algorithm algorithm_of(const std::string& path,
                       const std::shared_ptr<const WrittenSchedule>& file) {
  const Schedule& written = file->as_written();
  Algorithm algorithm;
  algorithm.name = path;
  algorithm.summary =
      fmt::format("schedule '{}' for {} ranks", written.algorithm, written.world_size);
  algorithm.source = path;
  algorithm.collective = written.collective;
  if (std::ranges::any_of(written.ops, [](const Op& op) { return op.codec == CodecRole::inner; })) {
    algorithm.options.push_back({"inner-codec", "the codec"});
  }
  algorithm.write = [path, file](const ScheduleRequest& request) {
    const Rank ranks = file->as_written().world_size;
    if (request.world_size != ranks) {
      fail("{}: for {} ranks, not {}", path, ranks, request.world_size);
    }
    if (request.only_size != nullptr) {  // at most
      const Schedule& written = file->as_written();
      *request.only_size = {written.ops.size(), written.addends.size(), written.outputs.size()};
      return Schedule();
    }
    try {
      Schedule schedule = file->at(request.elements, request.alignment);
      require_correct(schedule);
      return schedule;
    } catch (const InvalidInput& error) {
      fail("{}: {}", path, error.what());
    }
  };
  return algorithm;
}

const Algorithm& algorithm_of_file(const std::string& path) {
  static std::mutex mutex;
  static std::deque<Reading> readings;  // all of them: who has found one may still use it
  std::error_code none;                 // what cannot be read says so below
  const auto time = std::filesystem::last_write_time(path, none);
  const std::uintmax_t bytes = none ? 0 : std::filesystem::file_size(path, none);
  const std::scoped_lock lock(mutex);
  const auto known = std::find_if(readings.rbegin(), readings.rend(),
                                  [&](const Reading& reading) { return reading.path == path; });
  if (!none && known != readings.rend() && known->time == time && known->bytes == bytes) {
    return known->algorithm;
  }
  const auto file = std::make_shared<const WrittenSchedule>(read_schedule(path));
  readings.push_back({path, time, bytes, algorithm_of(path, file)});
  return readings.back().algorithm;
}

}  // namespace

bool is_schedule_file(std::string_view algorithm) {
  return algorithm.ends_with(".json") || algorithm.ends_with(".xml");
}

std::vector<std::reference_wrapper<const Algorithm>> all_algorithms() {
  std::vector<std::reference_wrapper<const Algorithm>> algorithms(built_in().begin(),
                                                                  built_in().end());
  Registered& r = registered();
  const std::scoped_lock lock(r.mutex);
  for (const Algorithm* algorithm : r.known) algorithms.push_back(*algorithm);
  return algorithms;
}

void register_algorithm(Algorithm algorithm) {
  require_plain_name("algorithm", algorithm.name);
  if (is_schedule_file(algorithm.name)) {
    fail("algorithm {}: a name that ends with .json is that of a file", quote(algorithm.name));
  }
  for (const Algorithm& other : built_in()) {
    if (other.name == algorithm.name) fail("algorithm '{}' is built in", other.name);
  }
  algorithm.write = [name = algorithm.name,
                     write = std::move(algorithm.write)](const ScheduleRequest& request) {
    // The whole of it, also where a part would do: who writes it need not know of parts.
    ScheduleRequest whole = request;
    whole.only_rank.reset();
    whole.only_size = nullptr;
    Schedule schedule = write(whole);
    if (request.only_size != nullptr) {
      *request.only_size = {schedule.ops.size(), schedule.addends.size(), schedule.outputs.size()};
      return Schedule();
    }
    if (const CheckReport report = check(schedule); !report.correct) {
      fail("{}: not {}: {}", name, words_for(schedule.collective), report.violation);
    }
    return schedule;
  };
  Registered& r = registered();
  const std::scoped_lock lock(r.mutex);
  r.all.push_back(std::move(algorithm));
  const Algorithm* added = &r.all.back();
  for (const Algorithm*& known : r.known) {
    if (known->name != added->name) continue;
    known = added;
    return;
  }
  r.known.push_back(added);
}

const Algorithm& find_algorithm(std::string_view name) {
  if (is_schedule_file(name)) return algorithm_of_file(std::string(name));
  std::vector<std::string> known;
  for (const Algorithm& algorithm : built_in()) {
    if (algorithm.name == name) return algorithm;
    known.push_back(algorithm.name);
  }
  {
    Registered& r = registered();
    const std::scoped_lock lock(r.mutex);
    for (const Algorithm* algorithm : r.known) {
      if (algorithm->name == name) return *algorithm;
      known.push_back(algorithm->name);
    }
  }
  fail("unknown algorithm '{}': known are {}; or a schedule, FILE.json or FILE.xml{}", name,
       fmt::join(known, ", "), did_you_mean(name, known));
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

#include "reference/collectives/algorithm.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <system_error>

#include "reference/collectives/check.h"
#include "reference/collectives/schedule_json.h"
#include "reference/memory.h"
#include "reference/tensors/file.h"

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

namespace {

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
    try {
      Schedule schedule = file->at(request.elements, request.alignment);
      if (request.only_size != nullptr) {
        *request.only_size = {schedule.ops.size(), schedule.addends.size(),
                              schedule.outputs.size()};
        return Schedule();
      }
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
  InputFile input{std::filesystem::path(path)};
  std::error_code none;
  const auto time = std::filesystem::last_write_time(path, none);
  const std::uintmax_t bytes = input.remaining();
  const std::scoped_lock lock(mutex);
  const auto known = std::find_if(readings.rbegin(), readings.rend(),
                                  [&](const Reading& reading) { return reading.path == path; });
  if (known != readings.rend() && known->time == time && known->bytes == bytes) {
    return known->algorithm;
  }
  constexpr std::uint64_t kBytesPerCharacter = 10;  // of JSON that has been read, about
  require_memory(kBytesPerCharacter * bytes, path);
  try {
    const auto file =
        std::make_shared<const WrittenSchedule>(written_schedule_from_json(input.read_rest()));
    readings.push_back({path, time, bytes, algorithm_of(path, file)});
  } catch (const InvalidInput& error) {
    fail("{}: {}", path, error.what());
  }
  return readings.back().algorithm;
}

}  // namespace

const Algorithm& find_algorithm(std::string_view name) {
  if (name.ends_with(".json")) return algorithm_of_file(std::string(name));
  std::string known;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.name == name) return algorithm;
    if (!known.empty()) known += ", ";
    known += algorithm.name;
  }
  fail("unknown algorithm '{}': known are {}; or a schedule, FILE.json", name, known);
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

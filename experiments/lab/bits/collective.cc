#include "experiments/lab/bits/collective.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "reference/collectives/check.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/schedule_json.h"

namespace arlab::lab {

const std::string& CollectiveSpec::name() const {
  return given ? given->algorithm : schedule_file.empty() ? algorithm : schedule_file;
}

Schedule CollectiveSpec::make(Rank world_size, std::uint64_t elements,
                              std::uint64_t alignment) const {
  Schedule schedule = has_schedule()
                          ? as_given(world_size, elements, alignment)
                          : make_schedule(algorithm, request(world_size, elements, alignment));
  if (const CheckReport report = check(schedule); !report.correct) {
    fail("{}: not {}: {}", name(), words_for(schedule.collective), report.violation);
  }
  require_group_size_divides(schedule.world_size);
  return schedule;
}

Schedule CollectiveSpec::as_given(Rank world_size, std::uint64_t elements,
                                  std::uint64_t alignment) const {
  require_no_algorithm_options();
  Schedule schedule;
  bool has_size = true;
  if (given) {
    schedule = *given;
  } else {
    const WrittenSchedule written = read_schedule(schedule_file);
    has_size = written.has_size();
    schedule = written.as_written();
    if (!has_size && elements == 0) {
      fail("{} is for tensors of any size: name the --elements", schedule_file);
    }
    if (!has_size && (world_size == 0 || schedule.world_size == world_size)) {
      schedule = written.at(elements, alignment);
    }
  }
  if (world_size != 0 && schedule.world_size != world_size) {
    fail("{} is for {} ranks, not {}", name(), schedule.world_size, world_size);
  }
  if (has_size && elements != 0 && schedule.elements != elements) {
    fail("{} is for {} elements per rank, not {}", name(), schedule.elements, elements);
  }
  if (schedule.row != 0) {
    fail("{} has a tail: allowed is --tail with an all-reduce that has none", name());
  }
  place_codecs(schedule, options);
  return schedule;
}

CodecPtr CollectiveSpec::inner(const CodecPtr& outer) const {
  return find_inner_codec(options, outer);
}

ScheduleRequest CollectiveSpec::request(Rank world_size, std::uint64_t elements,
                                        std::uint64_t alignment) const {
  if (algorithm.empty()) fail("name the --algorithm (see arlab list algorithms) or a --schedule");
  require_group_size_divides(world_size);
  return {
      .world_size = world_size, .elements = elements, .alignment = alignment, .options = options};
}

void CollectiveSpec::require_no_algorithm_options() const {
  std::vector<std::string> allowed = {group_size_option().name, inner_codec_option().name};
  std::vector<std::string> others;
  bool has_others = false;
  for (const Field& option : all_options()) {
    if (std::ranges::find(allowed, option.name) != allowed.end()) continue;
    others.push_back("--" + option.option());
    has_others = has_others || options.has(option.name);
  }
  if (has_others)
    fail("{} belong to --algorithm; {} is fixed already", fmt::join(others, ", "), name());
}

void CollectiveSpec::require_group_size_divides(Rank world_size) const {
  const std::optional<Rank> size = options.group_size();
  if (size && (*size == 0 || world_size % *size != 0)) {
    fail("--group-size {} does not divide the world size {}", *size, world_size);
  }
}

Rank CollectiveSpec::volume_group_size(Rank world_size) const {
  return options.group_size().value_or(default_group_size(world_size));
}

Schedule marked_schedule(const std::string& algorithm, const ScheduleRequest& request) {
  const std::string name = inner_codec_option().name;
  if (find_algorithm(algorithm).option(name) != nullptr && !request.options.has(name)) {
    ScheduleRequest marked = request;
    marked.options.set(name, std::string(name_of(DType::fp16)));  // which one, no schedule says
    try {
      return make_schedule(algorithm, marked);
    } catch (const InvalidInput&) {  // with its other options, it has no such messages
      return make_schedule(algorithm, request);
    }
  }
  return make_schedule(algorithm, request);
}

DType default_dtype(const Codec& codec, std::initializer_list<const Codec*> others) {
  const auto takes = [](DType dtype) {
    return [dtype](const Codec* each) { return each == nullptr || each->takes(dtype); };
  };
  for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
    if (codec.takes(dtype) && std::ranges::all_of(others, takes(dtype))) return dtype;
  }
  return codec.takes(DType::fp16) ? DType::fp16 : codec.info().dtypes.front();
}

std::vector<Figure> option_figures(const AlgorithmOptions& options) {
  std::vector<Figure> figures;
  for (const auto& [name, value] : options) {
    const bool has_figure = name == group_size_option().name || name == inner_codec_option().name;
    const auto* number = std::get_if<std::uint64_t>(&value);
    if (!has_figure) figures.push_back({name, number ? Cell(*number) : Cell(words_of(value))});
  }
  return figures;
}

std::vector<BoundField> fields(CollectiveSpec& spec) {
  std::vector<BoundField> all = {
      field("algorithm", &spec.algorithm, "Use this algorithm (see arlab list algorithms)"),
      field("schedule", &spec.schedule_file,
            "Use a schedule from a file: of arlab schedule or your own, a program of MSCCL, or a "
            "plan of MSCCL++")
          .excludes("algorithm")};
  for (Field& option : all_options()) all.push_back({std::move(option), &spec.options});
  return all;
}

}  // namespace arlab::lab

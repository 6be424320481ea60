#include "reference/collectives/algorithm.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "reference/collectives/check.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/schedule_json.h"
#include "reference/definitions.h"
#include "reference/memory.h"
#include "reference/tensors/file.h"
#include "reference/words.h"

// The algorithms: one line each. A function `Algorithm NAME_algorithm()` in the file NAME.cc.
#define ARLAB_ALGORITHMS(X)      \
  X(one_shot)                    \
  X(two_shot)                    \
  X(ring)                        \
  X(hierarchical)                \
  X(hierarchical_pipelined)      \
  X(halving_doubling)            \
  X(tree)                        \
  X(all_to_all)                  \
  X(reduce_scatter)              \
  X(hierarchical_reduce_scatter) \
  X(all_gather)                  \
  X(broadcast)

namespace arlab {

#define ARLAB_DECLARE(name) Algorithm name##_algorithm();
ARLAB_ALGORITHMS(ARLAB_DECLARE)
#undef ARLAB_DECLARE

namespace {

constexpr const char* kGroupSize = "group_size";
constexpr const char* kInnerCodec = "inner_codec";

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

/// A file's algorithm and its identity.
struct Reading {
  std::string path;
  FileVersion version;
  std::string bytes;
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
    algorithm.options.push_back(inner_codec_option());
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

/// Place of the colon in "ag:fp16"; npos, one before the first character, where no place is named: names of codecs may have a colon.
std::size_t colon_of_place(std::string_view codec) {
  const std::size_t colon = codec.find(':');
  return is_place_of_messages(codec.substr(0, colon)) ? colon : std::string_view::npos;
}

const Algorithm& algorithm_of_file(const std::string& path) {
  static std::mutex mutex;
  static std::deque<Reading> readings;  // all of them: who has found one may still use it
  const FileVersion version = version_of_file(path);
  const std::scoped_lock lock(mutex);
  const auto known = std::find_if(readings.rbegin(), readings.rend(),
                                  [&](const Reading& reading) { return reading.path == path; });
  if (known != readings.rend() && known->version.is_still(version)) return known->algorithm;
  InputFile input{std::filesystem::path(path)};
  require_memory(input.remaining(), path);
  std::string bytes = input.read_rest();
  if (known != readings.rend() && known->bytes == bytes) {
    known->version = version;
    return known->algorithm;
  }
  const auto file = std::make_shared<const WrittenSchedule>(read_schedule(path));
  readings.push_back({path, version, std::move(bytes), algorithm_of(path, file)});
  return readings.back().algorithm;
}

}  // namespace

std::optional<Rank> AlgorithmOptions::group_size() const {
  const FieldValue value = get(kGroupSize);
  const auto* size = std::get_if<std::uint64_t>(&value);
  return size != nullptr ? std::optional(static_cast<Rank>(*size)) : std::nullopt;
}

std::optional<std::string> AlgorithmOptions::inner_codec() const {
  const FieldValue value = get(kInnerCodec);
  const auto* codec = std::get_if<std::string>(&value);
  if (codec == nullptr) return std::nullopt;
  return codec->substr(colon_of_place(*codec) + 1);
}

std::optional<std::string> AlgorithmOptions::inner_place() const {
  const FieldValue value = get(kInnerCodec);
  const auto* codec = std::get_if<std::string>(&value);
  if (codec == nullptr || colon_of_place(*codec) == std::string::npos) return std::nullopt;
  return codec->substr(0, colon_of_place(*codec));
}

const Field* Algorithm::option(std::string_view named) const {
  const auto found = std::ranges::find(options, named, &Field::name);
  return found == options.end() ? nullptr : &*found;
}

Field own_option(std::string_view otherwise) {
  return {
      .name = "own",
      .kind = OneOf{{"encoded", "exact"}},
      .otherwise = std::string(otherwise),
      .help =
          "encode a rank's own contribution (its data where nothing is reduced), or keep it exact"};
}

Field group_size_option() {
  return {.name = kGroupSize,
          .kind = Integer{1, kMaxWorldSize},
          .otherwise_words = "world size / smallest prime factor",
          .help =
              "set the ranks per group, also of cross-group volume; a divisor of the world size; "
              "simulate takes the topology's groups, if it has any"};
}

Field inner_codec_option() {
  return {
      .name = kInnerCodec,
      .otherwise_words = "the codec",
      .help =
          "use this codec inside groups, for what --combine quantized sends back, or for what a "
          "--schedule calls inner; as rs:CODEC, ag:CODEC, step<N>:CODEC or below<N>:CODEC for "
          "one half, step or size of messages, in any algorithm"};
}

std::vector<Field> all_options() {
  const auto algorithms = all_algorithms();
  std::vector<Field> all;
  for (const Algorithm& algorithm : algorithms) {
    for (const Field& option : algorithm.options) {
      if (std::ranges::find(all, option.name, &Field::name) == all.end()) all.push_back(option);
    }
  }
  for (Field& option : all) {
    std::map<std::string, std::vector<std::string>> by_default;
    std::vector<std::string> whose;
    for (const Algorithm& algorithm : algorithms) {
      const Field* const has = algorithm.option(option.name);
      if (has == nullptr || is_schedule_file(algorithm.name)) continue;
      whose.push_back(algorithm.name);
      by_default[has->default_words()].push_back(algorithm.name);
    }
    if (whose.size() < algorithms.size()) {
      option.help.insert(0, fmt::format("{}: ", fmt::join(whose, ", ")));
    } else {
      option.help.front() = static_cast<char>(std::toupper(option.help.front()));
    }
    // Those with the usual default are the others.
    const auto usual = std::ranges::max_element(
        by_default, {}, [](const auto& each) { return each.second.size(); });
    option.otherwise_words.clear();
    for (const auto& [words, names] : by_default) {
      if (words == usual->first) continue;
      option.otherwise_words += fmt::format("{}: {}; ", fmt::join(names, ", "), words);
    }
    option.otherwise_words += (option.otherwise_words.empty() ? "" : "others: ") + usual->first;
  }
  return all;
}

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
  {
    Registered& r = registered();
    const std::scoped_lock lock(r.mutex);
    r.all.push_back(std::move(algorithm));
    const Algorithm* const added = &r.all.back();
    const auto known = std::ranges::find(r.known, added->name, &Algorithm::name);
    if (known != r.known.end()) {
      *known = added;
    } else {
      r.known.push_back(added);
    }
  }
  count_definition();
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
  fail("unknown algorithm '{}': {}", name,
       instead_of(name, {.names = known,
                         .all = "`arlab list algorithms` has all; a schedule ends in .json or .xml",
                         .endings = {".json", ".xml"}}));
}

Schedule make_schedule(std::string_view name, const ScheduleRequest& request) {
  const Algorithm& algorithm = find_algorithm(name);
  if (const auto place = request.options.inner_place()) {
    // The whole of it: a part does not say what becomes of what it sends.
    ScheduleRequest plain = request;
    plain.options.set(kInnerCodec, FieldValue());
    plain.only_rank.reset();
    Schedule schedule = make_schedule(name, plain);
    place_inner_codec(schedule, *place);
    return schedule;
  }
  for (const auto& [option, value] : request.options) {
    if (option == kGroupSize || algorithm.option(option) != nullptr) continue;
    std::vector<std::string> known;
    for (const Field& has : algorithm.options) known.push_back(has.option());
    const std::string named = Field{option}.option();
    if (known.empty()) fail("algorithm {} has no option {}, nor any other", algorithm.name, named);
    fail("algorithm {} has no option {}: {}", algorithm.name, named,
         instead_of(named, {known, "it has"}));
  }
  ScheduleRequest sized = request;
  sized.only_size = &sized.expected;
  algorithm.write(sized);
  sized.only_size = nullptr;
  return algorithm.write(sized);
}

CodecRole inner_role(const AlgorithmOptions& options) {
  return options.has(kInnerCodec) ? CodecRole::inner : CodecRole::outer;
}

Rank default_group_size(Rank world_size) {
  for (Rank groups = 2; groups <= world_size; ++groups) {
    if (world_size % groups == 0) return world_size / groups;
  }
  return 1;
}

}  // namespace arlab

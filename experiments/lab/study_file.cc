#include "experiments/lab/study_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "experiments/lab/sizes.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/tensors/file.h"
#include "sim/topology/toml_section.h"
#include "sim/topology/topology.h"

namespace arlab::lab {
namespace {

void allow(Section& section, std::initializer_list<const char*> keys) {
  for (const char* key : keys) section.has(key);
  section.reject_other_keys();
}

/// 65536, or a text such as "64K".
std::uint64_t count_of(Section& section, const toml::table& table, const char* key) {
  const auto number = table[key].value_exact<std::int64_t>();
  const std::string text = number ? std::to_string(*number) : section.text(key);
  try {
    return parse_count(text, key);
  } catch (const InvalidInput& error) {
    section.refuse(key, error.what());
  }
}

template <class Value>
void require_some(Section& section, const char* key, const std::vector<Value>& values) {
  const bool differ = std::set<Value>(values.begin(), values.end()).size() == values.size();
  if (values.empty() || !differ)
    section.refuse(key, "it must be a list of one or more, all different");
}

std::vector<std::string> names_in(Section& section, const char* key) {
  std::vector<std::string> names = section.texts(key);
  require_some(section, key, names);
  return names;
}

std::vector<Rank> ranks_in(Section& section, const toml::table& table) {
  const toml::array* array = table["ranks"].as_array();
  std::vector<Rank> values;
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const auto value = array->get(i)->value_exact<std::int64_t>();
    if (value && *value >= 1 && *value <= kMaxWorldSize)
      values.push_back(static_cast<Rank>(*value));
  }
  if (array == nullptr || values.empty() || values.size() != array->size()) {
    section.refuse("ranks",
                   fmt::format("it must be a list of world sizes from 1 to {}", kMaxWorldSize));
  }
  require_some(section, "ranks", values);
  return values;
}

/// "all", or names that `check` accepts (it throws for others, and may change them).
template <class Check>
std::vector<std::string> names(Section& section, const toml::table& table, const char* key,
                               std::vector<std::string> all, Check check) {
  if (table[key].is_string()) {
    if (section.text(key) == "all") return all;
    section.refuse(
        key, fmt::format("it is '{}'; allowed is \"all\" or a list of names", section.text(key)));
  }
  std::vector<std::string> chosen = names_in(section, key);
  for (std::string& name : chosen) {
    try {
      check(name);
    } catch (const InvalidInput& error) {
      section.refuse(key, error.what());
    }
  }
  return chosen;
}

StudyInput read_input(Section section, const toml::table& table, const std::string& where) {
  StudyInput input;
  if (table.contains("file") == table.contains("synthetic")) {
    fail("{}: an input has either file or synthetic", where);
  }
  if (table.contains("file")) {
    allow(section, {"name", "file", "tensors"});
    input.file = section.text("file");
    if (section.has("tensors")) input.tensors = names_in(section, "tensors");
  } else {
    allow(section, {"name", "synthetic", "elements"});
    input.synthetic = section.text("synthetic");
    input.elements = count_of(section, table, "elements");
  }
  input.name = section.text("name");
  return input;
}

/// A path in a study is relative to the study's file.
std::string beside(const std::string& study_path, const std::string& path) {
  return (std::filesystem::path(study_path).parent_path() / path).lexically_normal().string();
}

bool has_inner_codec(const Algorithm& algorithm) {
  return algorithm.option("inner_codec") != nullptr;
}

Study read_tables(const toml::table& file, const std::string& path) {
  const std::string origin = printable(path);
  Section root(file, origin, "");
  allow(root,
        {"title", "dtype", "ranks", "algorithms", "codecs", "inner_codec", "input", "simulate"});
  Study study;
  study.title = root.text("title");
  study.dtype = parse_dtype(root.has("dtype") ? root.text("dtype") : "fp16");
  study.ranks = ranks_in(root, file);

  if (root.has("inner_codec")) {
    const std::string name = root.text("inner_codec");
    try {
      study.inner_codec = find_codec(name)->name();
    } catch (const InvalidInput& error) {
      root.refuse("inner_codec", error.what());
    }
  }
  std::vector<std::string> all;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != Collective::all_reduce) continue;
    if (!study.inner_codec || has_inner_codec(algorithm)) all.push_back(algorithm.name);
  }
  study.algorithms = names(root, file, "algorithms", all, [&](std::string& n) {
    if (is_schedule_file(n)) n = beside(path, n);
    const Algorithm& algorithm = find_algorithm(n);
    const bool fits = !study.inner_codec || (has_inner_codec(algorithm) &&
                                             algorithm.collective == Collective::all_reduce);
    if (!fits) fail("{} has no groups, which inner_codec is for", n);
  });
  all.clear();
  for (const std::string& name : listed_codecs()) {
    if (find_codec(name)->takes(study.dtype)) all.push_back(name);
  }
  study.codecs = names(root, file, "codecs", all, [](const std::string& n) { find_codec(n); });

  const toml::array* inputs = file["input"].as_array();
  if (inputs == nullptr || !inputs->is_array_of_tables())
    fail("{}: at least one [[input]] is needed", path);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < inputs->size(); ++i) {
    const toml::table& input = *inputs->get(i)->as_table();
    const std::string where = fmt::format("input {}", i + 1);
    study.inputs.push_back(
        read_input({input, origin, where}, input, fmt::format("{}: {}", origin, where)));
    if (!seen.insert(study.inputs.back().name).second) {
      fail("{}: two inputs have the name '{}'", path, study.inputs.back().name);
    }
  }
  if (file.contains("simulate")) {
    Section section = root.section("simulate", "a table");
    allow(section, {"topology", "bytes"});
    std::string topology_name = section.text("topology");
    if (topology_name.ends_with(".toml")) topology_name = beside(path, topology_name);
    study.simulate = {topology_name, count_of(section, *file["simulate"].as_table(), "bytes")};
    const Topology topology = find_topology(study.simulate->topology);
    const Rank most = *std::max_element(study.ranks.begin(), study.ranks.end());
    if (topology.ranks.value < most) {
      section.refuse("topology", fmt::format("topology {} has {} ranks, but the study asks for {}",
                                             topology.name, topology.ranks.value, most));
    }
  }
  return study;
}

}  // namespace

Study read_study(const std::filesystem::path& path) {
  const toml::table file = parse_toml(InputFile(path).read_rest(), path.string());
  Study study = read_tables(file, path.string());
  study.path = path;
  return study;
}

}  // namespace arlab::lab

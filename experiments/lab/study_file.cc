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

/// One table of the file, with what is needed to name a place in it.
class Section {
 public:
  Section(const toml::table& table, std::string where) : table_(table), where_(std::move(where)) {}

  void allow(std::initializer_list<std::string_view> keys) const {
    for (const auto& [key, value] : table_) {
      if (std::find(keys.begin(), keys.end(), key.str()) != keys.end()) continue;
      std::string known;
      for (const std::string_view k : keys) known += (known.empty() ? "" : ", ") + std::string(k);
      fail("{}: unknown key '{}'; allowed are {}", where_, key.str(), known);
    }
  }

  std::string text(const char* key) const {
    if (!table_.contains(key)) fail("{}: {} is missing", where_, key);
    const auto value = table_[key].value_exact<std::string>();
    if (!value || value->empty()) fail("{}: {} must be a text in quotes", where_, key);
    for (const char c : *value) {
      if (static_cast<unsigned char>(c) < 0x20)
        fail("{}: {} must be one line without control characters", where_, key);
    }
    return *value;
  }
  std::string text_or(const char* key, const char* otherwise) const {
    return table_.contains(key) ? text(key) : otherwise;
  }

  /// 65536, or a text such as "64K".
  std::uint64_t count(const char* key) const {
    const std::string what = where_ + ": " + key;
    if (const auto value = table_[key].value_exact<std::int64_t>())
      return parse_count(std::to_string(*value), what);
    return parse_count(text(key), what);
  }

  std::vector<std::string> texts(const char* key) const {
    const toml::array* array = table_[key].as_array();
    std::vector<std::string> values;
    if (array != nullptr) {
      for (const toml::node& node : *array) {
        if (const auto value = node.value_exact<std::string>()) values.push_back(*value);
      }
    }
    require_unique(values, key);
    if (array == nullptr || values.empty() || values.size() != array->size()) {
      fail("{}: {} must be a list of names", where_, key);
    }
    return values;
  }

  std::vector<Rank> ranks() const {
    const toml::array* array = table_["ranks"].as_array();
    std::vector<Rank> values;
    if (array != nullptr) {
      for (const toml::node& node : *array) {
        const auto value = node.value_exact<std::int64_t>();
        if (value && *value >= 1 && *value <= kMaxWorldSize)
          values.push_back(static_cast<Rank>(*value));
      }
    }
    require_unique(values, "ranks");
    if (array == nullptr || values.empty() || values.size() != array->size()) {
      fail("{}: ranks must be a list of world sizes from 1 to {}", where_, kMaxWorldSize);
    }
    return values;
  }

  template <class Value>
  void require_unique(const std::vector<Value>& values, const char* key) const {
    if (std::set<Value>(values.begin(), values.end()).size() != values.size()) {
      fail("{}: {} holds something twice", where_, key);
    }
  }

  bool has(const char* key) const { return table_.contains(key); }
  const toml::table& table() const { return table_; }
  const std::string& where() const { return where_; }

 private:
  const toml::table& table_;
  std::string where_;
};

/// "all", or names that `check` accepts (it throws for others, and may change them).
template <class Check>
std::vector<std::string> names(const Section& section, const char* key,
                               std::vector<std::string> all, Check check) {
  if (section.table()[key].value_or(std::string()) == "all") return all;
  if (section.table()[key].is_string()) {
    fail("{}: {} is '{}'; allowed is \"all\" or a list of names", section.where(), key,
         section.text(key));
  }
  std::vector<std::string> chosen = section.texts(key);
  for (std::string& name : chosen) {
    try {
      check(name);
    } catch (const InvalidInput& error) {
      fail("{}: {}: {}", section.where(), key, error.what());
    }
  }
  return chosen;
}

StudyInput read_input(const Section& section) {
  StudyInput input;
  input.name = section.text("name");
  if (section.has("file") == section.has("synthetic")) {
    fail("{}: an input has either file or synthetic", section.where());
  }
  if (section.has("file")) {
    section.allow({"name", "file", "tensors"});
    input.file = section.text("file");
    if (section.has("tensors")) input.tensors = section.texts("tensors");
  } else {
    section.allow({"name", "synthetic", "elements"});
    input.synthetic = section.text("synthetic");
    input.elements = section.count("elements");
  }
  return input;
}

/// A path in a study is relative to the study's file.
std::string beside(const std::string& study_path, const std::string& path) {
  return (std::filesystem::path(study_path).parent_path() / path).lexically_normal().string();
}

bool has_inner_codec(const Algorithm& algorithm) {
  return algorithm.option("inner_codec") != nullptr;
}

std::string checked_codec(const Section& section, const char* key) {
  const std::string name = section.text(key);
  try {
    return find_codec(name)->name();
  } catch (const InvalidInput& error) {
    fail("{}: {}: {}", section.where(), key, error.what());
  }
}

Study read_tables(const toml::table& file, const std::string& path) {
  const Section root(file, path);
  root.allow(
      {"title", "dtype", "ranks", "algorithms", "codecs", "inner_codec", "input", "simulate"});
  Study study;
  study.title = root.text("title");
  study.dtype = parse_dtype(root.text_or("dtype", "fp16"));
  study.ranks = root.ranks();

  if (root.has("inner_codec")) study.inner_codec = checked_codec(root, "inner_codec");
  std::vector<std::string> all;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != Collective::all_reduce) continue;
    if (!study.inner_codec || has_inner_codec(algorithm)) all.push_back(algorithm.name);
  }
  study.algorithms = names(root, "algorithms", all, [&](std::string& n) {
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
  study.codecs = names(root, "codecs", all, [](const std::string& n) { find_codec(n); });

  const toml::array* inputs = file["input"].as_array();
  if (inputs == nullptr || !inputs->is_array_of_tables())
    fail("{}: at least one [[input]] is needed", path);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < inputs->size(); ++i) {
    const std::string where = fmt::format("{}: input {}", path, i + 1);
    study.inputs.push_back(read_input(Section(*inputs->get(i)->as_table(), where)));
    if (!seen.insert(study.inputs.back().name).second) {
      fail("{}: two inputs have the name '{}'", path, study.inputs.back().name);
    }
  }
  if (file.contains("simulate")) {
    if (!file["simulate"].is_table()) fail("{}: simulate must be a table", path);
    const Section section(*file["simulate"].as_table(), path + ": simulate");
    section.allow({"topology", "bytes"});
    std::string topology_name = section.text("topology");
    if (topology_name.ends_with(".toml")) topology_name = beside(path, topology_name);
    study.simulate = {topology_name, section.count("bytes")};
    const Topology topology = find_topology(study.simulate->topology);
    const Rank most = *std::max_element(study.ranks.begin(), study.ranks.end());
    if (topology.ranks.value < most) {
      fail("{}: topology {} has {} ranks, but the study asks for {}", section.where(),
           topology.name, topology.ranks.value, most);
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

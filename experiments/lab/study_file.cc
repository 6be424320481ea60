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

/// A study as its file has it.
struct StudyKeys {
  std::string title;
  std::string dtype = "fp16";
  std::vector<std::string> ranks;
  std::vector<std::string> algorithms;
  std::vector<std::string> codecs;
  std::string inner_codec;
};
struct InputKeys {
  std::string name;
  std::string file;
  std::vector<std::string> tensors;
  std::string synthetic;
  std::string elements;
};
struct SimulateKeys {
  std::string topology;
  std::string bytes;
};

/// It may be written as a number, or is a list of such.
BoundField counted(BoundField bound, std::string unit) {
  bound.field.unit = std::move(unit);
  return bound;
}

std::vector<BoundField> fields(StudyKeys& k) {
  return {
      field("title", &k.title, "what a reader learns from it, in one line").required(),
      field("dtype", &k.dtype, "of synthetic inputs, of .npy files and for \"all\" codecs")
          .among({"fp16", "bf16", "fp32"}),
      counted(field("ranks", &k.ranks,
                    fmt::format("a list of world sizes from 1 to {}", kMaxWorldSize)),
              "ranks")
          .required(),
      field("algorithms", &k.algorithms,
            "a list of names, or \"all\": every all-reduce, or with inner_codec those with groups")
          .required(),
      field("codecs", &k.codecs,
            "a list of names, or \"all\": what `arlab list codecs` lists and takes the dtype")
          .required(),
      field("inner_codec", &k.inner_codec, "of messages inside groups")};
}
std::vector<BoundField> fields(InputKeys& k) {
  return {
      field("name", &k.name, "no two have the same").required(),
      field("file", &k.file,
            ".npy or .safetensors, relative to the study; {ranks} stands for the world size"),
      field("tensors", &k.tensors, "a list of tensors of a .safetensors file", "all").needs("file"),
      field("synthetic", &k.synthetic,
            "in place of a file, a distribution: see `arlab list inputs`")
          .needs("elements"),
      counted(field("elements", &k.elements, "of a rank: 65536, or \"64K\""), "elements")
          .needs("synthetic")};
}
std::vector<BoundField> fields(SimulateKeys& k) {
  return {field("topology", &k.topology,
                "a name, or a .toml file relative to the study, with as many ranks as the largest "
                "world or more")
              .required(),
          counted(field("bytes", &k.bytes, "payload of a rank: 67108864, or \"64M\""), "bytes")
              .required()};
}

/// Reads a table whose keys are the fields, and `more`, which somebody else reads.
template <class Keys>
Keys read(Section& section, const std::string& where,
          std::initializer_list<const char*> more = {}) {
  Keys keys;
  const std::vector<BoundField> all = fields(keys);
  for (const BoundField& bound : all) section.has(bound.field.name);
  for (const char* key : more) section.has(key);
  section.reject_other_keys();
  for (const BoundField& bound : all) {
    bound.set(section.value(bound.field, bound.relations.required), where);
  }
  try {
    require_relations(all);
  } catch (const InvalidInput& error) {
    fail("{}: {}", where, error.what());
  }
  return keys;
}

std::uint64_t count_of(const Section& section, const std::string& text, const char* key) {
  try {
    return parse_count(text, key);
  } catch (const InvalidInput& error) {
    section.refuse(key, error.what());
  }
}

bool is_all(const std::vector<std::string>& names) {
  return names == std::vector<std::string>{"all"};
}

/// `all`, or names that `check` accepts (it throws for others, and may change them).
template <class Check>
std::vector<std::string> names(const Section& section, const char* key,
                               std::vector<std::string> chosen, std::vector<std::string> all,
                               Check check) {
  if (is_all(chosen)) return all;
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
  if (table.contains("file") == table.contains("synthetic")) {
    fail("{}: an input has either file or synthetic", where);
  }
  InputKeys keys = read<InputKeys>(section, where);
  if (is_all(keys.tensors)) keys.tensors.clear();
  return {.name = keys.name,
          .file = keys.file,
          .tensors = keys.tensors,
          .synthetic = keys.synthetic,
          .elements = keys.elements.empty() ? 0 : count_of(section, keys.elements, "elements")};
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
  StudyKeys keys = read<StudyKeys>(root, origin, {"input", "simulate"});
  Study study;
  study.title = keys.title;
  study.dtype = parse_dtype(keys.dtype);
  study.ranks =
      integers_in(words_of(keys.ranks), fmt::format("{}: key 'ranks'", origin), 1, kMaxWorldSize);
  if (!keys.inner_codec.empty()) {
    try {
      study.inner_codec = find_codec(keys.inner_codec)->name();
    } catch (const InvalidInput& error) {
      root.refuse("inner_codec", error.what());
    }
  }
  std::vector<std::string> all;
  for (const Algorithm& algorithm : all_algorithms()) {
    if (algorithm.collective != Collective::all_reduce) continue;
    if (!study.inner_codec || has_inner_codec(algorithm)) all.push_back(algorithm.name);
  }
  study.algorithms = names(root, "algorithms", keys.algorithms, all, [&](std::string& n) {
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
  study.codecs =
      names(root, "codecs", keys.codecs, all, [](const std::string& n) { find_codec(n); });

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
    SimulateKeys given = read<SimulateKeys>(section, fmt::format("{}: simulate", origin));
    if (given.topology.ends_with(".toml")) given.topology = beside(path, given.topology);
    study.simulate = {given.topology, count_of(section, given.bytes, "bytes")};
    const Topology topology = find_topology(study.simulate->topology);
    const Rank most = *std::max_element(study.ranks.begin(), study.ranks.end());
    if (topology.ranks.value < most) {
      section.refuse("topology", fmt::format("topology {} has {} ranks, but the study asks for {}",
                                             topology.name, topology.ranks.value, most));
    }
  }
  return study;
}

template <class Keys>
std::string lines_of(const char* title) {
  Keys keys;
  std::string text = title;
  for (const BoundField& bound : fields(keys)) {
    const std::string otherwise = bound.field.default_words();
    text += fmt::format("  {:<13}{}{}\n", bound.field.name, bound.field.help,
                        otherwise.empty() ? "" : fmt::format(" [{}]", otherwise));
  }
  return text;
}

}  // namespace

std::string study_keys() {
  return lines_of<StudyKeys>("Keys of the file:\n") +
         lines_of<InputKeys>("[[input]], one or more:\n") +
         lines_of<SimulateKeys>("[simulate], for latencies beside the errors:\n");
}

Study read_study(const std::filesystem::path& path) {
  const toml::table file = parse_toml(InputFile(path).read_rest(), path.string());
  Study study = read_tables(file, path.string());
  study.path = path;
  return study;
}

}  // namespace arlab::lab

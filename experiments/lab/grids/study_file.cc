#include "experiments/lab/grids/study_file.h"

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

/// It may be written as a number, or is a list of such.
BoundField in_units(BoundField bound, std::string unit) {
  bound.field.unit = std::move(unit);
  return bound;
}

std::vector<BoundField> fields(Study& k) {
  return {field("title", &k.title, "the study's question or finding, in one line").required(),
          field("dtype", &k.dtype,
                "the element type of synthetic inputs, .npy files and \"all\" codecs")
              .among({"fp16", "bf16", "fp32"}),
          in_units(field("ranks", &k.ranks,
                         fmt::format("a list of world sizes from 1 to {}", kMaxWorldSize)),
                   "ranks")
              .required(),
          field("algorithms", &k.algorithms,
                "a list of names, or \"all\": all-reduces, with inner_codec those with groups")
              .required(),
          field("codecs", &k.codecs,
                "a list of names, or \"all\": those of `arlab list codecs` that take the dtype")
              .required(),
          field("inner_codec", &k.inner_codec, "the codec of messages inside groups")};
}
std::vector<BoundField> fields(StudyInput& k) {
  return {
      field("name", &k.name, "a name that no other input has").required(),
      field(
          "file", &k.file,
          "a .npy or .safetensors file, relative to the study; {ranks} stands for the world size"),
      field("tensors", &k.tensors, "a list of tensors of a .safetensors file", "all").needs("file"),
      field("synthetic", &k.synthetic, "a distribution instead of a file: see `arlab list inputs`")
          .needs("elements"),
      in_units(field("elements", &k.elements, "elements per rank: 65536, or \"64K\""), "elements")
          .needs("synthetic")};
}
std::vector<BoundField> fields(StudySimulation& k) {
  return {field("topology", &k.topology,
                "a name, or a .toml file relative to the study, with at least as many ranks as the "
                "largest world")
              .required(),
          in_units(field("bytes", &k.bytes, "bytes per rank: 67108864, or \"64M\""), "bytes")
              .required()};
}

/// Reads a table with the fields as keys, and `more`, which other code reads.
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

/// Throws InvalidInput with the key for what `check` throws.
template <class Check>
void require(const Section& section, const char* key, Check check) {
  try {
    check();
  } catch (const InvalidInput& error) {
    section.refuse(key, error.what());
  }
}

bool is_all(const std::vector<std::string>& names) {
  return names == std::vector<std::string>{"all"};
}

StudyInput read_input(Section section, const toml::table& table, const std::string& where) {
  if (table.contains("file") == table.contains("synthetic")) {
    fail("{}: an input has either file or synthetic", where);
  }
  StudyInput input = read<StudyInput>(section, where);
  if (is_all(input.tensors)) input.tensors.clear();
  if (!input.elements.empty()) {
    require(section, "elements", [&] { parse_count(input.elements, "elements"); });
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

/// "all", or names that are there.
void read_algorithms(Study& study, const Section& section) {
  const bool has_inner = !study.inner_codec.empty();
  if (is_all(study.algorithms)) {
    study.algorithms.clear();
    for (const Algorithm& algorithm : all_algorithms()) {
      if (algorithm.collective != Collective::all_reduce) continue;
      if (!has_inner || has_inner_codec(algorithm)) study.algorithms.push_back(algorithm.name);
    }
  }
  for (std::string& name : study.algorithms) {
    require(section, "algorithms", [&] {
      if (is_schedule_file(name)) name = beside(study.path.string(), name);
      const Algorithm& algorithm = find_algorithm(name);
      const bool fits = !has_inner || (has_inner_codec(algorithm) &&
                                       algorithm.collective == Collective::all_reduce);
      if (!fits) fail("{} has no groups, which inner_codec is for", name);
    });
  }
}

void read_codecs(Study& study, const Section& section) {
  if (is_all(study.codecs)) {
    study.codecs.clear();
    for (const std::string& name : listed_codecs()) {
      if (find_codec(name)->takes(parse_dtype(study.dtype))) study.codecs.push_back(name);
    }
  }
  for (const std::string& name : study.codecs) {
    require(section, "codecs", [&] { find_codec(name); });
  }
}

void read_inputs(Study& study, const toml::table& file, const std::string& origin) {
  const toml::array* inputs = file["input"].as_array();
  if (inputs == nullptr || !inputs->is_array_of_tables())
    fail("{}: at least one [[input]] is needed", study.path.string());
  std::set<std::string> seen;
  for (std::size_t i = 0; i < inputs->size(); ++i) {
    const toml::table& input = *inputs->get(i)->as_table();
    const std::string where = fmt::format("input {}", i + 1);
    study.inputs.push_back(
        read_input({input, origin, where}, input, fmt::format("{}: {}", origin, where)));
    if (!seen.insert(study.inputs.back().name).second) {
      fail("{}: two inputs have the name '{}'", study.path.string(), study.inputs.back().name);
    }
  }
}

void read_simulation(Study& study, Section section, const std::string& origin) {
  study.simulate = read<StudySimulation>(section, fmt::format("{}: simulate", origin));
  std::string& name = study.simulate->topology;
  if (name.ends_with(".toml")) name = beside(study.path.string(), name);
  std::string& bytes = study.simulate->bytes;
  require(section, "bytes", [&] { bytes = fmt::format("{}", parse_count(bytes, "bytes")); });
  const Topology topology = find_topology(name);
  const Rank most = std::ranges::max(study.world_sizes());
  if (topology.ranks.value >= most) return;
  section.refuse("topology", fmt::format("topology {} has {} ranks, but the study asks for {}",
                                         topology.name, topology.ranks.value, most));
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
  return lines_of<Study>("Keys of the file:\n") +
         lines_of<StudyInput>("[[input]], one or more:\n") +
         lines_of<StudySimulation>("[simulate], for latencies beside the errors:\n");
}

std::vector<Rank> Study::world_sizes() const {
  return integers_in(words_of(ranks), fmt::format("{}: key 'ranks'", printable(path.string())), 1,
                     kMaxWorldSize);
}

Study read_study(const std::filesystem::path& path) {
  const toml::table file = parse_toml(InputFile(path).read_rest(), path.string());
  const std::string origin = printable(path.string());
  Section root(file, origin, "");
  Study study = read<Study>(root, origin, {"input", "simulate"});
  study.path = path;
  (void)study.world_sizes();  // refuses
  if (!study.inner_codec.empty()) {
    require(root, "inner_codec",
            [&] { study.inner_codec = find_codec(study.inner_codec)->name(); });
  }
  read_algorithms(study, root);
  read_codecs(study, root);
  read_inputs(study, file, origin);
  if (file.contains("simulate")) {
    read_simulation(study, root.section("simulate", "a table"), origin);
  }
  return study;
}

}  // namespace arlab::lab

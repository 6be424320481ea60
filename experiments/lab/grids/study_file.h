// A study as a TOML file: which inputs, ranks, algorithms and codecs to combine. Its keys are fields; `arlab study --help` lists them.
// Keys that are not there are refused.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reference/collectives/schedule.h"
#include "reference/dtype.h"

namespace arlab::lab {

struct StudyInput {
  std::string name;
  std::string file;                  // with {ranks}; empty for a synthetic input
  std::vector<std::string> tensors;  // empty: all
  std::string synthetic;
  std::string elements;
};

struct StudySimulation {
  std::string topology;
  std::string bytes;  // in digits
};

/// As its file has it, and checked: names are known, "all" is expanded, and files are found from here.
struct Study {
  std::filesystem::path path;
  std::string title;
  std::string dtype = "fp16";
  std::vector<std::string> ranks;
  std::vector<std::string> algorithms;
  std::vector<std::string> codecs;
  std::string inner_codec;
  std::vector<StudyInput> inputs;
  std::optional<StudySimulation> simulate;

  std::vector<Rank> world_sizes() const;
};

/// Throws InvalidInput with file, key and what is allowed.
Study read_study(const std::filesystem::path& path);

/// The keys, for people: a line each.
std::string study_keys();

}  // namespace arlab::lab

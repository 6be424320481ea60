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
  std::string file;  // with {ranks}; empty for a synthetic input
  std::vector<std::string> tensors;
  std::string synthetic;
  std::uint64_t elements = 0;
};

struct StudySimulation {
  std::string topology;
  std::uint64_t bytes = 0;
};

struct Study {
  std::filesystem::path path;
  std::string title;
  DType dtype = DType::fp16;
  std::vector<Rank> ranks;
  std::vector<std::string> algorithms;
  std::vector<std::string> codecs;
  std::optional<std::string> inner_codec;
  std::vector<StudyInput> inputs;
  std::optional<StudySimulation> simulate;
};

/// Throws InvalidInput with file, key and what is allowed.
Study read_study(const std::filesystem::path& path);

/// The keys, for people: a line each.
std::string study_keys();

}  // namespace arlab::lab

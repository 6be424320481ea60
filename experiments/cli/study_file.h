// A study as a TOML file: which inputs, ranks, algorithms and codecs to combine.
//
//   title      = "One line"                  what a reader learns from it
//   ranks      = [2, 4, 8]
//   algorithms = "all"                       or names; "all" stands for every all-reduce, because
//                                            error and latency of an all-to-all are of another kind
//   codecs     = "all"                       or names; "all" leaves out codecs that do not take the
//   dtype dtype      = "fp16"                      of synthetic and .npy inputs; optional
//
//   [[input]]                                one or more
//   name    = "activations"
//   file    = "data_tp{ranks}.safetensors"   {ranks} stands for the world size; relative to this
//   file tensors = ["layer0.ffn_down"]            optional: all tensors of the file
//
//   [[input]]
//   name      = "gaussian"
//   synthetic = "gaussian:sigma=1,seed=1"
//   elements  = "64K"                        per rank; or 65536
//
//   [simulate]                               optional
//   topology = "mi300x-8"                    or a .toml file, relative to this one
//   bytes    = "64M"                         payload of one rank
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reference/collectives/schedule.h"
#include "reference/dtype.h"

namespace arlab::cli {

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
  std::vector<StudyInput> inputs;
  std::optional<StudySimulation> simulate;
};

/// Throws InvalidInput with file, key and what is allowed.
Study read_study(const std::filesystem::path& path);

}  // namespace arlab::cli

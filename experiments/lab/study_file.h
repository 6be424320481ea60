// A study as a TOML file: which inputs, ranks, algorithms and codecs to combine. Keys that are not
// here are refused.
//
//   title      = "One line"                what a reader learns from it
//   ranks      = [2, 4, 8]                 world sizes, 1 to 65536
//   algorithms = "all"                     or a list of names; "all" is every all-reduce, since
//                                          error and latency of an all-to-all are of another kind
//   codecs     = "all"                     or a list of names; "all" is what `arlab list codecs`
//                                          lists and takes the dtype
//   inner_codec = "fp16"                   optional: of messages inside groups; the algorithms are
//                                          then those with groups, "all" is these
//   dtype      = "fp16"                    optional: of synthetic inputs, of .npy files and for
//                                          "all" codecs; fp16 (the default), bf16 or fp32
//
//   [[input]]                              one or more; each has a file, or is synthetic
//   name       = "activations"             no two have the same
//   file       = "tp{ranks}.safetensors"   or .npy, relative to the study; {ranks} stands for the
//                                          world size
//   tensors    = ["layer0.ffn_down"]       optional: of a .safetensors file, all by default
//
//   [[input]]
//   name       = "gaussian"
//   synthetic  = "gaussian:sigma=1,seed=1"
//                                          a distribution; see `arlab list inputs`
//   elements   = "64K"                     per rank; or 65536
//
//   [simulate]                             optional: latencies beside the errors
//   topology   = "mi300x-8"                or a .toml file, relative to the study; it has at least
//                                          as many ranks as the largest world
//   bytes      = "64M"                     payload of one rank; or 67108864
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

}  // namespace arlab::lab

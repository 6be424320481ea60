// Where the tensor of all ranks comes from: a file or a distribution.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "reference/collectives/schedule.h"
#include "reference/tensors/tensor.h"

namespace arlab::cli {

/// --input F.npy|F.safetensors [--tensor NAME], or --synthetic SPEC --elements E; --ranks, --dtype.
struct TensorSource {
  std::string file;
  std::string tensor;
  std::string synthetic;
  std::string elements;
  std::optional<Rank> ranks;
  std::string dtype;

  void add_to(CLI::App& command);

  /// The tensor, [ranks, ...]. Throws InvalidInput for everything that is missing, contradictory or
  /// not to be had.
  Tensor load() const;

  /// In words, for reports: the file (and tensor) or the distribution.
  std::string name() const;

 private:
  Tensor load_file() const;
};

/// A .npy or .safetensors file by its ending. The dtype of a .safetensors file is its own.
Tensor read_tensor(const std::string& path, const std::string& tensor, std::optional<DType> dtype);

}  // namespace arlab::cli

// Files of `arlab bench`: latencies measured on GPUs, one per row.
//
//   platform,machine,ranks,algorithm,codec,dtype,bytes,time_us,library
//
// Columns may stand in any order; one that is the same in all rows may be a comment: # dtype: bf16. README.md of this
// folder says what they mean.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "sim/calibration/measurements.h"

namespace arlab {

struct BenchFiles {
  /// A table for every file, machine and number of ranks; a fit for every machine, by its name
  /// without the number of ranks, with hold-outs: more GPUs predicted from the fewest, and every
  /// second size.
  Measurements measurements;
  std::size_t left_out = 0;  ///< rows of what the simulator has no model of
};

/// Throws InvalidInput with file and line, and what is allowed.
BenchFiles read_bench_files(std::span<const std::filesystem::path> files);

/// Returns the named values among the comments at the head of a file: `# kernels: af80cff`.
std::map<std::string, std::string> header_of(const std::filesystem::path& file);

/// Whether a listed machine is another one with other kernels of the library, so that a device alone does not mean it.
bool is_variant(std::string_view machine);

/// The machine that ships by what a bench calls it: h200, h200-8 or the device's name (NVIDIA
/// H200); the one with so many ranks. Throws InvalidInput with those that there are.
std::string machine_named(const std::string& machine, Rank ranks);

/// All machines that ship and differ from this one, h200-2, in the number of ranks, and it
/// itself: h200-2, h200-4, h200-8.
std::vector<std::string> machines_like(const std::string& topology);

}  // namespace arlab

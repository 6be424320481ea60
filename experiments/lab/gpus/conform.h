// Comparisons of kernels with the reference, as answers have them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "experiments/lab/result.h"
#include "kernels/conformance/conform.h"
#include "reference/field.h"

namespace arlab::lab {

/// A platform that has devices, and looks for compiled kernels in `kernel_folder` if that is named. Throws InvalidInput.
const kernels::Platform& platform_of(const std::string& name, const std::string& kernel_folder);

/// --kernel-folder.
BoundField kernel_folder_field(std::string& folder);

/// Shows how far compiling is.
kernels::CompileProgress compile_progress();

/// processes, of questions that run kernels: each process is a rank.
BoundField processes_field(bool& processes);
/// Throws InvalidInput.
std::shared_ptr<kernels::Bootstrap> team_of_processes();
/// Returns the part of the answer that one process of a team gives: rank 0 all of it, the others nothing.
Result of_rank_0(const kernels::Bootstrap& team, Result answer);

/// protocol, of questions that run kernels.
BoundField protocol_field(std::string& protocol);
/// Throws InvalidInput.
kernels::Protocol parse_protocol(const std::string& protocol);

class ConformanceSummary {
 public:
  /// One codec with one dtype, by itself or in one algorithm, in all world sizes.
  struct Check {
    kernels::ConformanceRow total;
    std::string ranks;
  };

  /// Adds all comparisons of the request. Throws InvalidInput when they cannot be run.
  void run(const kernels::Platform& on, const kernels::ConformanceRequest& request);

  /// Likewise of the kernels of quantized layers.
  void run_layers(const kernels::Platform& on, std::uint64_t seed);

  const std::vector<Check>& checks() const { return checks_; }
  std::uint64_t compared() const { return compared_; }  ///< elements
  std::uint64_t mismatches() const { return mismatches_; }

  /// The first of every check: in JSON, and where there are any as findings; `what` they are.
  void add_mismatches_to(Result& result, std::string_view what = {}) const;

 private:
  void add(const kernels::ConformanceRow& row);

  std::vector<Check> checks_;
  std::uint64_t compared_ = 0;
  std::uint64_t mismatches_ = 0;
};

}  // namespace arlab::lab

// Comparisons of kernels with the reference, as commands report them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/conformance/conform.h"

namespace arlab::cli {

/// --protocol of commands that run kernels.
void add_protocol(CLI::App& command, std::string& protocol);
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

  /// The first of every check, a line each.
  std::string first_mismatches_text() const;
  nlohmann::ordered_json first_mismatches_json() const;

 private:
  void add(const kernels::ConformanceRow& row);

  std::vector<Check> checks_;
  std::uint64_t compared_ = 0;
  std::uint64_t mismatches_ = 0;
};

}  // namespace arlab::cli

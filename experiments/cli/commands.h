// The commands of the program. Each function adds one subcommand to the application.
#pragma once

#include <CLI/CLI.hpp>

namespace arlab::cli {

void add_completion(CLI::App& app);
void add_validate(CLI::App& app);
void add_calibrate(CLI::App& app);

/// Thrown by a command whose work is done and whose verdict is "no": exit code 1. The message, if
/// any, goes to stderr.
class CheckFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace arlab::cli

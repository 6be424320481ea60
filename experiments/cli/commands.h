// The commands of the program. Each function adds one subcommand to the application.
#pragma once

#include <CLI/CLI.hpp>

namespace arlab::cli {

void add_list(CLI::App& app);
void add_encode(CLI::App& app);
void add_decode(CLI::App& app);
void add_reduce(CLI::App& app);
void add_schedule(CLI::App& app);
void add_simulate(CLI::App& app);
void add_topology(CLI::App& app);
void add_select(CLI::App& app);
void add_vectors(CLI::App& app);
void add_bench(CLI::App& app);
void add_conform(CLI::App& app);
void add_check_codec(CLI::App& app);
void add_judge(CLI::App& app);
void add_study(CLI::App& app);
void add_validate(CLI::App& app);
void add_calibrate(CLI::App& app);

/// Thrown by a command whose work is done and whose verdict is "no": exit code 1. The message, if
/// any, goes to stderr.
class CheckFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace arlab::cli

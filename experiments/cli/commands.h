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
void add_sweep(CLI::App& app);
void add_model(CLI::App& app);
void add_report(CLI::App& app);
void add_new(CLI::App& app);
void add_doctor(CLI::App& app);
void add_completion(CLI::App& app);
void add_validate(CLI::App& app);
void add_calibrate(CLI::App& app);

/// Thrown by a command whose work is done and whose verdict is "no": exit code 1. The message, if
/// any, goes to stderr.
class CheckFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What is cleaned up even when the program ends at once, since there was no memory for a destructor
/// of a library: then no other destructor runs. Of a thread, they end in the reverse order.
class CleanedUpAtLast {
 public:
  CleanedUpAtLast() : before_(last_) { last_ = this; }
  virtual ~CleanedUpAtLast() { last_ = before_; }
  CleanedUpAtLast(const CleanedUpAtLast&) = delete;
  CleanedUpAtLast& operator=(const CleanedUpAtLast&) = delete;

  /// All of this thread's.
  static void clean_up_all() noexcept {
    for (CleanedUpAtLast* one = last_; one != nullptr; one = one->before_) one->clean_up();
  }

 private:
  /// Takes no memory.
  virtual void clean_up() noexcept = 0;

  static inline thread_local CleanedUpAtLast* last_ = nullptr;
  CleanedUpAtLast* before_;
};

}  // namespace arlab::cli

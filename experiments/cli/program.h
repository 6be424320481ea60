// The command line as a function: of the program, and of the Python package, in whose process it runs.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

namespace CLI {
class App;
}

namespace arlab::cli {

using AddCommand = void (*)(CLI::App&);

/// Runs a command; argv[0] is the program, `more` are commands that only a program has. Throws InvalidInput for bad usage and input, CheckFailed
/// (commands.h) for a verdict "no", and what the libraries throw.
void run_command_line(int argc, const char* const* argv, std::span<const AddCommand> more = {});

/// Where data_path() (options.h) looks first; before any command.
void set_data_folder(const std::filesystem::path& folder);

/// Who takes what this thread's commands print, in place of stdout and stderr.
struct Output {
  std::function<void(std::string_view)> results;
  std::function<void(std::string_view)> progress;
  std::function<void(std::string_view)> drawing;  ///< JSON of a picture, which is not drawn
};

/// While it exists. Not to be nested.
class OutputTo {
 public:
  explicit OutputTo(Output output);
  ~OutputTo();
  OutputTo(const OutputTo&) = delete;
  OutputTo& operator=(const OutputTo&) = delete;

 private:
  Output output_;
};

}  // namespace arlab::cli

// The command line as a function: of the program, and of the Python package, in whose process it runs.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/lab/result.h"

namespace CLI {
class App;
}

namespace arlab::cli {

using AddCommand = void (*)(CLI::App&);

// Exit codes of the program, besides 0.
inline constexpr int kCheckFailed = 1;
inline constexpr int kBadInput = 2;
inline constexpr const char* kNoMemory = "not enough memory for this request";

/// One line of bounded length without control characters on stderr, whatever the message holds;
/// returns the exit code. Takes no memory: there may be none.
int report_error(std::string_view message, int exit_code) noexcept;

/// Runs a command as the program does: what is wrong becomes a line on stderr and an exit code.
int program_main(int argc, const char* const* argv, std::span<const AddCommand> more = {});

/// Runs a command; argv[0] is the program, `more` are commands that only a program has. Throws InvalidInput for bad usage and input, CheckFailed
/// (commands.h) for a verdict "no", and what the libraries throw.
void run_command_line(int argc, const char* const* argv, std::span<const AddCommand> more = {});

/// Help of the option --setup.
inline constexpr const char* kSetupHelp =
    "Load codecs and algorithms from this Python file (@arlab.codec, @arlab.algorithm)";

/// Goes on as Python, which runs the file and then the command that this thread runs, without --setup.
[[noreturn]] void run_behind_setup(const std::string& file);

/// --codec-header: makes the codecs of these headers known.
void take_codec_headers(const std::vector<std::string>& files);

/// Returns the page of stdout's reader: in a terminal, as many columns as COLUMNS or the terminal says; in a pipe, a file or
/// Python lines of any length.
lab::Page page();

}  // namespace arlab::cli

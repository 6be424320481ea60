// Options that several commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "experiments/lab/bits/collective.h"
#include "experiments/lab/files.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/question.h"
#include "experiments/lab/result.h"
#include "experiments/lab/sizes.h"

namespace arlab::cli {

// The command line is the face of the lab.
using namespace lab;  // NOLINT(google-build-using-namespace)

/// main()'s arguments as lab::command_line() has them.
void take_command_line(int argc, const char* const* argv);

/// Writes to stdout, as it is.
void write_stdout(const std::string& text);

/// A question as a command. Its fields are options: --name for each, with help, and what is refused; several Texts are separated by
/// commas, or the option is given several times. Its answer is printed, as --format and --all say.
void add_question(CLI::App& app, const lab::Question& question);

}  // namespace arlab::cli

// Options that several commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "experiments/lab/collective.h"
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

/// --format table|json|csv and --all, for every command; of some also other formats.
void add_format(CLI::App& command, Format& format, Format default_format = Format::table,
                const std::vector<Format>& more = {});

/// "table", "json" or "csv".
std::string name_of(Format format);

/// Prints to stdout.
void print(const Result& report, Format format);

/// The fields of a request as options: --name for each, with help, and what is refused. Several Texts are separated by commas;
/// a Text whose member holds several is given several times.
void add_fields(CLI::App& command, const std::vector<BoundField>& fields);

/// A question as a command: its fields are options, its answer is printed.
void add_question(CLI::App& app, const lab::Question& question);

/// Draws the picture, prints the result, and throws CheckFailed (commands.h) where its verdict is "no".
void print_answer(const Result& result, Format format);

}  // namespace arlab::cli

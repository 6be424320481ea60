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
#include "experiments/lab/result.h"
#include "experiments/lab/sizes.h"
#include "reference/collectives/executor.h"
#include "reference/memory.h"

namespace arlab::cli {

using lab::Cell, lab::Figure, lab::Format, lab::Page, lab::Result, lab::Table;
using lab::cell_text, lab::csv_line, lab::json_line, lab::render, lab::render_csv, lab::render_text,
    lab::table_of;
using lab::data_path, lab::default_dtype, lab::parse_count, lab::require_folder_of,
    lab::require_output_file;

/// Adds an option that takes a decimal integer from `low` to `high`.
CLI::Option* add_integer(CLI::App& command, const std::string& name,
                         std::optional<std::uint32_t>& value, std::uint32_t low, std::uint32_t high,
                         const std::string& description);

/// How the program was called, for files of results: arlab and its arguments, as for a shell, on
/// one line. main() sets it.
void set_command_line(int argc, const char* const* argv);
const std::string& command_line();

/// An argument as a shell takes it, on one line of printable characters.
std::string shell_quote(const std::string& text);

/// Text as it may stand in a line of a file: control characters and bytes that are not UTF-8 as
/// \xNN.
std::string one_line(const std::string& text);

/// Writes to stdout, as it is.
void write_stdout(const std::string& text);

/// Tells the user how far the work is. Whether anybody hears it makes no difference to the work.
void write_progress(const std::string& text);

/// Whether somebody takes this thread's output (program.h), as in Python.
bool has_listener();

/// Hands the data of a picture to who takes this thread's output; false where nobody does.
bool hand_over_drawing(const std::string& json);

/// --format table|json|csv and --all, for every command; of some also other formats.
void add_format(CLI::App& command, Format& format, Format default_format = Format::table,
                std::initializer_list<Format> more = {});

/// "table", "json" or "csv".
std::string name_of(Format format);

/// Prints to stdout.
void print(const Result& report, Format format);

/// The fields of a request as options: --name for each, with help, and what is refused. Several Texts are separated by commas;
/// a Text whose member holds several is given several times.
void add_fields(CLI::App& command, const std::vector<BoundField>& fields);

/// How the reference is run.
struct ExecutionOptions {
  std::string accumulate = "native";
  std::optional<std::uint32_t> threads;

  ExecuteOptions make() const;
};
std::vector<BoundField> fields(ExecutionOptions& options);

}  // namespace arlab::cli

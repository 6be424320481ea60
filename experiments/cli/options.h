// Options that several commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "experiments/cli/report.h"
#include "reference/codecs/codec.h"
#include "reference/collectives/algorithm.h"
#include "reference/collectives/executor.h"
#include "reference/memory.h"

namespace arlab::cli {

/// A count with an optional binary suffix: 4096, 64K, 1MiB, 2G. Throws InvalidInput naming `what`.
std::uint64_t parse_count(const std::string& text, const std::string& what);

/// Sizes of tensors: --bytes, or as nccl-tests have them -b, -e and -f.
struct SizeOptions {
  std::vector<std::string> bytes;
  std::string least;
  std::string most;
  std::optional<std::uint32_t> factor;

  /// `what` the bytes are of, and which are taken when none are named.
  void add_to(CLI::App& command, const std::string& what, const std::string& otherwise);

  bool given() const { return !bytes.empty() || !least.empty(); }

  /// Ascending. "32K..1G" is 32K and its doubles up to 1G. Throws InvalidInput, also for what is not
  /// a whole number of elements.
  std::vector<std::uint64_t> sizes(std::size_t element_bytes) const;
};

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
void print(const Report& report, Format format);

/// --algorithm or --schedule, and the options of algorithms.
struct ScheduleOptions {
  std::string algorithm;
  std::string file;
  std::string own;
  std::string forward;
  std::string combine;
  std::optional<Rank> group_size;
  std::optional<std::uint32_t> micro_chunks;
  std::string inner_codec;

  void add_to(CLI::App& command);

  /// The schedule asked for, checked: correct, for this world size and element count.
  /// `world_size` 0 and `elements` 0 take what a schedule file says. `alignment`: of both codecs.
  Schedule make(Rank world_size, std::uint64_t elements, std::uint64_t alignment) const;

  /// The codec of --inner-codec, else the outer one.
  CodecPtr inner(const CodecPtr& outer) const;

  /// What --algorithm and its options ask for.
  ScheduleRequest request(Rank world_size, std::uint64_t elements, std::uint64_t alignment) const;

  /// Throws InvalidInput when options are set that a schedule file leaves no room for.
  void require_no_algorithm_options() const;
  void require_group_size_divides(Rank world_size) const;

  /// Group size for volume classes: the one asked for, else the algorithm's default.
  Rank volume_group_size(Rank world_size) const;
};

/// --accumulate and --threads.
struct ExecutionOptions {
  std::string accumulate = "native";
  std::optional<std::uint32_t> threads;

  void add_to(CLI::App& command);
  ExecuteOptions make() const;
};

/// A file or folder that belongs to the program, by its path below experiments/: that of the folder
/// named by set_data_folder(), else of the source tree, else where the program is installed.
std::filesystem::path data_path(const std::filesystem::path& path);

/// Throws InvalidInput unless the file's folder exists, so that long work is not done in vain.
void require_folder_of(const std::string& path);

/// The same, and when the name is that of a folder, a pipe or a device.
void require_output_file(const std::string& path);

}  // namespace arlab::cli

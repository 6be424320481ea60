#include "experiments/cli/options.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "experiments/cli/program.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/schedule_json.h"
#include "reference/tensors/file.h"
#include "reference/words.h"

namespace arlab::cli {

std::uint64_t parse_count(const std::string& text, const std::string& what) {
  const std::uint64_t value = parse_size(text).value_or(0);
  if (value == 0) {
    fail(
        "{} is {}: allowed is a positive integer, with K, M or G (or KiB, MiB, GiB) for 2^10, "
        "2^20, "
        "2^30",
        what, quote(text));
  }
  return value;
}

void SizeOptions::add_to(CLI::App& command, const std::string& what, const std::string& otherwise) {
  auto* list = command
                   .add_option("--bytes", bytes,
                               fmt::format("{}, separated by commas; FIRST..LAST is FIRST and its "
                                           "doubles [{}]",
                                           what, otherwise))
                   ->delimiter(',');
  auto* first = command.add_option("-b,--minbytes", least, "The least size, as of nccl-tests");
  command.add_option("-e,--maxbytes", most, "The largest size [-b]")->needs(first);
  add_integer(command, "-f,--stepfactor", factor, 2, 1024, "From a size to the next [2]")
      ->needs(first);
  first->excludes(list);
}

std::vector<std::uint64_t> SizeOptions::sizes(std::size_t element_bytes) const {
  std::vector<std::uint64_t> sizes;
  const auto add = [&](const std::string& name, std::uint64_t first, std::uint64_t last,
                       std::uint64_t step) {
    if (last < first)
      fail("{}: the last size is less than the first; allowed is FIRST..LAST", name);
    for (std::uint64_t size = first;; size *= step) {
      if (size % element_bytes != 0) {
        fail("{}: {} bytes are not whole elements of {} bytes", name, size, element_bytes);
      }
      sizes.push_back(size);
      if (size > last / step) break;
    }
  };
  if (!least.empty()) {
    const std::uint64_t first = parse_count(least, "-b");
    add("-b and -e", first, most.empty() ? first : parse_count(most, "-e"), factor.value_or(2));
  }
  for (const std::string& text : bytes) {
    const auto dots = text.find("..");
    const std::uint64_t first = parse_count(text.substr(0, dots), "--bytes");
    const bool range = dots != std::string::npos;
    add(fmt::format("--bytes {}", text), first,
        range ? parse_count(text.substr(dots + 2), "--bytes") : first, 2);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

CLI::Option* add_integer(CLI::App& command, const std::string& name,
                         std::optional<std::uint32_t>& value, std::uint32_t low, std::uint32_t high,
                         const std::string& description) {
  return command
      .add_option_function<std::string>(
          name,
          [&value, name, low, high](const std::string& text) {
            std::uint32_t number = 0;
            const char* end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, number);
            const bool plain = !text.starts_with('0') || text == "0";
            if (error != std::errc() || rest != end || !plain || number < low || number > high) {
              throw CLI::ValidationError(
                  name,
                  fmt::format("{}: allowed is an integer from {} to {}", quote(text), low, high));
            }
            value = number;
          },
          description)
      ->type_name("INT");
}

namespace {
thread_local std::string called_as = "arlab";
thread_local bool wants_all = false;
thread_local const Output* output_of_thread = nullptr;
}  // namespace

void set_command_line(int argc, const char* const* argv) {
  called_as = "arlab";
  for (int i = 1; i < argc; ++i) called_as += " " + shell_quote(argv[i]);
  wants_all = false;
}
const std::string& command_line() { return called_as; }

namespace {

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::ordered_json(text).dump();
    return true;
  } catch (const nlohmann::ordered_json::type_error&) {
    return false;
  }
}

/// Control characters as \xNN, and all that is not ASCII where the text is not UTF-8; also what
/// `marked` holds.
std::string escaped(const std::string& text, std::string_view marked) {
  const bool readable = is_utf8(text);
  std::string line;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    const bool plain = code >= 0x20 && code != 0x7f && (code < 0x80 || readable) &&
                       marked.find(c) == std::string_view::npos;
    line += plain ? std::string(1, c) : fmt::format("\\x{:02x}", code);
  }
  return line;
}

}  // namespace

std::string one_line(const std::string& text) { return escaped(text, ""); }

std::string shell_quote(const std::string& text) {
  const auto needs_none = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-+=./,:@%^").find(c) != std::string_view::npos ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  if (one_line(text) != text) return "$'" + escaped(text, "'\\") + "'";
  if (!text.empty() && std::all_of(text.begin(), text.end(), needs_none)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

OutputTo::OutputTo(Output output) : output_(std::move(output)) { output_of_thread = &output_; }
OutputTo::~OutputTo() { output_of_thread = nullptr; }

void write_stdout(const std::string& text) {
  if (output_of_thread != nullptr) return output_of_thread->results(text);
  std::fwrite(text.data(), 1, text.size(), stdout);
}
void write_progress(const std::string& text) {
  if (output_of_thread != nullptr) return output_of_thread->progress(text);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::clearerr(stderr);
}

bool has_listener() { return output_of_thread != nullptr; }

bool hand_over_drawing(const std::string& json) {
  if (output_of_thread == nullptr) return false;
  output_of_thread->drawing(json);
  return true;
}

void add_format(CLI::App& command, Format& format, Format default_format,
                std::initializer_list<Format> more) {
  struct Known {
    const char* name;
    Format format;
    const char* words;
  };
  constexpr Known kKnown[] = {{"table", Format::table, ""},
                              {"json", Format::json, ""},
                              {"csv", Format::csv, ""},
                              {"nccl", Format::nccl, "as nccl-tests has it"},
                              {"nccl-json", Format::nccl_json, "as nccl-tests has it"},
                              {"toml", Format::toml, "a complete machine file"}};
  format = default_format;
  std::vector<std::pair<std::string, Format>> names;
  std::string allowed;
  std::string words;
  for (const Known& known : kKnown) {
    const bool usual = known.format <= Format::csv;
    if (!usual && std::find(more.begin(), more.end(), known.format) == more.end()) continue;
    names.emplace_back(known.name, known.format);
    allowed += (allowed.empty() ? "" : ", ") + names.back().first;
    if (!usual) words += fmt::format("; {}: {}", known.name, known.words);
  }
  command
      .add_option_function<std::string>(
          "--format",
          [&format, names, allowed](const std::string& text) {
            for (const auto& [name, value] : names) {
              if (name == text) {
                format = value;
                return;
              }
            }
            throw CLI::ValidationError("--format",
                                       fmt::format("{}: allowed are {}", quote(text), allowed));
          },
          fmt::format("Output: table, json or csv [{}]{}",
                      names[static_cast<std::size_t>(default_format)].first, words))
      ->type_name("FORMAT");
  command.add_flag_callback(
      "--all", [] { wants_all = true; },
      "Table: every figure and column, in lines of any length [what is asked for most, in lines as "
      "long as the terminal's]; json and csv always have all");
}

std::string name_of(Format format) {
  return format == Format::json ? "json" : format == Format::csv ? "csv" : "table";
}

Page page() {
  Page page{.all = wants_all};
  if (output_of_thread != nullptr || ::isatty(STDOUT_FILENO) != 1) return page;
  // As programs of the shell have it, the variable comes before what the terminal says.
  const char* const columns = std::getenv("COLUMNS");
  winsize terminal = {};
  std::uint64_t width = columns != nullptr ? parse_size(columns).value_or(0) : 0;
  if (width == 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal) == 0) width = terminal.ws_col;
  if (width > 0) page.width = width;
  return page;
}

void print(const Report& report, Format format) { write_stdout(render(report, format, page())); }

void ScheduleOptions::add_to(CLI::App& command) {
  auto* by_name =
      command.add_option("--algorithm", algorithm, "Algorithm (see arlab list algorithms)");
  auto* by_file =
      command.add_option("--schedule", file, "Schedule as JSON (from arlab schedule, or your own)");
  by_name->excludes(by_file);
  command.add_option(
      "--own", own,
      "Own contribution of a reducing rank, own data where nothing is reduced: encoded or exact "
      "[ring, halving_doubling: exact; others: encoded]");
  command.add_option("--forward", forward,
                     "ring: all-gather bytes unchanged or reencoded [unchanged]");
  command.add_option(
      "--combine", combine,
      "all_to_all: none, or quantized: slots are encoded again where they arrive and "
      "sent back [none]");
  add_integer(
      command, "--group-size", group_size, 1, kMaxWorldSize,
      "Ranks per group, for hierarchical algorithms and cross-group volume; divides the world size "
      "[simulate: as the topology's, if it has groups; else world size / its smallest prime "
      "factor]");
  add_integer(command, "--micro-chunks", micro_chunks, 1, 4096,
              "hierarchical_pipelined: micro-chunks per chunk [4]");
  command.add_option(
      "--inner-codec", inner_codec,
      "Codec of messages inside a group (hierarchical, hierarchical_pipelined), of what all_to_all "
      "--combine quantized sends back, or of what a --schedule calls inner [--codec]");
}

Schedule ScheduleOptions::make(Rank world_size, std::uint64_t elements,
                               std::uint64_t alignment) const {
  Schedule schedule;
  if (!file.empty()) {
    require_no_algorithm_options();
    const WrittenSchedule written = read_schedule(file);
    schedule = written.as_written();
    if (world_size != 0 && schedule.world_size != world_size) {
      fail("{} is for {} ranks, not {}", file, schedule.world_size, world_size);
    }
    if (!written.has_size()) {
      if (elements == 0) fail("{} is for tensors of any size: name the --elements", file);
      schedule = written.at(elements, alignment);
    } else if (elements != 0 && schedule.elements != elements) {
      fail("{} is for {} elements per rank, not {}", file, schedule.elements, elements);
    }
    if (!inner_codec.empty()) require_inner_codec(schedule);
  } else {
    schedule = make_schedule(algorithm, request(world_size, elements, alignment));
  }
  if (const CheckReport report = check(schedule); !report.correct) {
    fail("{}: not {}: {}", file.empty() ? algorithm : file, words_for(schedule.collective),
         report.violation);
  }
  require_group_size_divides(schedule.world_size);
  return schedule;
}

CodecPtr ScheduleOptions::inner(const CodecPtr& outer) const {
  return inner_codec.empty() ? outer : find_codec(inner_codec);
}

ScheduleRequest ScheduleOptions::request(Rank world_size, std::uint64_t elements,
                                         std::uint64_t alignment) const {
  if (algorithm.empty()) fail("name the --algorithm (see arlab list algorithms) or a --schedule");
  ScheduleRequest request{.world_size = world_size, .elements = elements, .alignment = alignment};
  if (own == "encoded") {
    request.options.own = OwnContribution::encoded;
  } else if (own == "exact") {
    request.options.own = OwnContribution::exact;
  } else if (!own.empty()) {
    fail("--own is {}: allowed are encoded, exact", quote(own));
  }
  if (forward == "unchanged") {
    request.options.forward = Forward::unchanged;
  } else if (forward == "reencoded") {
    request.options.forward = Forward::reencoded;
  } else if (!forward.empty()) {
    fail("--forward is {}: allowed are unchanged, reencoded", quote(forward));
  }
  if (combine == "none") {
    request.options.combine = Combine::none;
  } else if (combine == "quantized") {
    request.options.combine = Combine::quantized;
  } else if (!combine.empty()) {
    fail("--combine is {}: allowed are none, quantized", quote(combine));
  }
  require_group_size_divides(world_size);
  request.options.group_size = group_size;
  request.options.micro_chunks = micro_chunks;
  if (!inner_codec.empty()) request.options.inner_codec = inner_codec;
  return request;
}

void ScheduleOptions::require_no_algorithm_options() const {
  if (!own.empty() || !forward.empty() || !combine.empty() || micro_chunks) {
    fail(
        "--own, --forward, --combine and --micro-chunks belong to --algorithm; {} is fixed already",
        file);
  }
}

void ScheduleOptions::require_group_size_divides(Rank world_size) const {
  if (group_size && world_size % *group_size != 0) {
    fail("--group-size {} does not divide the world size {}", *group_size, world_size);
  }
}

Rank ScheduleOptions::volume_group_size(Rank world_size) const {
  return group_size.value_or(default_group_size(world_size));
}

void ExecutionOptions::add_to(CLI::App& command) {
  command.add_option("--accumulate", accumulate,
                     "Sums in the payload's dtype (native) or in fp32, rounded once [native]");
  add_integer(command, "--threads", threads, 0, 1024,
              "Threads, 0 for all; the result never depends on it [0]");
}

ExecuteOptions ExecutionOptions::make() const {
  ExecuteOptions options;
  if (accumulate == "fp32") {
    options.accumulate = Accumulate::fp32;
  } else if (accumulate != "native") {
    fail("--accumulate is {}: allowed are native, fp32", quote(accumulate));
  }
  options.threads = threads.value_or(0);
  options.count = true;
  return options;
}

namespace {
std::filesystem::path data_folder;
}

void set_data_folder(const std::filesystem::path& folder) { data_folder = folder; }

std::filesystem::path data_path(const std::filesystem::path& path) {
  std::error_code error;
  for (const std::filesystem::path& folder :
       {data_folder, std::filesystem::path(ARLAB_SOURCE_DIR) / "experiments"}) {
    if (!folder.empty() && std::filesystem::exists(folder / path, error)) return folder / path;
  }
  return std::filesystem::path(ARLAB_DATA_DIR) / path;
}

void require_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return;
  const bool is_other = !error || error == std::errc::no_such_file_or_directory ||
                        error == std::errc::not_a_directory;
  if (is_other) fail("cannot write {}: there is no folder {}", path, folder.string());
  fail("cannot write {}: {}", path, error.message());
}

void require_output_file(const std::string& path) {
  require_folder_of(path);
  require_replaceable(path);
}

}  // namespace arlab::cli

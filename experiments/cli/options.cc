#include "experiments/cli/options.h"

#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "experiments/cli/program.h"
#include "reference/codecs/registry.h"
#include "reference/tensors/file.h"
#include "reference/words.h"

namespace arlab::cli {

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

void print(const Result& report, Format format) { write_stdout(render(report, format, page())); }

void add_fields(CLI::App& command, const std::vector<BoundField>& fields) {
  for (const BoundField& bound : fields) {
    const Field& field = bound.field;
    const std::string name = "--" + field.option();
    const std::string names =
        field.letter.empty() ? name : fmt::format("-{},{}", field.letter, name);
    std::string help = field.help;
    if (const auto* kind = std::get_if<OneOf>(&field.kind)) {
      help += fmt::format(": {}", fmt::join(kind->names, " or "));
    }
    if (const std::string words = field.default_words(); !words.empty()) {
      help += fmt::format(" [{}]", words);
    }
    CLI::Option* option = nullptr;
    if (const auto* flag = std::get_if<bool*>(&bound.member)) {
      option = command.add_flag(names, **flag, help);
    } else if (const auto* texts = std::get_if<std::vector<std::string>*>(&bound.member)) {
      option = command.add_option(names, **texts, help);
      if (std::holds_alternative<Texts>(field.kind)) option->delimiter(',');
    } else {
      option = command.add_option_function<std::string>(
          names,
          [bound, name](const std::string& text) {
            try {
              bound.set(parsed(bound.field, text, name), name);
            } catch (const InvalidInput& error) {
              throw CLI::ValidationError(error.what());
            }
          },
          help);
      if (std::holds_alternative<Integer>(field.kind)) option->type_name("INT");
      if (std::holds_alternative<Number>(field.kind)) option->type_name("FLOAT");
    }
    option->required(bound.relations.required);
  }
  for (const BoundField& bound : fields) {
    const auto option_of = [&command](const std::string& name) {
      return command.get_option("--" + Field{name}.option());
    };
    CLI::Option* option = option_of(bound.field.name);
    if (!bound.relations.needs.empty()) option->needs(option_of(bound.relations.needs));
    if (!bound.relations.excludes.empty()) option_of(bound.relations.excludes)->excludes(option);
  }
}

std::vector<BoundField> fields(ExecutionOptions& options) {
  return {{{.name = "accumulate",
            .kind = OneOf{{"native", "fp32"}},
            .otherwise = options.accumulate,
            .help = "Sums in the payload's dtype, or in fp32, rounded once"},
           &options.accumulate},
          {{.name = "threads",
            .kind = Integer{0, 1024},
            .otherwise = std::uint64_t{0},
            .help = "Threads, 0 for all; the result never depends on it"},
           &options.threads}};
}

ExecuteOptions ExecutionOptions::make() const {
  ExecuteOptions options;
  if (accumulate != "native" && accumulate != "fp32") {
    fail("accumulate is {}: allowed are native, fp32", quote(accumulate));
  }
  if (accumulate == "fp32") options.accumulate = Accumulate::fp32;
  options.threads = threads.value_or(0);
  options.count = true;
  return options;
}

}  // namespace arlab::cli

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
#include <set>

#include "experiments/cli/commands.h"
#include "experiments/cli/examples.h"
#include "experiments/cli/plots.h"
#include "experiments/cli/program.h"
#include "experiments/lab/codecs/codec_header.h"
#include "experiments/lab/request.h"
#include "reference/codecs/registry.h"
#include "reference/tensors/file.h"
#include "reference/words.h"

namespace arlab::cli {

namespace {
thread_local bool wants_all = false;

std::set<std::string, std::less<>> flags_that_change_no_result() {
  std::set<std::string, std::less<>> flags;
  for (const lab::Question& question : lab::questions()) {
    for (const BoundField& each : question.ask().fields) {
      if (each.relations.changes_no_result) flags.insert("--" + each.field.option());
    }
  }
  return flags;
}

}  // namespace

void take_command_line(int argc, const char* const* argv) {
  const auto left_out = flags_that_change_no_result();
  std::string line = "arlab";
  for (int i = 1; i < argc; ++i) {
    if (!left_out.contains(std::string_view(argv[i]))) line += " " + shell_quote(argv[i]);
  }
  if (const Setup& setup = setup_of_command(); !setup.file.empty()) {
    line += " --setup " + shell_quote(setup.file);
  }
  set_command_line(std::move(line));
  wants_all = false;
}

void write_stdout(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

namespace {

void add_format(CLI::App& command, Format& format, Format default_format,
                const std::vector<Format>& more) {
  constexpr std::pair<Format, const char*> kSpecial[] = {
      {Format::nccl, "the columns of nccl-tests"},
      {Format::nccl_json, "the JSON of nccl-tests"},
      {Format::toml, "a complete machine file"}};
  format = default_format;
  std::vector<Format> allowed = {Format::table, Format::json, Format::csv};
  std::string words;
  for (const auto& [known, meaning] : kSpecial) {
    if (std::find(more.begin(), more.end(), known) == more.end()) continue;
    allowed.push_back(known);
    words += fmt::format("; {}: {}", name_of(known), meaning);
  }
  command
      .add_option_function<std::string>(
          "--format",
          [&format, allowed](const std::string& text) {
            format = member_named(text, "--format", std::span<const Format>(allowed));
          },
          fmt::format("Print a table, json or csv [{}]{}", name_of(default_format), words))
      ->type_name("FORMAT");
  command.add_flag_callback(
      "--all", [] { wants_all = true; },
      "Print every figure and column of a table, in lines of any length [the main ones, as wide as "
      "the terminal]; json and csv always have all");
}

}  // namespace

Page page() {
  Page page{.all = wants_all};
  if (::isatty(STDOUT_FILENO) != 1) return page;
  // As programs of the shell have it, the variable comes before what the terminal says.
  const char* const columns = std::getenv("COLUMNS");
  winsize terminal = {};
  std::uint64_t width = columns != nullptr ? parse_size(columns).value_or(0) : 0;
  if (width == 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal) == 0) width = terminal.ws_col;
  if (width > 0) page.width = width;
  return page;
}

namespace {

/// Lists that other commands call by the singular take that, too.
constexpr std::pair<std::string_view, std::string_view> kAlsoNamed[] = {
    {"codecs", "codec"}, {"algorithms", "algorithm"}};

void add_fields(CLI::App& command, const std::vector<BoundField>& fields) {
  std::map<std::string, CLI::Option*> options;
  for (const BoundField& bound : fields) {
    const Field& field = bound.field;
    const std::string& place = bound.relations.place;
    const std::string name = place.empty() ? "--" + field.option() : place;
    std::string names = field.letter.empty() ? name : fmt::format("-{},{}", field.letter, name);
    for (const auto& [plural, singular] : kAlsoNamed) {
      if (field.name == plural) names += fmt::format(",--{}", singular);
    }
    std::string help = field.help;
    if (const auto* kind = std::get_if<OneOf>(&field.kind)) {
      help += fmt::format(" ({})", fmt::join(kind->names, " or "));
    }
    if (const std::string words = field.default_words(); !words.empty()) {
      help += fmt::format(" [{}]", words);
    }
    CLI::Option* option = nullptr;
    if (const auto* flag = std::get_if<bool*>(&bound.member)) {
      option = command.add_flag(names, **flag, help);
    } else if (const auto* texts = std::get_if<std::vector<std::string>*>(&bound.member)) {
      option = command.add_option(names, **texts, help);
      if (!bound.relations.is_one_by_one) option->delimiter(',');
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
    options[field.name] = option->required(bound.relations.required);
  }
  for (const auto& [field, member, relations] : fields) {
    CLI::Option* option = options[field.name];
    if (!relations.needs.empty()) option->needs(options.at(relations.needs));
    for (const std::string& other : words_in(relations.excludes)) {
      options.at(other)->excludes(option);
    }
  }
}

/// --dask, --workers, --setup and --codec-header: of questions whose work processes may share.
struct SharedOptions {
  std::string dask;
  std::optional<std::uint32_t> workers;
  std::string setup;
  std::vector<std::string> codec_headers;

  void add_to(CLI::App& command) {
    add_fields(
        command,
        {field(
             "dask", &dask,
             "Compute the points on a Dask cluster, by its scheduler's address (tls://HOST:8786)"),
         field("workers", &workers, "Compute the points in N processes of this machine, by Dask")
             .from(1, 1024),
         field("setup", &setup, kSetupHelp),
         field("codec_header", &codec_headers, kCodecHeaderHelp).one_by_one()});
  }

  /// Throws InvalidInput for options that do not go together.
  bool asked_for() const {
    if (!dask.empty() && workers) fail("--dask and --workers: allowed is one of them");
    const bool asked = !dask.empty() || workers;
    if (asked) return true;
    if (!setup.empty()) run_behind_setup(setup);
    take_codec_headers(codec_headers);
    return false;
  }

  /// Goes on as Python, which asks the question with these options and ends the program.
  [[noreturn]] void go_on(const std::string& question, const std::vector<BoundField>& fields,
                          Format format) const {
    const nlohmann::ordered_json job = {{"question", question},
                                        {"fields", canonical_json(fields)},
                                        {"called", command_line()},
                                        {"dask", dask},
                                        {"workers", Cell(workers).json()},
                                        {"setup", setup},
                                        {"codec_headers", codec_headers},
                                        {"format", name_of(format)},
                                        {"all", page().all}};
    become_python("arlab.distributed", json_line(job), "--dask and --workers");
  }
};

void print(const Result& result, Format format) {
  if (result.schema.empty()) return;  // it has written a file
  if (!result.written) return write_stdout(render(result, format, page()));
  result.written(format, page(), [](std::string_view text) { write_stdout(std::string(text)); });
}

/// Draws the picture, prints the result, and throws CheckFailed (commands.h) where its verdict is "no".
void print_answer(const Result& result, Format format) {
  const bool draws = result.picture && !result.picture->file.empty();
  if (draws && format == Format::toml) {
    fail("--out draws a picture; --format toml writes to standard output");
  }
  print_last(
      [&] {
        if (draws) draw(*result.picture);
      },
      [&] { print(result, format); });
  if (result.at_last) result.at_last();
  if (!result.verdict.empty()) throw CheckFailed(result.verdict);
}

}  // namespace

void add_question(CLI::App& app, const lab::Question& question) {
  // "topology show" is one of the group "topology".
  const std::size_t space = question.name.find(' ');
  CLI::App* parent =
      space == std::string::npos ? &app : app.get_subcommand(question.name.substr(0, space));
  CLI::App* sub = parent->add_subcommand(question.name.substr(space + 1), question.help);
  const auto asked = std::make_shared<lab::BoundRequest>(question.ask());
  const auto format = std::make_shared<Format>();
  add_fields(*sub, asked->fields);
  sub->footer(question.more_help + (question.more_help.empty() ? "" : "\n\n") +
              example_of(question.name));
  const auto shared = std::make_shared<SharedOptions>();
  if (asked->grid) shared->add_to(*sub);
  if (question.has_answer) add_format(*sub, *format, question.usual, question.formats);
  sub->callback([asked, format, shared, name = question.name] {
    if (shared->asked_for()) shared->go_on(name, asked->fields, *format);
    print_answer(asked->answer(*format), *format);
  });
}

}  // namespace arlab::cli

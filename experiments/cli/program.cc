#include "experiments/cli/program.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "experiments/cli/plots.h"
#include "experiments/lab/codecs/codec_header.h"
#include "experiments/lab/questions.h"
#include "reference/codecs/registry.h"
#include "reference/error.h"
#include "reference/words.h"

namespace arlab::cli {
namespace {

/// The innermost command on the command line, for a hint; CLI11 names none in its messages.
std::string help_hint(const CLI::App& app) {
  std::string words = "arlab";
  for (auto parsed = app.get_subcommands(); !parsed.empty();
       parsed = parsed.front()->get_subcommands()) {
    words += " " + parsed.front()->get_name();
  }
  return words + " --help";
}

/// Reports misspelt options first: CLI11 reports a missing option before the misspelt one that explains it. `words` follow
/// those that named the command, `called`.
void check_options(const CLI::App& command, const std::string& called,
                   std::span<const char* const> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--" || word == "--help" || word == "-h") return;
    // CLI11 reads several letters behind one hyphen as letters, or as a letter and its value.
    if (!word.starts_with("--")) {
      const CLI::Option* of_letter = word.size() == 2 && word.front() == '-'
                                         ? command.get_option_no_throw(std::string(word))
                                         : nullptr;
      if (of_letter != nullptr && of_letter->get_expected_min() > 0) ++i;
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string name(word.substr(0, equals));
    if (const CLI::Option* option = command.get_option_no_throw(name)) {
      if (equals == word.npos && option->get_expected_min() > 0) ++i;  // its value follows
      continue;
    }
    std::vector<std::string> known;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& one : option->get_lnames()) known.push_back("--" + one);
    }
    const std::string meant = did_you_mean(name, known);
    fail("{} is not an option of {}{}{} (see {} --help)", quote(name), called,
         meant.empty() ? "" : ": ", meant, called);
  }
}

/// CLI11 calls a misspelt command an argument that was not expected; say what the commands are.
/// `words` follow those that named `app`, `called`.
void check_command(const CLI::App& app, const std::string& called,
                   std::span<const char* const> words) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty()) return check_options(app, called, words);
  std::vector<std::string> names;
  const std::string_view first = words.empty() ? "" : words[0];
  for (const CLI::App* command : commands) {
    if (command->get_name() == first) {
      return check_command(*command, called + " " + command->get_name(), words.subspan(1));
    }
    names.push_back(command->get_name());
  }
  if (first == "--help" || first == "-h" || first == "--version") return;
  if (words.empty()) fail("name a command: {} (see {} --help)", fmt::join(names, ", "), called);
  if (first.starts_with('-')) {
    fail("{} before the command is not an option; name a command first: {}", quote(first),
         fmt::join(names, ", "));
  }
  fail("unknown command {}: {}", quote(first),
       instead_of(first, {.names = names, .all = fmt::format("see {} --help", called)}));
}

/// An empty value is a mistake (an unset shell variable), never a wish for the default.
void refuse_empty_values(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    refuse_empty_values(*command);
    for (CLI::Option* option : command->get_options()) {
      if (option->get_expected_max() == 0) continue;  // a flag
      const std::string expected = option->get_description();
      option->check([expected](const std::string& text) {
        return text.empty() ? "it is empty; what it does: " + expected : std::string();
      });
    }
  }
}

thread_local std::span<const char* const> words_of_command;  // behind the program's name

/// --setup and --codec-header, for every command that takes a codec or an algorithm: those of one's own are there for it.
void add_setup(CLI::App& app) {
  const auto takes = [](const CLI::App& command) {
    constexpr const char* kOptions[] = {"--codec", "--codecs", "--algorithm", "--algorithms"};
    const std::string& name = command.get_name();
    return name == "list" || name == "check-codec" ||
           std::ranges::any_of(kOptions, [&](const char* option) {
             return command.get_option_no_throw(option) != nullptr;
           });
  };
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    add_setup(*command);
    if (!takes(*command) || command->get_option_no_throw("--setup") != nullptr) continue;
    command->add_option_function<std::string>("--setup", run_behind_setup, kSetupHelp);
    command
        ->add_option_function<std::vector<std::string>>("--codec-header", take_codec_headers,
                                                        lab::kCodecHeaderHelp)
        ->allow_extra_args(false);
  }
}

/// All questions; those whose names have a group in front stand in it.
void add_questions(CLI::App& app) {
  std::map<std::string, const char*> groups = {
      {"topology", "Show a machine, compare two, or import what another tool says"},
      {"model",
       "Measure or predict what compressed collectives do to a language model: quality and time"},
      {"kernels", "Compile kernels ahead of time, and list or clear the cache of kernels"},
      {"new", "Write the files of a new codec"}};
  for (const lab::Question& one : lab::questions()) {
    const std::string group = one.name.substr(0, one.name.find(' '));
    if (const auto unmade = groups.extract(group)) {
      app.add_subcommand(group, unmade.mapped())->require_subcommand(1);
    }
    add_question(app, one);
  }
}

/// Groups commands by their users.
void group_commands(CLI::App& app) {
  constexpr std::string_view kOfAuthors[] = {"vectors", "check-codec", "conform", "judge",
                                             "bench",   "kernels",     "new"};
  constexpr std::string_view kOfMaintainers[] = {"validate", "calibrate", "doctor", "completion"};
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    const auto is_of = [&](std::span<const std::string_view> names) {
      return std::ranges::find(names, command->get_name()) != names.end();
    };
    command->group(is_of(kOfAuthors)       ? "For authors of codecs and kernels"
                   : is_of(kOfMaintainers) ? "For maintainers"
                                           : "For researchers");
  }
}

}  // namespace

void take_codec_headers(const std::vector<std::string>& files) {
  std::map<std::string, std::string> known;
  for (const std::string& file : files) {
    for (const auto& name : lab::register_compiled_header(lab::compiled_header(file))) {
      const auto [first, is_new] = known.emplace(name, file);
      if (!is_new) fail("--codec-header {}: {} has a codec {}, too", file, first->second, name);
    }
  }
}

void run_behind_setup(const std::string& file) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < words_of_command.size(); ++i) {
    const std::string_view word = words_of_command[i];
    if (word == "--setup") {
      ++i;
    } else if (!word.starts_with("--setup=")) {
      words.emplace_back(word);
    }
  }
  const nlohmann::ordered_json job = {{"setup", file}, {"words", words}};
  become_python("arlab.distributed", lab::json_line(job), "--setup");
}

int report_error(std::string_view message, int exit_code) noexcept {
  constexpr std::size_t kMost = InvalidInput::kMostCharacters;
  std::array<char, kMost> line = {};
  std::size_t length = std::min(message.size(), kMost);
  std::copy_n(message.begin(), length, line.begin());
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  while (length > 0 && line[length - 1] == ' ') --length;
  std::fputs("arlab: ", stderr);
  std::fwrite(line.data(), 1, length, stderr);
  std::fputs(message.size() > kMost ? "...\n" : "\n", stderr);
  return exit_code;
}

int program_main(int argc, const char* const* argv, std::span<const AddCommand> more) {
  try {
    run_command_line(argc, argv, more);
    const bool flushed = std::fflush(stdout) == 0;
    if (!flushed || std::ferror(stdout) != 0) fail("standard output cannot be written");
    return 0;
  } catch (const CheckFailed& error) {
    return report_error(error.what(), kCheckFailed);
  } catch (const InvalidInput& error) {
    return report_error(error.what(), kBadInput);
  } catch (const std::bad_alloc&) {
    return report_error(kNoMemory, kBadInput);
  } catch (const std::system_error& error) {
    return report_error(error.what(), kBadInput);
  } catch (const std::exception& error) {
    std::fputs("arlab: internal error, please report it\n", stderr);
    return report_error(error.what(), kBadInput);
  }
}

void run_command_line(int argc, const char* const* argv, std::span<const AddCommand> more) {
  way_to_own_codecs = "; your own: --setup FILE (Python) or --codec-header FILE (C++)";
  CLI::App app{"arlab: compressed collectives. Which bits, how long, and do GPU kernels agree?",
               "arlab"};
  app.set_version_flag("--version", "arlab " ARLAB_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  add_questions(app);
  add_completion(app);
  for (const AddCommand add : more) add(app);
  add_setup(app);
  group_commands(app);
  words_of_command = std::span(argv, static_cast<std::size_t>(argc)).subspan(argc > 0 ? 1 : 0);
  try {
    check_command(app, "arlab", words_of_command);
    take_command_line(argc, argv);
    refuse_empty_values(app);
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    write_stdout(app.help());
  } catch (const CLI::CallForVersion& error) {
    write_stdout(std::string(error.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    fail("{} (see {})", error.what(), help_hint(app));
  }
}

}  // namespace arlab::cli

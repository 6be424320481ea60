#include "experiments/cli/program.h"

#include <CLI/CLI.hpp>
#include <span>
#include <string_view>

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "reference/error.h"

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

/// CLI11 calls a misspelt command an argument that was not expected; say what the commands are.
/// `words` follow those that named `app`, `called`.
void check_command(const CLI::App& app, const std::string& called,
                   std::span<const char* const> words) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty()) return;
  std::string known;
  const std::string_view first = words.empty() ? "" : words[0];
  for (const CLI::App* command : commands) {
    if (command->get_name() == first) {
      return check_command(*command, called + " " + command->get_name(), words.subspan(1));
    }
    if (!known.empty()) known += ", ";
    known += command->get_name();
  }
  if (first == "--help" || first == "-h" || first == "--version") return;
  if (words.empty()) fail("name a command: {} (see {} --help)", known, called);
  if (first.starts_with('-')) {
    fail("{} before the command is not an option; name a command first: {}", quote(first), known);
  }
  fail("unknown command {}: known are {}", quote(first), known);
}

/// An empty value is a mistake (an unset shell variable), never a wish for the default.
void refuse_empty_values(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    refuse_empty_values(*command);
    for (CLI::Option* option : command->get_options()) {
      if (option->get_expected_max() == 0) continue;  // a flag
      const std::string expected = option->get_description();
      option->check([expected](const std::string& text) {
        return text.empty() ? "it is empty; expected is: " + expected : std::string();
      });
    }
  }
}

}  // namespace

void run_command_line(int argc, const char* const* argv, std::span<const AddCommand> more) {
  CLI::App app{"arlab: compressed collectives. Which bits, how long, and do GPU kernels agree?",
               "arlab"};
  app.set_version_flag("--version", "arlab " ARLAB_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  add_list(app);
  add_encode(app);
  add_decode(app);
  add_reduce(app);
  add_schedule(app);
  add_simulate(app);
  add_topology(app);
  add_select(app);
  add_vectors(app);
  add_check_codec(app);
  add_conform(app);
  add_judge(app);
  add_bench(app);
  add_study(app);
  add_sweep(app);
  add_model(app);
  add_report(app);
  add_new(app);
  add_doctor(app);
  add_completion(app);
  for (const AddCommand add : more) add(app);
  try {
    check_command(app, "arlab",
                  std::span(argv, static_cast<std::size_t>(argc)).subspan(argc > 0 ? 1 : 0));
    set_command_line(argc, argv);
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

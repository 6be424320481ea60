// arlab: the program. Exit codes: 0 done, 1 a check failed, 2 bad usage or input.

#include <cstdio>
#include <new>

#include "experiments/cli/commands.h"
#include "reference/error.h"

namespace {

constexpr int kCheckFailed = 1;
constexpr int kBadInput = 2;

int report_error(const char* message, int exit_code) {
  // One line, whatever the message holds.
  std::string line = message;
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  if (!line.empty()) fmt::print(stderr, "arlab: {}\n", line);
  return exit_code;
}

/// The innermost command on the command line, for a hint; CLI11 names none in its messages.
std::string help_hint(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? "arlab --help" : fmt::format("arlab {} --help", parsed.front()->get_name());
}

/// CLI11 calls a misspelt command an argument that was not expected; say what the commands are.
void check_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == argv[1]) return;
    if (!known.empty()) known += ", ";
    known += command->get_name();
  }
  arlab::fail("unknown command '{}': known are {}", argv[1], known);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"arlab: compressed collectives. Which bits, how long, and do GPU kernels agree?", "arlab"};
  app.set_version_flag("--version", ARLAB_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  arlab::cli::add_list(app);
  arlab::cli::add_encode(app);
  arlab::cli::add_decode(app);
  arlab::cli::add_reduce(app);
  arlab::cli::add_schedule(app);
  arlab::cli::add_simulate(app);
  arlab::cli::add_vectors(app);
  arlab::cli::add_study(app);
  try {
    check_command(app, argc, argv);
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0) return report_error("standard output cannot be written", kBadInput);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return report_error(fmt::format("{} (see {})", error.what(), help_hint(app)).c_str(), kBadInput);
  } catch (const arlab::cli::CheckFailed& error) {
    return report_error(error.what(), kCheckFailed);
  } catch (const arlab::InvalidInput& error) {
    return report_error(error.what(), kBadInput);
  } catch (const std::bad_alloc&) {
    return report_error("not enough memory for this request", kBadInput);
  } catch (const std::exception& error) {
    return report_error(fmt::format("internal error, please report it: {}", error.what()).c_str(), kBadInput);
  }
}

// arlab: the program. Exit codes: 0 done, 1 a check failed, 2 bad usage or input.

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string_view>
#include <system_error>

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "reference/error.h"
#include "reference/signals.h"

namespace {

constexpr int kCheckFailed = 1;
constexpr int kBadInput = 2;
constexpr const char* kNoMemory = "not enough memory for this request";

/// One line of bounded length without control characters, whatever the message holds. Takes no
/// memory: there may be none.
int report_error(std::string_view message, int exit_code) noexcept {
  constexpr std::size_t kMost = arlab::InvalidInput::kMostCharacters;
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

/// For what is thrown where nothing may be: destructors of the libraries that we use want memory,
/// and there may be none. That is a line and an exit code, as anywhere, and not an abort.
[[noreturn]] void end_at_once() noexcept {
  try {
    if (std::current_exception() != nullptr) throw;
    report_error("internal error, please report it", kBadInput);
  } catch (const std::bad_alloc&) {
    report_error(kNoMemory, kBadInput);
  } catch (const std::exception& error) {
    std::fputs("arlab: internal error, please report it\n", stderr);
    report_error(error.what(), kBadInput);
  } catch (...) {
    report_error("internal error, please report it", kBadInput);
  }
  std::_Exit(kBadInput);
}

/// Descriptors 0 to 2 are there, so that no file of ours becomes what messages are written to.
/// Those that were closed can still not be written.
void fill_standard_descriptors() {
  constexpr int kLast = 2;
  for (int descriptor = 0; descriptor <= kLast;) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) {
      ++descriptor;
    } else if (::open("/dev/null", O_RDONLY) < 0) {
      return;
    }
  }
}

/// Throws InvalidInput when stdout has not taken all that was written to it.
void require_stdout() {
  const bool flushed = std::fflush(stdout) == 0;
  if (!flushed || std::ferror(stdout) != 0 || !std::cout.flush()) {
    arlab::fail("standard output cannot be written");
  }
}

/// The innermost command on the command line, for a hint; CLI11 names none in its messages.
std::string help_hint(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? "arlab --help"
                        : fmt::format("arlab {} --help", parsed.front()->get_name());
}

/// CLI11 calls a misspelt command an argument that was not expected; say what the commands are.
void check_command(const CLI::App& app, int argc, char** argv) {
  std::string known;
  const std::string_view first = argc < 2 ? "" : argv[1];
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == first) return;
    if (!known.empty()) known += ", ";
    known += command->get_name();
  }
  if (first == "--help" || first == "-h" || first == "--version") return;
  if (argc < 2) arlab::fail("name a command: {} (see arlab --help)", known);
  if (first.starts_with('-')) {
    arlab::fail("{} before the command is not an option; name a command first: {}",
                arlab::quote(first), known);
  }
  arlab::fail("unknown command {}: known are {}", arlab::quote(first), known);
}

/// An empty value is a mistake (an unset shell variable), never a wish for the default.
void refuse_empty_values(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options()) {
      if (option->get_expected_max() == 0) continue;  // a flag
      const std::string expected = option->get_description();
      option->check([expected](const std::string& text) {
        return text.empty() ? "it is empty; expected is: " + expected : std::string();
      });
    }
  }
}

/// Runs the command. Throws what CLI11 and the commands throw; --help and --version end here.
int run(CLI::App& app, int argc, char** argv) {
  app.set_version_flag("--version", "arlab " ARLAB_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  arlab::cli::add_list(app);
  arlab::cli::add_encode(app);
  arlab::cli::add_decode(app);
  arlab::cli::add_reduce(app);
  arlab::cli::add_schedule(app);
  arlab::cli::add_simulate(app);
  arlab::cli::add_validate(app);
  arlab::cli::add_calibrate(app);
  arlab::cli::add_topology(app);
  arlab::cli::add_select(app);
  arlab::cli::add_vectors(app);
  arlab::cli::add_check_codec(app);
  arlab::cli::add_conform(app);
  arlab::cli::add_judge(app);
  arlab::cli::add_bench(app);
  arlab::cli::add_study(app);
  try {
    check_command(app, argc, argv);
    arlab::cli::set_command_line(argc, argv);
    refuse_empty_values(app);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      require_stdout();
      return 0;
    }
    arlab::fail("{} (see {})", error.what(), help_hint(app));
  }
  require_stdout();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_at_once);
  fill_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that is too large is an error of write()
  arlab::let_signals_wait();
  try {
    CLI::App app{"arlab: compressed collectives. Which bits, how long, and do GPU kernels agree?",
                 "arlab"};
    return run(app, argc, argv);
  } catch (const arlab::cli::CheckFailed& error) {
    return report_error(error.what(), kCheckFailed);
  } catch (const arlab::InvalidInput& error) {
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

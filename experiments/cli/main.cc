// arlab: the program. Exit codes: 0 done, 1 a check failed, 2 bad usage or input.

#include <fcntl.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "experiments/cli/commands.h"
#include "experiments/cli/program.h"
#include "experiments/lab/files.h"
#include "reference/signals.h"

namespace {

using arlab::cli::kBadInput;
using arlab::cli::kNoMemory;
using arlab::cli::report_error;

/// For what is thrown where nothing may be: destructors of the libraries that we use want memory,
/// and there may be none. That is a line and an exit code, as anywhere, and not an abort.
[[noreturn]] void end_at_once() noexcept {
  arlab::lab::CleanedUpAtLast::clean_up_all();
  try {
    if (std::current_exception() != nullptr) throw;
    // Thrown in a destructor, it is on its way and not caught: what a destructor wants is memory.
    const bool is_thrown = std::uncaught_exceptions() > 0;
    report_error(is_thrown ? kNoMemory : "internal error, please report it", kBadInput);
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

/// Takes a number of threads that is none (OMP_NUM_THREADS=0) out of the environment. OpenMP's library,
/// which the solver of `validate` brings along, would say so on stderr when it is loaded, in every
/// command, and then do the same.
void leave_out_wrong_threads(int /*argc*/, char** /*argv*/, char** environment) {
  constexpr std::string_view kName = "OMP_NUM_THREADS=";
  for (char** each = environment; *each != nullptr;) {
    const std::string_view variable = *each;
    const std::string_view value = variable.substr(std::min(kName.size(), variable.size()));
    const bool is_list = value.find_first_not_of("0123456789, \t") == std::string_view::npos &&
                         value.find_first_of("123456789") == value.find_first_of("0123456789,") &&
                         !value.empty();
    if (!variable.starts_with(kName) || is_list) {
      ++each;
      continue;
    }
    for (char** next = each; *next != nullptr; ++next) *next = next[1];
  }
}
/// Called before the libraries begin, which main() is too late for.
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const before_libraries)(int, char**, char**) = leave_out_wrong_threads;

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(end_at_once);
  fill_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that is too large is an error of write()
  arlab::let_signals_wait();
  // They need a solver, which nothing else does.
  constexpr arlab::cli::AddCommand kFits[] = {arlab::cli::add_validate, arlab::cli::add_calibrate};
  return arlab::cli::program_main(argc, argv, kFits);
}

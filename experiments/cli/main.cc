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
#include "reference/signals.h"

namespace {

using arlab::cli::kBadInput;
using arlab::cli::kNoMemory;
using arlab::cli::report_error;

/// For what is thrown where nothing may be: destructors of the libraries that we use want memory,
/// and there may be none. That is a line and an exit code, as anywhere, and not an abort.
[[noreturn]] void end_at_once() noexcept {
  arlab::cli::CleanedUpAtLast::clean_up_all();
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

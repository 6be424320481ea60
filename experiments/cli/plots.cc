#include "experiments/cli/plots.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "experiments/lab/hashes.h"
#include "experiments/lab/result.h"
#include "experiments/lab/run_program.h"
#include "kernels/runtime/bootstrap.h"

namespace arlab::cli {
namespace {

namespace fs = std::filesystem;
using kernels::FileDescriptor;

/// The folder that holds the package arlab: the project's, else where it is installed.
std::string package_folder() {
  // In Python, the package whose compiled part this is.
  if (const fs::path file = program_file(); file.extension() == ".so") {
    std::error_code error;
    return fs::absolute(file, error).parent_path().parent_path().string();
  }
  const fs::path of_project = fs::path(ARLAB_SOURCE_DIR) / "experiments/python";
  std::error_code error;
  if (fs::exists(of_project / "arlab/figures", error)) return of_project.string();
  return (fs::path(ARLAB_DATA_DIR) / "python").string();
}

/// The folder that holds the package with its compiled part, which a build has beside the program; else what Python finds.
std::string compiled_package_folder() {
  std::error_code error;
  const fs::path folder = fs::read_symlink(program_file(), error).parent_path() / "python";
  return !error && fs::exists(folder / "arlab", error) ? folder.string() : package_folder();
}

/// Our environment, with the package before whatever else PYTHONPATH names. Files of the working directory are none of
/// Python's modules (PYTHONSAFEPATH, of Python 3.11 and later).
std::vector<std::string> environment(const std::string& package) {
  constexpr std::string_view kPath = "PYTHONPATH=";
  std::string path = std::string(kPath) + package;
  std::vector<std::string> variables = {"PYTHONSAFEPATH=1"};
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable = *each;
    if (!variable.starts_with(kPath)) {
      if (!variable.starts_with("PYTHONSAFEPATH=")) variables.emplace_back(variable);
    } else if (variable.size() > kPath.size()) {
      path += fmt::format(":{}", variable.substr(kPath.size()));
    }
  }
  variables.push_back(std::move(path));
  return variables;
}

[[noreturn]] void fail_to_start(int error_number) {
  fail("cannot draw: {}", std::generic_category().message(error_number));
}

/// The one line in which Python has said what is wrong, or nothing.
std::string_view refusal_of(const Ended& ended) {
  constexpr std::string_view kFirst = "error: ";
  constexpr int kBadInput = 2;  // as of the program itself
  std::string_view text = ended.said;
  if (!ended.started || !WIFEXITED(ended.status) || WEXITSTATUS(ended.status) != kBadInput)
    return {};
  if (!text.starts_with(kFirst) || text.find('\n') != text.size() - 1) return {};
  text.remove_suffix(1);
  return text.substr(kFirst.size());
}

void draw_from(const std::string& kind, const std::vector<std::string>& arguments, int input,
               const std::string& kept) {
  std::vector<std::string> words = {python(), "-m", "arlab.figures", kind};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::fflush(stdout);
  const Ended ended = run_program(std::move(words), environment(package_folder()), input);
  if (const std::string_view why = refusal_of(ended); !why.empty()) fail("{}; {}", why, kept);
  write_progress(ended.said);
  if (!ended.started || ended.status != 0) {
    throw CheckFailed(fmt::format(
        "{}, but the plots failed; ./quickstart.sh installs what they need, ARLAB_PYTHON names "
        "another Python",
        kept));
  }
}

}  // namespace

void draw(const std::string& kind, const std::vector<std::string>& arguments,
          const std::string& kept) {
  draw_from(kind, arguments, -1, kept);
}

void draw(const lab::Picture& picture) {
  if (!picture.arguments.empty()) return draw(picture.kind, picture.arguments, picture.kept);
  const std::string text = json_line(picture.data);
  const FileDescriptor file(::memfd_create("arlab", MFD_CLOEXEC));
  if (!file.is_open()) fail_to_start(errno);
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = ::write(file.number(), rest.data(), rest.size());
    if (written < 0 && errno != EINTR) fail_to_start(errno);
    if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
  }
  draw_from(picture.kind, {"/dev/stdin", picture.file}, file.number(), picture.kept);
}

void become_python(const std::string& module, const std::string& argument,
                   const std::string& purpose) {
  // Whatever cannot be imported is one line here, and not a traceback.
  constexpr const char* kMain = R"(import importlib, sys
try:
    main = importlib.import_module(sys.argv[1]).main
except ImportError as error:
    print(f"arlab: {sys.argv[3]}: {error}; needed is the Python package arlab with its compiled part: ./quickstart.sh or"
          " pip install '.[distributed]' installs it, ARLAB_PYTHON names another Python", file=sys.stderr)
    sys.exit(2)
sys.exit(main(sys.argv[2]))
)";
  std::vector<std::string> words = {python(), "-c", kMain, module, argument, purpose};
  const std::vector<char*> argv = pointers(words);
  std::vector<std::string> variables = environment(compiled_package_folder());
  const std::vector<char*> envp = pointers(variables);
  std::fflush(stdout);
  ::execvpe(argv[0], argv.data(), envp.data());
  fail("{}: cannot run {}: {}; ARLAB_PYTHON names another Python", purpose, words[0],
       std::generic_category().message(errno));
}

void print_last(const std::function<void()>& draw, const std::function<void()>& print) {
  std::exception_ptr failed;
  try {
    draw();
  } catch (...) {
    failed = std::current_exception();
  }
  print();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace arlab::cli

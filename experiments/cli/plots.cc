#include "experiments/cli/plots.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "experiments/cli/report.h"

namespace arlab::cli {
namespace {

namespace fs = std::filesystem;

std::string python() {
  if (const char* chosen = std::getenv("ARLAB_PYTHON"); chosen != nullptr && *chosen != '\0')
    return chosen;
  const fs::path of_project = fs::path(ARLAB_SOURCE_DIR) / ".venv/bin/python";
  std::error_code error;
  return fs::exists(of_project, error) ? of_project.string() : "python3";
}

std::string path_of(const std::string& script) {
  const fs::path of_project = fs::path(ARLAB_SOURCE_DIR) / "experiments/studies" / script;
  std::error_code error;
  if (fs::exists(of_project, error)) return of_project.string();
  return (fs::path(ARLAB_DATA_DIR) / script).string();
}

/// An open descriptor, closed with the object.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

[[noreturn]] void fail_to_start(int error_number) {
  fail("cannot draw: {}", std::generic_category().message(error_number));
}

/// How a process ended, and what it said on stderr.
struct Ended {
  bool started = false;
  int status = 0;
  std::string said;
};

/// Runs a program to its end; `input` is its standard input, or -1 for ours.
Ended run_program(std::vector<std::string> words, int input) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_to_start(errno);
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (error != 0) fail_to_start(error);
  if (input >= 0) error = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  if (error == 0) {
    error = posix_spawn_file_actions_adddup2(&actions, to.number(), STDERR_FILENO);
  }
  Ended ended;
  pid_t child = 0;
  if (error == 0) {
    ended.started = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ) == 0;
  }
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail_to_start(error);
  if (!ended.started) return ended;
  to.close();
  constexpr std::size_t kMost = std::size_t{1} << 20;
  std::array<char, 4096> part = {};
  for (;;) {
    const ssize_t got = ::read(from.number(), part.data(), part.size());
    if (got == 0 || (got < 0 && errno != EINTR)) break;
    if (got > 0 && ended.said.size() < kMost) {
      ended.said.append(part.data(), static_cast<std::size_t>(got));
    }
  }
  while (::waitpid(child, &ended.status, 0) < 0 && errno == EINTR) {
  }
  return ended;
}

/// The one line in which a script has said what is wrong, or nothing.
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

void draw_from(const std::string& script, const std::vector<std::string>& arguments, int input,
               const std::string& kept) {
  std::vector<std::string> words = {python(), path_of(script)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::fflush(stdout);
  const Ended ended = run_program(std::move(words), input);
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

void draw(const std::string& script, const std::vector<std::string>& arguments,
          const std::string& kept) {
  draw_from(script, arguments, -1, kept);
}

void draw(const std::string& script, const nlohmann::ordered_json& data, const std::string& picture,
          const std::string& kept) {
  const std::string text = json_line(data);
  const Descriptor file(::memfd_create("arlab", MFD_CLOEXEC));
  if (file.number() < 0) fail_to_start(errno);
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = ::write(file.number(), rest.data(), rest.size());
    if (written < 0 && errno != EINTR) fail_to_start(errno);
    if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
  }
  draw_from(script, {"/dev/stdin", picture}, file.number(), kept);
}

void require_picture_name(const std::string& option, const std::string& path,
                          const std::vector<std::string>& endings) {
  const bool fits = std::any_of(endings.begin(), endings.end(), [&path](const std::string& ending) {
    return path.size() > ending.size() && path.ends_with(ending);
  });
  if (!fits) {
    fail("{} is {}: allowed is a name that ends in {}", option, quote(path),
         fmt::join(endings, " or "));
  }
  require_output_file(path);
}

}  // namespace arlab::cli

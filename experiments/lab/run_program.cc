#include "experiments/lab/run_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "kernels/runtime/file_descriptor.h"
#include "reference/error.h"

namespace arlab::lab {
namespace {

using kernels::FileDescriptor;

[[noreturn]] void fail_to_start(const std::string& program, int error_number) {
  fail("cannot run {}: {}", program, std::generic_category().message(error_number));
}

}  // namespace

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

Ended run_program(std::vector<std::string> words, std::vector<std::string> variables, int input) {
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(variables);
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_to_start(words[0], errno);
  const FileDescriptor from(ends[0]);
  FileDescriptor to(ends[1]);
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (error != 0) fail_to_start(words[0], error);
  if (input >= 0) error = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  if (error == 0) {
    error = posix_spawn_file_actions_adddup2(&actions, to.number(), STDERR_FILENO);
  }
  Ended ended;
  pid_t child = 0;
  if (error == 0) {
    ended.started = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), envp.data()) == 0;
  }
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail_to_start(words[0], error);
  if (!ended.started) return ended;
  to = FileDescriptor();  // the program has the other end, and closes it
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

}  // namespace arlab::lab

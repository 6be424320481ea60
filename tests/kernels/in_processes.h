// Ranks in processes of their own, and where they meet.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "kernels/runtime/bootstrap.h"

namespace arlab::kernels {

inline constexpr auto kLongest = std::chrono::seconds(120);  // for a test; under sanitizers
inline constexpr std::uint64_t kPatientMs = 100'000;

/// Runs `rank(r)` in a process for each of these ranks; what each says.
inline std::vector<std::string> in_processes(const std::vector<int>& ranks,
                                             const std::function<std::string(int rank)>& run) {
  struct Child {
    pid_t process;
    int pipe;
    std::string said;
  };
  std::vector<Child> children;
  for (const int rank : ranks) {
    int ends[2] = {};
    EXPECT_EQ(pipe(ends), 0);
    const pid_t process = fork();
    if (process == 0) {
      close(ends[0]);
      const std::string said = run(rank);
      const bool written = write(ends[1], said.data(), said.size()) >= 0;
      _exit(written ? 0 : 1);  // without the parent's destructors and test results
    }
    close(ends[1]);
    children.push_back({process, ends[0], {}});
  }
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  std::vector<std::string> said;
  for (Child& child : children) {
    for (;;) {
      pollfd wanted = {.fd = child.pipe, .events = POLLIN, .revents = 0};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0 || poll(&wanted, 1, static_cast<int>(left.count())) <= 0) {
        kill(child.process, SIGKILL);
        child.said = "hangs";
        break;
      }
      char buffer[4096];
      const ssize_t got = read(child.pipe, buffer, sizeof(buffer));
      if (got <= 0) break;
      child.said.append(buffer, static_cast<std::size_t>(got));
    }
    close(child.pipe);
    int status = 0;
    EXPECT_EQ(waitpid(child.process, &status, 0), child.process);
    if (WIFSIGNALED(status) && child.said != "hangs") {
      child.said += "signal " + std::to_string(WTERMSIG(status));
    }
    said.push_back(child.said);
  }
  return said;
}

inline std::vector<int> all_of(int ranks) {
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  return all;
}

/// A new folder, of mode 700.
class Meeting {
 public:
  Meeting() {
    std::string name = "/tmp/arlab-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~Meeting() {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  const std::string& folder() const { return folder_; }
  std::string path() const { return folder_ + "/ranks"; }

  Result<std::unique_ptr<Bootstrap>> join(int rank, int ranks,
                                          std::uint64_t timeout_ms = kPatientMs) const {
    return socket_bootstrap(rank, ranks, folder_, "ranks", timeout_ms);
  }

  /// As if the ranks had an all-gather of another library.
  Result<std::unique_ptr<Bootstrap>> join_with_function(int rank, int ranks) const {
    setenv("ARLAB_BOOTSTRAP_DIR", folder_.c_str(), 1);
    Result<std::unique_ptr<Bootstrap>> made = join(rank, ranks);
    if (!made.ok()) return made.status();
    const std::shared_ptr<Bootstrap> inner = std::move(made.value());
    return function_bootstrap(rank, ranks,
                              [inner](std::string_view mine) { return inner->all_gather(mine); });
  }

 private:
  std::string folder_;
};

}  // namespace arlab::kernels

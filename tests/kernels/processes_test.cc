// One process per rank: how they find each other, and collectives among them on emulated GPUs;
// ranks that die or never come.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "kernels/platform/host/emulator.h"
#include "kernels/runtime/bootstrap.h"
#include "kernels/runtime/communicator.h"
#include "tests/kernels/compared_call.h"
#include "tests/kernels/differing_calls.h"

namespace arlab::kernels {
namespace {

using namespace std::chrono_literals;

constexpr auto kLongest = 120s;  // of a test; under sanitizers
constexpr std::uint64_t kPatientMs = 100'000;

/// Runs `rank(r)` in a process for each of these ranks; what each says.
std::vector<std::string> in_processes(const std::vector<int>& ranks,
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

std::vector<int> all_of(int ranks) {
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  return all;
}

int free_port() {
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(getsockname(file, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(file);
  return ntohs(address.sin_port);
}

/// Sockets or files, at a new place every time.
class Meeting {
 public:
  explicit Meeting(bool files) {
    if (files) {
      std::string name = (std::filesystem::temp_directory_path() / "arlab-XXXXXX").string();
      EXPECT_NE(mkdtemp(name.data()), nullptr);
      folder_ = name;
    } else {
      port_ = free_port();
    }
  }
  ~Meeting() {
    std::error_code error;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  Result<std::unique_ptr<Bootstrap>> join(int rank, int ranks,
                                          std::uint64_t timeout_ms = kPatientMs) const {
    if (!folder_.empty()) return file_bootstrap(rank, ranks, folder_, timeout_ms);
    return socket_bootstrap(rank, ranks, "127.0.0.1", port_, timeout_ms);
  }

 private:
  std::string folder_;
  int port_ = 0;
};

// ---------------------------------------------------------------- bootstrap

class Bootstraps : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Over, Bootstraps, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "files" : "sockets"; });

TEST_P(Bootstraps, GatherInRankOrder) {
  for (const int ranks : {1, 2, 4}) {
    const Meeting meeting(GetParam());
    const auto said = in_processes(all_of(ranks), [&](int rank) -> std::string {
      if (rank == 0) std::this_thread::sleep_for(50ms);  // the others come first
      auto bootstrap = meeting.join(rank, ranks);
      if (!bootstrap.ok()) return bootstrap.status().message();
      std::string all;
      for (int round = 0; round < 3; ++round) {
        const std::string part(static_cast<std::size_t>(rank) * 40'000, 'x');
        const auto parts = bootstrap.value()->all_gather(part + std::to_string(rank + 10 * round));
        if (!parts.ok()) return parts.status().message();
        for (int r = 0; r < ranks; ++r) {
          const std::string& got = parts.value()[static_cast<std::size_t>(r)];
          if (got.size() < static_cast<std::size_t>(r) * 40'000) return "too short";
          all += got.substr(static_cast<std::size_t>(r) * 40'000) + " ";
        }
        const Status status = bootstrap.value()->barrier();
        if (!status.ok()) return status.message();
      }
      return all;
    });
    std::string expected;
    for (int round = 0; round < 3; ++round) {
      for (int r = 0; r < ranks; ++r) expected += std::to_string(r + 10 * round) + " ";
    }
    EXPECT_EQ(said, std::vector<std::string>(static_cast<std::size_t>(ranks), expected));
  }
}

TEST_P(Bootstraps, ARankThatNeverComesIsNamedOnAllOthers) {
  for (const int missing : {1, 2}) {
    const Meeting meeting(GetParam());
    std::vector<int> present = all_of(3);
    std::erase(present, missing);
    const auto said = in_processes(present, [&](int rank) -> std::string {
      auto bootstrap = meeting.join(rank, 3, 300);
      if (!bootstrap.ok()) return bootstrap.status().message();
      const Status status = bootstrap.value()->barrier();
      // The error stays.
      return status.ok() ? "came" : bootstrap.value()->barrier().message();
    });
    for (const std::string& line : said) {
      EXPECT_EQ(line, "rank " + std::to_string(missing) + " did not arrive within 300 ms");
    }
  }
}

TEST_P(Bootstraps, RankZeroThatNeverComesIsNamed) {
  const Meeting meeting(GetParam());
  const auto said = in_processes({1}, [&](int rank) -> std::string {
    auto bootstrap = meeting.join(rank, 2, 300);
    return bootstrap.ok() ? bootstrap.value()->barrier().message() : bootstrap.status().message();
  });
  EXPECT_EQ(said[0].find("rank 0 did not arrive"), 0U) << said[0];
}

TEST_P(Bootstraps, ARankThatDiesIsNamedOnAllOthers) {
  for (int dead = 0; dead < 3; ++dead) {
    const Meeting meeting(GetParam());
    const auto said = in_processes(all_of(3), [&](int rank) -> std::string {
      auto bootstrap = meeting.join(rank, 3, 1000);
      if (!bootstrap.ok() || !bootstrap.value()->barrier().ok()) return "too early";
      if (rank == dead) _exit(0);
      return bootstrap.value()->all_gather("x").status().message();
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == dead) continue;
      const std::string& line = said[static_cast<std::size_t>(rank)];
      EXPECT_EQ(line.find("rank " + std::to_string(dead)), 0U) << line;
    }
  }
}

TEST(Bootstrap, BadPlacesAndRanks) {
  const auto message_of = [](const auto& result) {
    EXPECT_FALSE(result.ok());
    return result.ok() ? std::string() : result.status().message();
  };
  EXPECT_EQ(message_of(socket_bootstrap(2, 2, "127.0.0.1", 1)), "rank 2: allowed are 0 to 1");
  EXPECT_EQ(message_of(socket_bootstrap(0, 0, "127.0.0.1", 1)),
            "world size 0: allowed are 1 and more");
  EXPECT_NE(message_of(socket_bootstrap(0, 2, "no.such.host.invalid", 80)).find("is no address"),
            std::string::npos);
  EXPECT_EQ(message_of(file_bootstrap(0, 2, "/no/such/folder")), "/no/such/folder is not a folder");
  EXPECT_FALSE(function_bootstrap(0, 2, {}).ok());
  const auto wrong = function_bootstrap(
      0, 2, [](std::string_view) { return std::vector<std::string>{"only one"}; });
  EXPECT_EQ(wrong.value()->barrier().message(), "gathered 1 parts for 2 ranks");

  const Meeting meeting(true);
  EXPECT_TRUE(meeting.join(0, 1).value()->barrier().ok());
  EXPECT_NE(message_of(meeting.join(0, 1)).find("holds files of another run"), std::string::npos);
}

TEST(Bootstrap, FromTheEnvironment) {
  const auto said = in_processes({0}, [&](int) -> std::string {
    const auto message = [] { return bootstrap_from_environment(100).status().message() + "\n"; };
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "ARLAB_PORT",
                             "ARLAB_BOOTSTRAP_DIR"}) {
      unsetenv(name);
    }
    std::string all = message();
    setenv("WORLD_SIZE", "2x", 1);
    all += message();
    setenv("WORLD_SIZE", "2", 1);
    setenv("RANK", "2", 1);
    all += message();
    setenv("RANK", "1", 1);
    all += message();
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(free_port() - 1).c_str(), 1);
    all += message().substr(0, 34) + "\n";
    setenv("WORLD_SIZE", "1", 1);
    setenv("RANK", "0", 1);
    const auto alone = bootstrap_from_environment(100);
    return all + (alone.ok() && alone.value()->barrier().ok() ? "alone" : "not alone");
  });
  EXPECT_EQ(said[0],
            "WORLD_SIZE is not in the environment: start the ranks with torchrun or a similar "
            "launcher\n"
            "WORLD_SIZE='2x': allowed is an integer from 1 to 65536\n"
            "RANK='2': allowed is an integer from 0 to 1\n"
            "neither MASTER_ADDR nor ARLAB_BOOTSTRAP_DIR is in the environment: where is rank 0?\n"
            "rank 0 did not arrive at 127.0.0.1\n"
            "alone");
}

// ---------------------------------------------------------------- communicators

CommunicatorOptions options_of(std::uint64_t timeout_ms) {
  return {.blocks = 2, .slot_bytes = 16384, .timeout_nanoseconds = timeout_ms * 1'000'000};
}

TEST(Processes, CollectivesHaveTheReferencesBits) {
  for (const int ranks : {2, 3, 4}) {
    const Meeting meeting(ranks == 3);
    const auto said = in_processes(all_of(ranks), [&](int rank) -> std::string {
      auto bootstrap = meeting.join(rank, ranks);
      if (!bootstrap.ok()) return bootstrap.status().message();
      // All ranks on one device, or each on its own.
      auto communicator =
          Communicator::create(ranks == 2 ? 0 : rank, *bootstrap.value(), options_of(kPatientMs));
      if (!communicator.ok()) return communicator.status().message();
      bootstrap.value().reset();
      int seed = 0;
      for (const CollectiveRequest& request :
           {request_of("two_shot", "qr-q4", 1000), request_of("two_shot", "qr-q4", 9000),
            request_of("one_shot", "fp16", 3000), request_of("ring", "qr-q8", 5001),
            request_of("all_to_all", "int5-g128", 3072), request_of("two_shot", "fp16", 1)}) {
        if (seed % ranks == rank) std::this_thread::sleep_for(20ms);  // late, in turn
        const std::string wrong = compared_call(communicator.value(), request, ++seed);
        if (!wrong.empty()) return wrong;
      }
      // Destroyed in any order.
      std::this_thread::sleep_for(20ms * ((rank + 1) % ranks));
      return "right";
    });
    EXPECT_EQ(said, std::vector<std::string>(static_cast<std::size_t>(ranks), "right"));
  }
}

TEST(Processes, ARankWithOtherInputsIsNoticed) {
  // The comparison above can fail.
  const Meeting meeting(false);
  const auto said = in_processes(all_of(2), [&](int rank) -> std::string {
    auto bootstrap = meeting.join(rank, 2);
    if (!bootstrap.ok()) return bootstrap.status().message();
    auto communicator = Communicator::create(rank, *bootstrap.value(), options_of(kPatientMs));
    if (!communicator.ok()) return communicator.status().message();
    return compared_call(communicator.value(), request_of("one_shot", "fp16", 100), rank);
  });
  EXPECT_EQ(said, std::vector<std::string>(2, "one_shot fp16 has other bits than the reference"));
}

TEST(Processes, ARankThatDiesOrNeverCallsIsNamedOnAllOthers) {
  // Real time: a call that is right must be over by then, on a slow build and a busy machine.
  constexpr std::uint64_t kTimeoutMs = ARLAB_SHORT_TESTS ? 15'000 : 3'000;
  constexpr auto kTimeout = std::chrono::milliseconds(kTimeoutMs);
  for (const bool dies : {true, false}) {
    const Meeting meeting(false);
    const auto begin = std::chrono::steady_clock::now();
    const auto said = in_processes(all_of(3), [&](int rank) -> std::string {
      auto bootstrap = meeting.join(rank, 3);
      if (!bootstrap.ok()) return bootstrap.status().message();
      auto communicator = Communicator::create(rank, *bootstrap.value(), options_of(kTimeoutMs));
      if (!communicator.ok()) return communicator.status().message();
      const std::string wrong =
          compared_call(communicator.value(), request_of("two_shot", "qr-q4", 3000), 1);
      if (!wrong.empty()) return wrong;
      if (!bootstrap.value()->barrier().ok()) return "no barrier";
      if (rank == 1) {
        if (dies) _exit(0);
        std::this_thread::sleep_for(2 * kTimeout);
        return communicator.value().check().message();
      }
      const std::string first =
          compared_call(communicator.value(), request_of("two_shot", "qr-q4", 3000), 2);
      // From then on nothing waits.
      const auto now = std::chrono::steady_clock::now();
      const std::string second =
          compared_call(communicator.value(), request_of("ring", "fp16", 3000), 3);
      if (first != second) return first + " then " + second;
      return std::chrono::steady_clock::now() - now > 1s ? "waits again" : first;
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == 1 && dies) continue;
      EXPECT_EQ(said[static_cast<std::size_t>(rank)],
                "rank 1 did not arrive within " + std::to_string(kTimeoutMs) +
                    " ms (seen by rank " + std::to_string(rank) + ")");
    }
    EXPECT_GE(std::chrono::steady_clock::now() - begin, kTimeout);
  }
}

TEST(Processes, RanksInDifferentCallsAreNamedOnBoth) {
  const auto pairs = differing_pairs();
  const Meeting meeting(false);
  const auto said = in_processes(all_of(2), [&](int rank) -> std::string {
    auto bootstrap = meeting.join(rank, 2);
    if (!bootstrap.ok()) return bootstrap.status().message();
    std::string wrong;
    for (const auto& [call_of_0, call_of_1] : pairs) {
      auto communicator = Communicator::create(rank, *bootstrap.value(), options_of(kPatientMs));
      if (!communicator.ok()) return communicator.status().message();
      const std::string error =
          compared_call(communicator.value(), rank == 0 ? call_of_0 : call_of_1, 1);
      if (error != differing_calls_error(0, call_of_0, 1, call_of_1)) wrong += error + "\n";
      // Neither has gone before the other knows.
      if (!bootstrap.value()->barrier().ok()) return "no barrier";
    }
    return wrong;
  });
  EXPECT_EQ(said, std::vector<std::string>(2));
}

TEST(Processes, WhatOneRankCannotDoIsTheErrorOfAll) {
  const auto errors = [](const std::function<CommunicatorOptions(int)>& options,
                         const std::function<int(int)>& device) {
    const Meeting meeting(false);
    return in_processes(all_of(2), [&](int rank) -> std::string {
      auto bootstrap = meeting.join(rank, 2);
      if (!bootstrap.ok()) return bootstrap.status().message();
      return Communicator::create(device(rank), *bootstrap.value(), options(rank))
          .status()
          .message();
    });
  };
  const auto usual = [](int) { return options_of(1000); };
  const auto own = [](int rank) { return rank; };
  EXPECT_EQ(errors(usual, [](int rank) { return rank == 1 ? 99 : 0; }),
            std::vector<std::string>(2, "rank 1: its device cannot be used: no such device"));
  EXPECT_EQ(errors([](int rank) { return options_of(1000 + static_cast<unsigned>(rank)); }, own),
            std::vector<std::string>(2, "rank 1 has other options than rank 0"));
  EXPECT_EQ(errors([](int) { return CommunicatorOptions{.blocks = -1}; }, own),
            std::vector<std::string>(2, "rank 0: -1 blocks: allowed are 0 to 1024"));
}

TEST(Processes, OneHostAndSeveralProcessesAreNeeded) {
  // A second rank that says the same as the first, or the same from another machine.
  const auto error_with = [](bool elsewhere) {
    const auto bootstrap = function_bootstrap(0, 2, [=](std::string_view mine) {
      std::string other(mine);
      // Text of host and boot follow the error's, 248 bytes each.
      for (const std::size_t at : {248U, 496U}) {
        if (elsewhere) other.replace(at, 5, std::string("other"));
      }
      return Result<std::vector<std::string>>(std::vector<std::string>{std::string(mine), other});
    });
    return Communicator::create(0, *bootstrap.value(), options_of(1000)).status().message();
  };
  EXPECT_EQ(error_with(false),
            "ranks 0 and 1 are in one process: make such a team with in_process");
  EXPECT_NE(error_with(true).find("a communicator needs all ranks on one host"), std::string::npos)
      << error_with(true);
}

}  // namespace
}  // namespace arlab::kernels

// How ranks in processes of their own find each other; ranks that die or never come; and all those
// who should not get in.

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/kernels/in_processes.h"

namespace arlab::kernels {
namespace {

using namespace std::chrono_literals;

constexpr uid_t kNobody = 65534;

TEST(Bootstrap, GathersInRankOrder) {
  for (const int ranks : {1, 2, 4}) {
    const Meeting meeting;
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

TEST(Bootstrap, GathersFiles) {
  for (const bool function : {false, true}) {
    const Meeting meeting;
    const auto said = in_processes(all_of(3), [&](int rank) -> std::string {
      auto bootstrap = function ? meeting.join_with_function(rank, 3) : meeting.join(rank, 3);
      if (!bootstrap.ok()) return bootstrap.status().message();
      const FileDescriptor mine(memfd_create("test", MFD_CLOEXEC));
      const char digit = static_cast<char>('0' + rank);
      if (pwrite(mine.number(), &digit, 1, 0) != 1) return "cannot write";
      std::string all;
      for (int round = 0; round < 2; ++round) {
        const auto files = bootstrap.value()->all_gather_files(mine.number());
        if (!files.ok()) return files.status().message();
        for (const FileDescriptor& file : files.value()) {
          char read = '-';
          if (file.is_open() && pread(file.number(), &read, 1, 0) != 1) return "cannot read";
          if (file.is_open() && fcntl(file.number(), F_GETFD) != FD_CLOEXEC) return "is inherited";
          all += read;
        }
        if (!bootstrap.value()->barrier().ok()) return "no barrier";
      }
      return all;
    });
    EXPECT_EQ(said, (std::vector<std::string>{"-12-12", "0-20-2", "01-01-"}));
  }
}

TEST(Bootstrap, ARankThatNeverComesIsNamedOnAllOthers) {
  for (const int missing : {1, 2}) {
    const Meeting meeting;
    std::vector<int> present = all_of(3);
    std::erase(present, missing);
    const auto said = in_processes(present, [&](int rank) -> std::string {
      auto bootstrap = meeting.join(rank, 3, 300);
      return bootstrap.ok() ? "came" : bootstrap.status().message();
    });
    for (const std::string& line : said) {
      EXPECT_EQ(line, "rank " + std::to_string(missing) + " did not arrive within 300 ms");
    }
  }
}

TEST(Bootstrap, RankZeroThatNeverComesIsNamed) {
  const Meeting meeting;
  EXPECT_EQ(meeting.join(1, 2, 300).status().message(),
            "rank 0 did not arrive at " + meeting.path() + " within 300 ms");
}

TEST(Bootstrap, ARankThatDiesIsNamedOnAllOthers) {
  for (int dead = 0; dead < 3; ++dead) {
    const Meeting meeting;
    const auto said = in_processes(all_of(3), [&](int rank) -> std::string {
      auto bootstrap = meeting.join(rank, 3, 1000);
      if (!bootstrap.ok() || !bootstrap.value()->barrier().ok()) return "too early";
      if (rank == dead) _exit(0);
      const std::string message = bootstrap.value()->all_gather("x").status().message();
      // The error stays.
      return bootstrap.value()->barrier().message() == message ? message : "another one";
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == dead) continue;
      const std::string& line = said[static_cast<std::size_t>(rank)];
      EXPECT_EQ(line.find("rank " + std::to_string(dead)), 0U) << line;
    }
  }
}

TEST(Bootstrap, TheSameRanksMeetAgainAtOnce) {
  const Meeting meeting;
  const auto said = in_processes(all_of(3), [&](int rank) -> std::string {
    for (int round = 0; round < 30; ++round) {
      const auto bootstrap = meeting.join(rank, 3);
      if (!bootstrap.ok()) return bootstrap.status().message();
    }
    return "met";
  });
  EXPECT_EQ(said, std::vector<std::string>(3, "met"));
  EXPECT_FALSE(std::filesystem::exists(meeting.path()));
}

TEST(Bootstrap, BadPlacesAndRanks) {
  const auto message_of = [](const auto& result) {
    EXPECT_FALSE(result.ok());
    return result.ok() ? std::string() : result.status().message();
  };
  EXPECT_EQ(message_of(socket_bootstrap(2, 2, "/tmp", "x")), "rank 2: allowed are 0 to 1");
  EXPECT_EQ(message_of(socket_bootstrap(0, 0, "/tmp", "x")),
            "world size 0: allowed are 1 and more");
  EXPECT_FALSE(function_bootstrap(0, 2, {}).ok());
  const auto wrong = function_bootstrap(
      0, 2, [](std::string_view) { return std::vector<std::string>{"only one"}; });
  EXPECT_EQ(wrong.value()->barrier().message(), "gathered 1 parts for 2 ranks");

  for (const int rank : {0, 1}) {
    const Meeting meeting;
    const std::string here = "ranks cannot meet in the folder " + meeting.folder();
    EXPECT_EQ(message_of(socket_bootstrap(rank, 2, meeting.folder() + "/x", "x")),
              here + "/x: No such file or directory");
    EXPECT_EQ(message_of(socket_bootstrap(rank, 2, meeting.folder(), "x/y")),
              "x/y is no name for a socket");
    EXPECT_EQ(message_of(socket_bootstrap(rank, 2, meeting.folder(), std::string(100, 'x'))),
              std::string(100, 'x') + " is no name for a socket");
    std::filesystem::create_directory_symlink(meeting.folder(), meeting.folder() + "/link");
    EXPECT_EQ(message_of(socket_bootstrap(rank, 2, meeting.folder() + "/link", "x")),
              here + "/link: Not a directory");
    // Others could put a socket of theirs there, or go in.
    for (const mode_t mode : {0755U, 0710U, 01777U}) {
      ASSERT_EQ(chmod(meeting.folder().c_str(), mode), 0);
      EXPECT_NE(message_of(meeting.join(rank, 2)).find(here + ": it has mode"), std::string::npos);
    }
    ASSERT_EQ(chmod(meeting.folder().c_str(), 0700), 0);
    if (geteuid() == 0) {
      ASSERT_EQ(chown(meeting.folder().c_str(), kNobody, kNobody), 0);
      EXPECT_EQ(message_of(meeting.join(rank, 2)),
                here +
                    ": it belongs to user 65534, not to 0; name a folder of mode 700 in "
                    "ARLAB_BOOTSTRAP_DIR");
    }
  }
}

TEST(Bootstrap, FromTheEnvironment) {
  const Meeting meeting;
  const auto said = in_processes({0}, [&](int) -> std::string {
    const auto message = [] { return bootstrap_from_environment(100).status().message() + "\n"; };
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                             "ARLAB_BOOTSTRAP_DIR"}) {
      unsetenv(name);
    }
    std::string all = message();
    setenv("WORLD_SIZE", "2x", 1);
    all += message();
    setenv("WORLD_SIZE", "2", 1);
    setenv("RANK", "2\xff", 1);
    all += message();
    setenv("RANK", "1", 1);
    setenv("LOCAL_WORLD_SIZE", "1", 1);
    all += message();
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    all += message();
    setenv("MASTER_PORT", "0", 1);
    all += message();
    const std::string port = std::to_string(getpid() % 60'000 + 1);
    setenv("MASTER_PORT", port.c_str(), 1);
    const std::string there = "/tmp/arlab-" + std::to_string(geteuid()) + "/port-" + port;
    all += message() == "rank 0 did not arrive at " + there + " within 100 ms\n" ? "there\n" : "";
    setenv("ARLAB_BOOTSTRAP_DIR", (meeting.folder() + "/no").c_str(), 1);
    all += message().substr(0, 31) + "\n";
    setenv("WORLD_SIZE", "1", 1);
    setenv("LOCAL_WORLD_SIZE", "1", 1);
    setenv("RANK", "0", 1);
    const auto alone = bootstrap_from_environment(100);
    return all + (alone.ok() && alone.value()->barrier().ok() ? "alone" : "not alone");
  });
  EXPECT_EQ(said[0],
            "WORLD_SIZE is not in the environment: start the ranks with torchrun or a similar "
            "launcher\n"
            "WORLD_SIZE='2x': allowed is an integer from 1 to 65536\n"
            "RANK='2\\xff': allowed is an integer from 0 to 1\n"
            "WORLD_SIZE is 2 and LOCAL_WORLD_SIZE 1: a communicator needs all ranks on one host\n"
            "neither MASTER_PORT nor ARLAB_BOOTSTRAP_DIR is in the environment: where do the ranks "
            "meet?\n"
            "MASTER_PORT='0': allowed is an integer from 1 to 65535\n"
            "there\n"
            "ranks cannot meet in the folder\n"
            "alone");
}

TEST(Bootstrap, WhatOthersSayIsReadable) {
  EXPECT_EQ(readable("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(readable(""), "''");
  // A lone byte, too long a form, a surrogate, beyond the last character, cut off, control.
  EXPECT_EQ(readable("a\x80"), "'a\\x80'");
  EXPECT_EQ(readable("\xc0\xaf"), "'\\xc0\\xaf'");
  EXPECT_EQ(readable("\xe0\x80\xaf"), "'\\xe0\\x80\\xaf'");
  EXPECT_EQ(readable("\xed\xa0\x80"), "'\\xed\\xa0\\x80'");
  EXPECT_EQ(readable("\xf4\x90\x80\x80"), "'\\xf4\\x90\\x80\\x80'");
  EXPECT_EQ(readable("\xff"), "'\\xff'");
  EXPECT_EQ(readable("\xe2\x82"), "'\\xe2\\x82'");
  EXPECT_EQ(readable("a\nb"), "'a\\x0ab'");
  EXPECT_EQ(readable("\x1b[2J"), "'\\x1b[2J'");
  EXPECT_EQ(readable("\xc2\x9b"), "'\\xc2\\x9b'");
  EXPECT_EQ(readable(std::string(1001, 'x')), "'" + std::string(60, 'x') + "'...");
}

// ---------------------------------------------------------------- those who should not get in

/// The language of socket_bootstrap.cc, for those who speak it wrongly.
constexpr std::uint32_t kMagic = 0x4c524101;
struct Hello {
  std::uint32_t magic;
  std::uint32_t version;
  std::int32_t rank;
  std::int32_t ranks;
};
struct Header {
  std::uint32_t magic;
  std::uint32_t kind;
  std::uint32_t bytes;
};
constexpr std::uint32_t kWelcome = 0;
constexpr std::uint32_t kPart = 1;
constexpr std::uint32_t kParts = 2;
constexpr std::uint32_t kFiles = 3;
constexpr std::uint32_t kError = 4;

template <class T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

sockaddr_un address_of(const Meeting& meeting) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = meeting.path();
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return address;
}

/// Somebody who connects, as soon as there is something to connect to.
class Stranger {
 public:
  explicit Stranger(const Meeting& meeting) {
    const sockaddr_un address = address_of(meeting);
    while (connect(socket_.number(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)) != 0) {
      if (errno == EACCES) return;
      std::this_thread::sleep_for(1ms);
    }
    connected_ = true;
  }

  bool connected() const { return connected_; }
  /// By the other side.
  bool is_closed() const {
    char byte = 0;
    return recv(socket_.number(), &byte, 1, MSG_DONTWAIT) == 0;
  }
  void say(const std::string& bytes) const {
    (void)!send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// With this many descriptors of files.
  void say_with_files(char byte, std::size_t files) const {
    iovec body = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &body;
    message.msg_iovlen = 1;
    if (files != 0) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(files * sizeof(int));
      cmsghdr* const attached = CMSG_FIRSTHDR(&message);
      attached->cmsg_level = SOL_SOCKET;
      attached->cmsg_type = SCM_RIGHTS;
      attached->cmsg_len = CMSG_LEN(files * sizeof(int));
      const int numbers[4] = {0, 0, 0, 0};
      std::memcpy(CMSG_DATA(attached), numbers, files * sizeof(int));
    }
    (void)!sendmsg(socket_.number(), &message, MSG_NOSIGNAL);
  }
  /// Up to so many bytes; fewer when the other side closes.
  std::string hear(std::size_t bytes) const {
    std::string heard(bytes, 0);
    std::size_t size = 0;
    while (size < bytes) {
      const ssize_t got = recv(socket_.number(), &heard[size], bytes - size, 0);
      if (got <= 0) break;
      size += static_cast<std::size_t>(got);
    }
    return heard.substr(0, size);
  }

 private:
  FileDescriptor socket_ = FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  bool connected_ = false;
};

/// Rank 1 does something strange before it joins. All is as if it had not.
void expect_they_meet(const std::function<std::string(const Meeting&)>& strange,
                      rlim_t files_of_rank_0 = 0) {
  const Meeting meeting;
  const auto said = in_processes(all_of(2), [&](int rank) -> std::string {
    const rlimit limit = {files_of_rank_0, files_of_rank_0};
    if (rank == 0 && limit.rlim_cur != 0 && setrlimit(RLIMIT_NOFILE, &limit) != 0) {
      return "cannot limit files";
    }
    if (rank == 1) {
      const std::string wrong = strange(meeting);
      if (!wrong.empty()) return wrong;
    }
    auto bootstrap = meeting.join(rank, 2, 20'000);
    if (!bootstrap.ok()) return bootstrap.status().message();
    const auto parts = bootstrap.value()->all_gather(std::to_string(rank));
    return parts.ok() ? parts.value()[0] + parts.value()[1] : parts.status().message();
  });
  EXPECT_EQ(said, std::vector<std::string>(2, "01"));
}

TEST(BootstrapStrangers, AreNotHeardAndHarmNobody) {
  const Hello right = {kMagic, 1, 1, 2};
  const std::string wrong_magics[] = {bytes_of(Hello{0, 1, 1, 2}),
                                      bytes_of(Hello{kMagic + 1, 1, 1, 2})};
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), std::string(1 << 20, '\xff'),
        std::string(1000, '\0'), bytes_of(right).substr(0, 15), std::string(), wrong_magics[0],
        wrong_magics[1]}) {
    expect_they_meet([&](const Meeting& meeting) -> std::string {
      // One who stays, and one who goes.
      static std::vector<Stranger> staying;
      staying.emplace_back(meeting).say(bytes.substr(0, 4096));
      Stranger(meeting).say(bytes.substr(0, 4096));
      return {};
    });
  }
}

TEST(BootstrapStrangers, ManyWhoAreSilentHoldNobodyUp) {
  const auto begin = std::chrono::steady_clock::now();
  for (const rlim_t files : {0U, 50U}) {  // as many as there may be, or fewer than strangers
    expect_they_meet(
        [](const Meeting& meeting) -> std::string {
          static std::vector<Stranger> staying;
          for (int i = 0; i < 300; ++i) staying.emplace_back(meeting);
          return {};
        },
        files);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
}

/// Rank 0 keeps 128 of them at most, those who came last.
TEST(BootstrapStrangers, TheFirstOfManyHaveToMakeRoom) {
  const Meeting meeting;
  const std::string counted = meeting.folder() + "/counted";
  const auto said = in_processes(all_of(3), [&](int who) -> std::string {
    if (who == 2) {
      std::vector<Stranger> strangers;
      for (int i = 0; i < 300; ++i) strangers.emplace_back(meeting);
      const auto closed = [&] {
        return std::count_if(strangers.begin(), strangers.end(),
                             [](const Stranger& stranger) { return stranger.is_closed(); });
      };
      for (int i = 0; i < 500 && closed() < 300 - 128; ++i) std::this_thread::sleep_for(10ms);
      const bool first_are = strangers[0].is_closed() && !strangers[299].is_closed();
      const std::string answer = fmt::format("{} {}", closed(), first_are);
      std::ofstream(counted) << "!";
      return answer;
    }
    for (int i = 0; who == 1 && i < 1000 && !std::filesystem::exists(counted); ++i) {
      std::this_thread::sleep_for(10ms);
    }
    const auto bootstrap = meeting.join(who, 2, 20'000);
    return bootstrap.ok() ? "met" : bootstrap.status().message();
  });
  EXPECT_EQ(said, (std::vector<std::string>{"met", "met", "172 true"}));
}

TEST(BootstrapStrangers, AFloodOfThemHoldsNobodyUp) {
  const Meeting meeting;
  const auto said = in_processes(all_of(3), [&](int who) -> std::string {
    if (who == 2) {
      // Until rank 0 has all it waits for, and takes the socket away.
      const Stranger first(meeting);
      const sockaddr_un address = address_of(meeting);
      std::vector<FileDescriptor> open;
      for (;;) {
        open.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (connect(open.back().number(), reinterpret_cast<const sockaddr*>(&address),
                    sizeof(address)) != 0 &&
            errno != EAGAIN) {
          return "over";
        }
        if (open.size() == 200) open.clear();
      }
    }
    if (who == 1) std::this_thread::sleep_for(200ms);
    const auto bootstrap = meeting.join(who, 2, 20'000);
    return bootstrap.ok() ? "met" : bootstrap.status().message();
  });
  EXPECT_EQ(said, (std::vector<std::string>{"met", "met", "over"}));
}

/// In a process of another user: what `say` says.
std::string as_nobody(const std::function<std::string()>& say) {
  return in_processes({0}, [&](int) -> std::string {
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) return "cannot change the user";
    return say();
  })[0];
}

TEST(BootstrapStrangers, OfOtherUsersDoNotGetIn) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  const std::string hello = bytes_of(Hello{kMagic, 1, 1, 2});
  expect_they_meet([&](const Meeting& meeting) -> std::string {
    {
      const Stranger wait_for_rank_0(meeting);
    }
    const std::string outside = as_nobody(
        [&] { return std::string(Stranger(meeting).connected() ? "gets in" : "stays out"); });
    if (outside != "stays out") return outside;
    // And if folder and socket let them in, the kernel still says who they are.
    if (chmod(meeting.folder().c_str(), 0711) != 0 || chmod(meeting.path().c_str(), 0666) != 0) {
      return "cannot open the folder";
    }
    const std::string inside = as_nobody([&]() -> std::string {
      const Stranger stranger(meeting);
      stranger.say(hello);
      return stranger.connected() && stranger.hear(1).empty() ? "turned away" : "heard";
    });
    if (inside != "turned away") return inside;
    return chmod(meeting.folder().c_str(), 0700) == 0 ? "" : "cannot close the folder";
  });
}

/// A rank 0 that does what a test says.
class FalseRankZero {
 public:
  FalseRankZero(const Meeting& meeting, int backlog) {
    const sockaddr_un address = address_of(meeting);
    EXPECT_EQ(
        bind(listener_.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    if (backlog >= 0) {
      EXPECT_EQ(listen(listener_.number(), backlog), 0);
    }
  }
  int number() const { return listener_.number(); }
  FileDescriptor accept_one() const {
    return FileDescriptor(accept(listener_.number(), nullptr, nullptr));
  }

 private:
  FileDescriptor listener_ = FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
};

TEST(BootstrapStrangers, ASocketOfAnotherUserIsNotTrusted) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can act as another user";
  const Meeting meeting;
  const FalseRankZero squatter(meeting, -1);
  // Who listens counts, and is asked for then.
  EXPECT_EQ(as_nobody([&]() -> std::string {
              return listen(squatter.number(), 5) == 0 ? "listens" : "does not listen";
            }),
            "listens");
  EXPECT_EQ(meeting.join(1, 2, 300).status().message(),
            "a process of user 65534 listens at " + meeting.path());
}

TEST(BootstrapStrangers, AFullQueueIsWaitedForNoLongerThanAllowed) {
  const Meeting meeting;
  const FalseRankZero busy(meeting, 0);
  const sockaddr_un address = address_of(meeting);
  std::vector<FileDescriptor> queue;
  do {
    queue.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (connect(queue.back().number(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)) == 0);
  ASSERT_EQ(errno, EAGAIN);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(meeting.join(1, 2, 300).status().message(),
            "rank 0 did not arrive at " + meeting.path() + " within 300 ms");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(BootstrapStrangers, ASilentRankZeroIsWaitedForNoLongerThanAllowed) {
  const Meeting meeting;
  const FalseRankZero silent(meeting, 5);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(meeting.join(1, 2, 100).status().message(), "rank 0 did not answer within 100 ms");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(BootstrapStrangers, AreInTheWayOfRankZero) {
  const Meeting meeting;
  const std::string cannot = "rank 0 cannot listen at " + meeting.path();
  {
    const FalseRankZero another(meeting, 5);
    EXPECT_EQ(meeting.join(0, 2, 300).status().message(),
              cannot + ": another rank 0 does; give every group of ranks a MASTER_PORT of its own");
  }
  // Its socket is still there, but nobody listens any more.
  EXPECT_EQ(meeting.join(0, 2, 100).status().message(), "rank 1 did not arrive within 100 ms");
  std::ofstream(meeting.path()) << "a file";
  EXPECT_EQ(meeting.join(0, 2, 300).status().message(), cannot + ": it is there, and is no socket");
  EXPECT_EQ(std::filesystem::file_size(meeting.path()), 6U);
}

/// The most memory that this process has had, in KiB.
std::size_t peak_kib() {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word && word != "VmHWM:") {
  }
  std::size_t kib = 0;
  file >> kib;
  return kib;
}

TEST(BootstrapStrangers, WhatAFalseRankZeroSaysDoesNoHarm) {
  const std::string welcome = bytes_of(Header{kMagic, kWelcome, 0});
  const std::string false_error = bytes_of(Header{kMagic, kError, 5}) + "no\xff\n!";
  const std::string language = "rank 0 does not speak the same language";
  const std::string part = bytes_of(std::uint32_t{1}) + "x";
  struct Case {
    std::string said;
    std::string message;
  };
  for (const Case& wrong : {
           Case{"HTTP/1.1 400 Bad Request\r\n", language},
           Case{bytes_of(Header{kMagic, kWelcome, 1U << 30}), language},
           Case{bytes_of(Header{kMagic, kError, 1U << 30}), language},
           Case{bytes_of(Header{kMagic, 17, 0}), language},
           Case{bytes_of(Header{kMagic, kParts, 0}), language},
           Case{false_error, "'no\\xff\\x0a!'"},
           Case{"", "rank 0 has ended"},
           Case{welcome + bytes_of(Header{kMagic, kParts, 0xffffffffU}), language},
           Case{welcome + bytes_of(Header{kMagic, kWelcome, 0}), language},
           Case{welcome + bytes_of(Header{kMagic, kParts, 64U << 20}), "rank 0 has ended"},
           Case{welcome + bytes_of(Header{kMagic, kParts, 3}) + "abc", language},
           Case{welcome + bytes_of(Header{kMagic, kParts, 4}) + "\xff\xff\xff\xff", language},
           // Parts of one rank, and of three.
           Case{welcome + bytes_of(Header{kMagic, kParts, 5}) + part, language},
           Case{welcome + bytes_of(Header{kMagic, kParts, 15}) + part + part + part, language},
       }) {
    const Meeting meeting;
    const FalseRankZero zero(meeting, 5);
    const auto said = in_processes({0, 1}, [&](int rank) -> std::string {
      if (rank == 0) {
        const FileDescriptor peer = zero.accept_one();
        (void)!send(peer.number(), wrong.said.data(), wrong.said.size(), MSG_NOSIGNAL);
        // Reads rank 1's messages until it gives up; so that it hears all this before the end.
        shutdown(peer.number(), SHUT_WR);
        char byte = 0;
        while (recv(peer.number(), &byte, 1, 0) > 0) {
        }
        return {};
      }
      const std::size_t before = peak_kib();
      auto bootstrap = meeting.join(1, 2, 20'000);
      const Status status =
          bootstrap.ok() ? bootstrap.value()->all_gather("x").status() : bootstrap.status();
      if (peak_kib() > before + (32U << 10)) return "has taken memory";
      return status.ok() ? "fine" : status.message();
    });
    EXPECT_EQ(said[1], wrong.message);
  }
}

TEST(BootstrapStrangers, WhatAFalseRankSaysIsTheErrorOfAll) {
  const std::string hello = bytes_of(Hello{kMagic, 1, 1, 3});
  const std::string language = "rank 1 does not speak the same language";
  struct Case {
    std::string hello;
    std::string said;
    std::string message;
  };
  for (const Case& wrong : {
           Case{bytes_of(Hello{kMagic, 9, 1, 3}), "",
                "rank 1 is of another version of arlab than rank 0"},
           Case{bytes_of(Hello{kMagic, 1, 1, 4}), "", "a rank 1 of 4 came to a group of 3"},
           Case{bytes_of(Hello{kMagic, 1, 0, 3}), "", "a rank 0 of 3 came to a group of 3"},
           Case{bytes_of(Hello{kMagic, 1, -1, 3}), "", "a rank -1 of 3 came to a group of 3"},
           Case{bytes_of(Hello{kMagic, 1, 2, 3}), "", "rank 2 is there twice"},
           Case{hello, "GET / HTTP/1.1\r\n\r\n", language},
           Case{hello, bytes_of(Header{kMagic, kPart, 0xffffffffU}), language},
           Case{hello, bytes_of(Header{kMagic, kPart, (1U << 20) + 1}), language},
           Case{hello, bytes_of(Header{kMagic, kFiles, 1}) + "x", language},
           Case{hello, bytes_of(Header{kMagic, kPart, 1U << 20}) + "xyz", "rank 1 has ended"},
           Case{hello, "", "rank 1 has ended"},
       }) {
    const Meeting meeting;
    const auto said = in_processes({0, 2, 1}, [&](int rank) -> std::string {
      if (rank == 1) {
        const Stranger stranger(meeting);
        // Rank 2 would wait for long if it found that all is over already.
        if (wrong.hello != hello) std::this_thread::sleep_for(100ms);
        stranger.say(wrong.hello);
        const bool welcome = stranger.hear(12).size() == 12;
        if (wrong.hello != hello) return stranger.hear(4096).substr(0, 0);
        if (welcome) stranger.say(wrong.said);
        return {};
      }
      auto bootstrap = meeting.join(rank, 3, 20'000);
      const Status status =
          bootstrap.ok() ? bootstrap.value()->all_gather("x").status() : bootstrap.status();
      return status.ok() ? "fine" : status.message();
    });
    EXPECT_EQ(said[0], wrong.message);
    // Rank 2 may not have been let in when it was over.
    EXPECT_TRUE(said[1] == wrong.message || said[1] == "rank 0 has ended" ||
                said[1].find("rank 0 did not arrive") == 0)
        << said[1];
  }
}

TEST(BootstrapStrangers, ARankThatDiesWhileOthersAreMissingIsNamedAtOnce) {
  const Meeting meeting;
  const auto said = in_processes({0, 1}, [&](int rank) -> std::string {
    if (rank == 0) return meeting.join(0, 3).status().message();
    Stranger(meeting).say(bytes_of(Hello{kMagic, 1, 1, 3}));
    return {};
  });
  EXPECT_EQ(said[0], "rank 1 has ended");
}

std::size_t open_files() {
  const auto files = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

TEST(BootstrapStrangers, NoFilesOrTooManyAreAnError) {
  for (const std::size_t files : {0U, 2U, 4U}) {
    const Meeting meeting;
    const auto said = in_processes({0, 1}, [&](int rank) -> std::string {
      if (rank == 1) {
        const Stranger stranger(meeting);
        stranger.say(bytes_of(Hello{kMagic, 1, 1, 2}));
        (void)stranger.hear(12);
        stranger.say(bytes_of(Header{kMagic, kFiles, 1}));
        stranger.say_with_files('x', files);
        return stranger.hear(12 + 39);
      }
      auto bootstrap = meeting.join(0, 2, 20'000);
      if (!bootstrap.ok()) return bootstrap.status().message();
      const std::size_t before = open_files();
      const Status status = bootstrap.value()->all_gather_files(0).status();
      if (open_files() != before) return "files stay open";
      return status.ok() ? "fine" : status.message();
    });
    EXPECT_EQ(said[0], "rank 1 does not speak the same language");
    EXPECT_EQ(said[1], bytes_of(Header{kMagic, kError, 39}) + said[0]);
  }
}

}  // namespace
}  // namespace arlab::kernels

#include "kernels/runtime/bootstrap.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <thread>
#include <utility>

namespace arlab::kernels {
namespace {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using Parts = std::vector<std::string>;

Deadline deadline_in(std::uint64_t milliseconds) {
  return Clock::now() + std::chrono::milliseconds(milliseconds);
}

/// As poll() takes it; 0 when the time is over.
int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
}

Status check_rank(int rank, int ranks) {
  if (ranks < 1) return Status::error(fmt::format("world size {}: allowed are 1 and more", ranks));
  if (rank < 0 || rank >= ranks) {
    return Status::error(fmt::format("rank {}: allowed are 0 to {}", rank, ranks - 1));
  }
  return {};
}

// ---------------------------------------------------------------- TCP

class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~Socket() {
    if (file_ >= 0) close(file_);
  }

  int file() const { return file_; }
  bool is_open() const { return file_ >= 0; }

  /// Waits for an event of poll(). False when the time is over.
  bool wait(short event, Deadline deadline) const {
    pollfd wanted = {.fd = file_, .events = event, .revents = 0};
    for (;;) {
      const int found = poll(&wanted, 1, milliseconds_until(deadline));
      if (found > 0) return true;
      if (found == 0 || errno != EINTR) return false;
    }
  }

 private:
  int file_ = -1;
};

enum class Transfer { done, timed_out, closed };

Transfer send_bytes(const Socket& to, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (!to.wait(POLLOUT, deadline)) return Transfer::timed_out;
    const ssize_t sent = send(to.file(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return Transfer::closed;
  }
  return Transfer::done;
}

Transfer receive_bytes(const Socket& from, std::span<char> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (!from.wait(POLLIN, deadline)) return Transfer::timed_out;
    const ssize_t got = recv(from.file(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) return Transfer::closed;
    if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
    if (got < 0 && errno != EAGAIN && errno != EINTR) return Transfer::closed;
  }
  return Transfer::done;
}

template <class T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// A message: its length, 32 bits, and its bytes.
Transfer send_message(const Socket& to, std::string_view message, Deadline deadline) {
  std::string bytes = bytes_of(static_cast<std::uint32_t>(message.size()));
  bytes += message;
  return send_bytes(to, bytes, deadline);
}
Transfer receive_message(const Socket& from, std::size_t most, std::string& message,
                         Deadline deadline) {
  std::uint32_t size = 0;
  const std::span<char> size_bytes(reinterpret_cast<char*>(&size), sizeof(size));
  Transfer transfer = receive_bytes(from, size_bytes, deadline);
  if (transfer != Transfer::done) return transfer;
  if (size > most) return Transfer::closed;  // not one of us
  message.resize(size);
  return receive_bytes(from, message, deadline);
}

/// The parts of all ranks as one message, and back.
std::string join(const Parts& parts) {
  std::string joined;
  for (const std::string& part : parts) {
    joined += bytes_of(static_cast<std::uint32_t>(part.size())) + part;
  }
  return joined;
}
std::optional<Parts> split(std::string_view joined, int ranks) {
  Parts parts;
  while (!joined.empty()) {
    std::uint32_t size = 0;
    if (joined.size() < sizeof(size)) return {};
    std::memcpy(&size, joined.data(), sizeof(size));
    joined.remove_prefix(sizeof(size));
    if (joined.size() < size) return {};
    parts.emplace_back(joined.substr(0, size));
    joined.remove_prefix(size);
  }
  if (parts.size() != static_cast<std::size_t>(ranks)) return {};
  return parts;
}

constexpr std::uint32_t kMagic = 0x41524c31;
struct Hello {
  std::uint32_t magic;
  std::int32_t rank;
  std::int32_t ranks;
};

/// First byte of what rank 0 answers.
constexpr char kDone = 'd';
constexpr char kFailed = 'f';

class SocketBootstrap final : public Bootstrap {
 public:
  SocketBootstrap(int rank, int ranks, std::uint64_t timeout_ms)
      : Bootstrap(rank, ranks),
        timeout_ms_(timeout_ms),
        peers_(rank == 0 ? static_cast<std::size_t>(ranks) : 1) {}

  Status connect_all(const std::string& host, int port) {
    if (ranks() == 1) return {};
    const std::string where = fmt::format("{}:{}", host, port);
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0) {
      return Status::error(fmt::format("{} is no address: {}", where, gai_strerror(error)));
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
    return rank() == 0 ? listen_at(*addresses, where) : connect_to(*addresses, where);
  }

 protected:
  Result<Parts> do_all_gather(std::string_view mine) override {
    if (ranks() == 1) return Parts{std::string(mine)};
    return rank() == 0 ? gather_here(mine) : gather_at_rank_0(mine);
  }

 private:
  // ---- rank 0

  Status listen_at(const addrinfo& address, const std::string& where) {
    const Socket listener(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    if (listener.is_open()) {
      (void)setsockopt(listener.file(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    }
    if (!listener.is_open() || bind(listener.file(), address.ai_addr, address.ai_addrlen) != 0 ||
        listen(listener.file(), ranks()) != 0) {
      return Status::error(
          fmt::format("rank 0 cannot listen at {}: {}", where, std::strerror(errno)));
    }
    const Deadline deadline = deadline_in(timeout_ms_);
    while (missing() >= 0) {
      if (!listener.wait(POLLIN, deadline)) {
        return tell_all(Status::error(
            fmt::format("rank {} did not arrive within {} ms", missing(), timeout_ms_)));
      }
      Socket peer(accept4(listener.file(), nullptr, nullptr, SOCK_CLOEXEC));
      Hello hello = {};
      const std::span<char> bytes(reinterpret_cast<char*>(&hello), sizeof(hello));
      // A stranger must not stop us for long.
      if (!peer.is_open() ||
          receive_bytes(peer, bytes, std::min(deadline, deadline_in(2000))) != Transfer::done ||
          hello.magic != kMagic) {
        continue;
      }
      if (hello.ranks != ranks() || hello.rank < 1 || hello.rank >= ranks()) {
        return tell_all(Status::error(fmt::format("a rank {} of {} came to a group of {}",
                                                  hello.rank, hello.ranks, ranks())),
                        &peer);
      }
      Socket& place = peers_[static_cast<std::size_t>(hello.rank)];
      if (place.is_open()) {
        return tell_all(Status::error(fmt::format("rank {} is there twice", hello.rank)), &peer);
      }
      place = std::move(peer);
    }
    return tell_all({});
  }

  /// The first rank that has not arrived; -1 when all have.
  int missing() const {
    for (int rank = 1; rank < ranks(); ++rank) {
      if (!peers_[static_cast<std::size_t>(rank)].is_open()) return rank;
    }
    return -1;
  }

  /// So that all ranks end with the same error. Returns it.
  Status tell_all(Status status, const Socket* other = nullptr) {
    const std::string message =
        status.ok() ? std::string(1, kDone) : std::string(1, kFailed) + status.message();
    for (const Socket& peer : peers_) {
      if (peer.is_open()) (void)send_message(peer, message, deadline_in(1000));
    }
    if (other != nullptr) (void)send_message(*other, message, deadline_in(1000));
    return status;
  }

  Result<Parts> gather_here(std::string_view mine) {
    const Deadline deadline = deadline_in(timeout_ms_);
    Parts parts(static_cast<std::size_t>(ranks()));
    parts[0] = mine;
    for (int rank = 1; rank < ranks(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const Transfer transfer = receive_message(peers_[r], kMostBootstrapBytes, parts[r], deadline);
      if (transfer == Transfer::done) continue;
      return tell_all(Status::error(
          transfer == Transfer::closed
              ? fmt::format("rank {} has ended", rank)
              : fmt::format("rank {} did not answer within {} ms", rank, timeout_ms_)));
    }
    const std::string message = kDone + join(parts);
    for (int rank = 1; rank < ranks(); ++rank) {
      if (send_message(peers_[static_cast<std::size_t>(rank)], message, deadline) !=
          Transfer::done) {
        return tell_all(Status::error(fmt::format("rank {} has ended", rank)));
      }
    }
    return parts;
  }

  // ---- other ranks: peers_[0] is rank 0

  Status connect_to(const addrinfo& address, const std::string& where) {
    const Deadline deadline = deadline_in(timeout_ms_);
    // Rank 0 may come later, so a refusal is no answer.
    for (;;) {
      Socket peer(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (peer.is_open() && connect(peer.file(), address.ai_addr, address.ai_addrlen) == 0) {
        peers_[0] = std::move(peer);
        break;
      }
      if (milliseconds_until(deadline) == 0) {
        return Status::error(
            fmt::format("rank 0 did not arrive at {} within {} ms", where, timeout_ms_));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const Hello hello = {kMagic, rank(), ranks()};
    (void)send_bytes(peers_[0], bytes_of(hello), deadline);
    return hear().status();
  }

  /// Rank 0's answer. It waits for others as long as this rank waits for it; a little more time
  /// lets it say who is missing.
  Result<std::string> hear() {
    constexpr std::size_t kMost = std::size_t{1} << 30;
    std::string message;
    const Transfer transfer = receive_message(peers_[0], kMost, message,
                                              deadline_in(timeout_ms_ + timeout_ms_ / 2 + 1000));
    if (transfer == Transfer::timed_out) {
      return Status::error(fmt::format("rank 0 did not answer within {} ms", timeout_ms_));
    }
    if (transfer == Transfer::closed || message.empty()) {
      return Status::error("rank 0 has ended");
    }
    if (message[0] != kDone) return Status::error(message.substr(1));
    return message.substr(1);
  }

  Result<Parts> gather_at_rank_0(std::string_view mine) {
    // When this fails, rank 0 has ended, or has given up and said why.
    (void)send_message(peers_[0], mine, deadline_in(timeout_ms_));
    Result<std::string> answer = hear();
    if (!answer.ok()) return answer.status();
    std::optional<Parts> parts = split(answer.value(), ranks());
    if (!parts) return Status::error("rank 0 does not speak the same language");
    return *std::move(parts);
  }

  std::uint64_t timeout_ms_;
  std::vector<Socket> peers_;  // rank 0: by rank; others: rank 0
};

// ---------------------------------------------------------------- files

namespace fs = std::filesystem;

/// Round n of rank r is the file "n.r". When all files of a round are there, all ranks have read
/// the round before, whose files go.
class FileBootstrap final : public Bootstrap {
 public:
  FileBootstrap(int rank, int ranks, fs::path folder, std::uint64_t timeout_ms)
      : Bootstrap(rank, ranks), folder_(std::move(folder)), timeout_ms_(timeout_ms) {}

  Status check_folder() const {
    std::error_code error;
    if (!fs::is_directory(folder_, error)) {
      return Status::error(fmt::format("{} is not a folder", folder_.string()));
    }
    if (fs::exists(file_of(0, rank()), error)) {
      return Status::error(fmt::format(
          "{} holds files of another run, or rank {} is there twice: name a new, empty folder",
          folder_.string(), rank()));
    }
    return {};
  }

 protected:
  Result<Parts> do_all_gather(std::string_view mine) override {
    const Deadline deadline = deadline_in(timeout_ms_);
    const fs::path own = file_of(round_, rank());
    const fs::path partial = own.string() + ".partial";
    std::ofstream(partial, std::ios::binary) << mine;
    std::error_code error;
    fs::rename(partial, own, error);
    if (error) {
      return Status::error(fmt::format("{} cannot be written: {}", own.string(), error.message()));
    }
    Parts parts;
    auto pause = std::chrono::microseconds(100);
    for (int rank = 0; rank < ranks(); ++rank) {
      while (!fs::exists(file_of(round_, rank), error)) {
        if (milliseconds_until(deadline) == 0) {
          return Status::error(fmt::format("rank {} did not {} within {} ms", rank,
                                           round_ == 0 ? "arrive" : "answer", timeout_ms_));
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, std::chrono::microseconds(10'000));
      }
      std::ifstream in(file_of(round_, rank), std::ios::binary);
      parts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    if (round_ > 0) fs::remove(file_of(round_ - 1, this->rank()), error);
    ++round_;
    return parts;
  }

 private:
  fs::path file_of(int round, int rank) const {
    return folder_ / fmt::format("{}.{}", round, rank);
  }

  fs::path folder_;
  std::uint64_t timeout_ms_;
  int round_ = 0;
};

// ---------------------------------------------------------------- the caller's

class FunctionBootstrap final : public Bootstrap {
 public:
  FunctionBootstrap(int rank, int ranks, GatherFunction gather)
      : Bootstrap(rank, ranks), gather_(std::move(gather)) {}

 protected:
  Result<Parts> do_all_gather(std::string_view mine) override {
    Result<Parts> parts = gather_(mine);
    if (parts.ok() && parts.value().size() != static_cast<std::size_t>(ranks())) {
      return Status::error(
          fmt::format("gathered {} parts for {} ranks", parts.value().size(), ranks()));
    }
    return parts;
  }

 private:
  GatherFunction gather_;
};

// ---------------------------------------------------------------- environment

Result<int> integer_from_environment(const char* name, int low, int high) {
  const char* const text = std::getenv(name);
  if (text == nullptr) {
    return Status::error(fmt::format(
        "{} is not in the environment: start the ranks with torchrun or a similar launcher", name));
  }
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    return Status::error(
        fmt::format("{}='{}': allowed is an integer from {} to {}", name, text, low, high));
  }
  return value;
}

}  // namespace

Result<std::vector<std::string>> Bootstrap::all_gather(std::string_view mine) {
  if (!failed_.ok()) return failed_;
  if (mine.size() > kMostBootstrapBytes) {
    return Status::error(
        fmt::format("{} bytes to gather: allowed are {}", mine.size(), kMostBootstrapBytes));
  }
  Result<Parts> parts = do_all_gather(mine);
  failed_ = parts.status();
  return parts;
}

Status Bootstrap::barrier() { return all_gather({}).status(); }

Result<std::unique_ptr<Bootstrap>> socket_bootstrap(int rank, int ranks, const std::string& host,
                                                    int port, std::uint64_t timeout_ms) {
  Status status = check_rank(rank, ranks);
  if (!status.ok()) return status;
  auto bootstrap = std::make_unique<SocketBootstrap>(rank, ranks, timeout_ms);
  status = bootstrap->connect_all(host, port);
  if (!status.ok()) return status;
  return std::unique_ptr<Bootstrap>(std::move(bootstrap));
}

Result<std::unique_ptr<Bootstrap>> file_bootstrap(int rank, int ranks, const std::string& folder,
                                                  std::uint64_t timeout_ms) {
  Status status = check_rank(rank, ranks);
  if (!status.ok()) return status;
  auto bootstrap = std::make_unique<FileBootstrap>(rank, ranks, folder, timeout_ms);
  status = bootstrap->check_folder();
  if (!status.ok()) return status;
  return std::unique_ptr<Bootstrap>(std::move(bootstrap));
}

Result<std::unique_ptr<Bootstrap>> function_bootstrap(int rank, int ranks, GatherFunction gather) {
  const Status status = check_rank(rank, ranks);
  if (!status.ok()) return status;
  if (!gather) return Status::error("a bootstrap needs a function that gathers");
  return std::unique_ptr<Bootstrap>(
      std::make_unique<FunctionBootstrap>(rank, ranks, std::move(gather)));
}

Result<std::unique_ptr<Bootstrap>> bootstrap_from_environment(std::uint64_t timeout_ms) {
  constexpr int kMost = 65536;
  const Result<int> ranks = integer_from_environment("WORLD_SIZE", 1, kMost);
  if (!ranks.ok()) return ranks.status();
  const Result<int> rank = integer_from_environment("RANK", 0, ranks.value() - 1);
  if (!rank.ok()) return rank.status();
  if (const char* folder = std::getenv("ARLAB_BOOTSTRAP_DIR")) {
    return file_bootstrap(rank.value(), ranks.value(), folder, timeout_ms);
  }
  const char* const host = std::getenv("MASTER_ADDR");
  if (host == nullptr) {
    return Status::error(
        "neither MASTER_ADDR nor ARLAB_BOOTSTRAP_DIR is in the environment: where is rank 0?");
  }
  if (std::getenv("ARLAB_PORT") != nullptr) {
    const Result<int> port = integer_from_environment("ARLAB_PORT", 1, 65535);
    if (!port.ok()) return port.status();
    return socket_bootstrap(rank.value(), ranks.value(), host, port.value(), timeout_ms);
  }
  const Result<int> port = integer_from_environment("MASTER_PORT", 1, 65534);
  if (!port.ok()) return port.status();
  return socket_bootstrap(rank.value(), ranks.value(), host, port.value() + 1, timeout_ms);
}

}  // namespace arlab::kernels

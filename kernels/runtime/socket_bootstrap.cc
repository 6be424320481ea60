// Ranks of one host and one user meet at a Unix socket.
//
// The kernel says who the other side is: processes of other users do not get into the folder, and
// are turned away by their user ID if they should. What a process of this user says is believed
// only in so far as it can do no harm: nothing is allocated for a length that somebody claims, and
// nobody is waited for while others can be served.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>

#include "kernels/runtime/bootstrap.h"

namespace arlab::kernels {
namespace {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using Parts = std::vector<std::string>;

constexpr auto kPause = std::chrono::milliseconds(10);

Deadline deadline_in(std::uint64_t milliseconds) {
  constexpr std::uint64_t kMost = 1'000'000'000;
  return Clock::now() + std::chrono::milliseconds(std::min(milliseconds, kMost));
}

/// As poll() takes it; 0 when the time is over.
int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
}

Status error_of_system(const std::string& what) {
  return Status::error(fmt::format("{}: {}", what, std::strerror(errno)));
}

// ---------------------------------------------------------------- messages

/// How it went, and why not.
enum class Transfer { done, timed_out, closed, garbled };

/// Waits for an event of poll(). False when the time is over.
bool wait(const FileDescriptor& socket, short event, Deadline deadline) {
  pollfd wanted = {.fd = socket.number(), .events = event, .revents = 0};
  for (;;) {
    const int found = poll(&wanted, 1, milliseconds_until(deadline));
    if (found > 0) return true;
    if (found == 0 || errno != EINTR) return false;
  }
}

bool is_to_be_tried_again() { return errno == EAGAIN || errno == EINTR; }

Transfer send_bytes(const FileDescriptor& to, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (!wait(to, POLLOUT, deadline)) return Transfer::timed_out;
    const ssize_t sent = send(to.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    if (sent < 0 && !is_to_be_tried_again()) return Transfer::closed;
  }
  return Transfer::done;
}

Transfer receive_bytes(const FileDescriptor& from, std::span<char> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (!wait(from, POLLIN, deadline)) return Transfer::timed_out;
    const ssize_t got = recv(from.number(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) return Transfer::closed;
    if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
    if (got < 0 && !is_to_be_tried_again()) return Transfer::closed;
  }
  return Transfer::done;
}

template <class T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
template <class T>
std::span<char> span_of(T& value) {
  return {reinterpret_cast<char*>(&value), sizeof(value)};
}

constexpr std::uint32_t kMagic = 0x4c524101;  // its first byte is not of a text
constexpr std::uint32_t kVersion = 1;

/// A rank's first message.
struct Hello {
  std::uint32_t magic;
  std::uint32_t version;
  std::int32_t rank;
  std::int32_t ranks;
};

enum class Kind : std::uint32_t { welcome, part, parts, files, error };

/// Before every message after that.
struct Header {
  std::uint32_t magic;
  Kind kind;
  std::uint32_t bytes;
};

/// Most bytes of a message of this kind. One of files has a byte, to which they are attached.
std::size_t most_bytes(Kind kind) {
  switch (kind) {
    case Kind::part:
      return kMostBootstrapBytes;
    case Kind::parts:
      return 64 * kMostBootstrapBytes;
    case Kind::files:
      return 1;
    case Kind::error:
      return 4096;
    case Kind::welcome:
      return 0;
  }
  return 0;
}

struct Message {
  Kind kind = Kind::error;
  std::string bytes;
};

Transfer send_message(const FileDescriptor& to, Kind kind, std::string_view bytes,
                      Deadline deadline) {
  const Header header = {kMagic, kind, static_cast<std::uint32_t>(bytes.size())};
  const Transfer transfer = send_bytes(to, bytes_of(header), deadline);
  return transfer == Transfer::done ? send_bytes(to, bytes, deadline) : transfer;
}

Transfer receive_header(const FileDescriptor& from, Header& header, Deadline deadline) {
  const Transfer transfer = receive_bytes(from, span_of(header), deadline);
  if (transfer != Transfer::done) return transfer;
  const bool known = header.magic == kMagic && header.kind <= Kind::error;
  return known && header.bytes <= most_bytes(header.kind) ? Transfer::done : Transfer::garbled;
}

/// The buffer grows as bytes arrive, not as somebody claims that they will.
Transfer receive_body(const FileDescriptor& from, const Header& header, std::string& bytes,
                      Deadline deadline) {
  constexpr std::size_t kAtOnce = 1 << 16;
  bytes.clear();
  while (bytes.size() < header.bytes) {
    const std::size_t begin = bytes.size();
    bytes.resize(begin + std::min(kAtOnce, header.bytes - begin));
    const Transfer transfer = receive_bytes(from, std::span<char>(bytes).subspan(begin), deadline);
    if (transfer != Transfer::done) return transfer;
  }
  return Transfer::done;
}

/// As many as the kernel carries at once.
constexpr std::size_t kMostFiles = 253;

Transfer send_files(const FileDescriptor& to, std::span<const int> files, Deadline deadline) {
  const Header header = {kMagic, Kind::files, 1};
  const Transfer transfer = send_bytes(to, bytes_of(header), deadline);
  if (transfer != Transfer::done) return transfer;
  char byte = 0;
  iovec body = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFiles * sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(files.size_bytes());
  cmsghdr* const attached = CMSG_FIRSTHDR(&message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(files.size_bytes());
  std::memcpy(CMSG_DATA(attached), files.data(), files.size_bytes());
  for (;;) {
    if (!wait(to, POLLOUT, deadline)) return Transfer::timed_out;
    if (sendmsg(to.number(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) return Transfer::done;
    if (!is_to_be_tried_again()) return Transfer::closed;
  }
}

/// After the header. `count` of them, or it is garbled; all that came are ours, and closed.
Transfer receive_files(const FileDescriptor& from, std::size_t count,
                       std::vector<FileDescriptor>& files, Deadline deadline) {
  char byte = 0;
  iovec body = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFiles * sizeof(int))> control = {};
  msghdr message = {};
  ssize_t got = -1;
  while (got < 0) {
    if (!wait(from, POLLIN, deadline)) return Transfer::timed_out;
    message.msg_iov = &body;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    got = recvmsg(from.number(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && !is_to_be_tried_again()) return Transfer::closed;
  }
  for (cmsghdr* attached = CMSG_FIRSTHDR(&message); attached != nullptr;
       attached = CMSG_NXTHDR(&message, attached)) {
    if (attached->cmsg_level != SOL_SOCKET || attached->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t numbers = (attached->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < numbers; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(attached) + i * sizeof(int), sizeof(int));
      files.emplace_back(number);
    }
  }
  if (got == 0) return Transfer::closed;
  return files.size() == count ? Transfer::done : Transfer::garbled;
}

// ---------------------------------------------------------------- the place

/// The user of the process at the other end, as the kernel noted it when it connected or listened.
bool is_of_this_user(const FileDescriptor& socket, uid_t& user) {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return false;
  user = credentials.uid;
  return user == geteuid();
}

FileDescriptor make_socket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// A name in a folder that only this user can enter. The folder is held open, so that it stays the
/// one that was looked at.
class MeetingPlace {
 public:
  static Result<std::unique_ptr<MeetingPlace>> open(const std::string& folder,
                                                    const std::string& name) {
    auto place = std::make_unique<MeetingPlace>();
    place->name_ = name;
    place->path_ = folder + "/" + name;
    place->folder_ =
        FileDescriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status = {};
    if (!place->folder_.is_open() || fstat(place->folder_.number(), &status) != 0) {
      return error_of_system("ranks cannot meet in the folder " + folder);
    }
    if (status.st_uid != geteuid()) {
      return Status::error(fmt::format(
          "ranks cannot meet in the folder {}: it belongs to user {}, not to {}; name a folder of "
          "mode 700 in ARLAB_BOOTSTRAP_DIR",
          folder, status.st_uid, geteuid()));
    }
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
      return Status::error(
          fmt::format("ranks cannot meet in the folder {}: it has mode {:o}, and must have 700",
                      folder, status.st_mode & 0777U));
    }
    // So that the length of the folder's name does not matter, which is limited in an address.
    const std::string short_path =
        fmt::format("/proc/self/fd/{}/{}", place->folder_.number(), name);
    if (name.find('/') != std::string::npos ||
        short_path.size() >= sizeof(place->address_.sun_path)) {
      return Status::error(fmt::format("{} is no name for a socket", readable(name)));
    }
    place->address_.sun_family = AF_UNIX;
    std::memcpy(place->address_.sun_path, short_path.c_str(), short_path.size() + 1);
    return place;
  }

  const std::string& path() const { return path_; }

  /// False, with errno, when nobody listens, or too many wait there already.
  bool connect(const FileDescriptor& socket) const {
    return ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address_),
                     sizeof(address_)) == 0;
  }

  Result<FileDescriptor> listen(Deadline deadline) const {
    // Whoever else comes to listen here does so before us or after.
    while (flock(folder_.number(), LOCK_EX | LOCK_NB) != 0) {
      if (milliseconds_until(deadline) == 0) {
        return Status::error(fmt::format("somebody keeps the folder of {} locked", path_));
      }
      std::this_thread::sleep_for(kPause);
    }
    FileDescriptor listener = make_socket();
    ARLAB_RETURN_IF_ERROR(remove_old());
    if (!listener.is_open() ||
        bind(listener.number(), reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)) !=
            0 ||
        ::listen(listener.number(), SOMAXCONN) != 0) {
      return error_of_system("rank 0 cannot listen at " + path_);
    }
    (void)flock(folder_.number(), LOCK_UN);
    return listener;
  }

  void remove() const { (void)unlinkat(folder_.number(), name_.c_str(), 0); }

 private:
  /// A socket that nobody listens at: of a rank 0 that was killed.
  Status remove_old() const {
    struct stat status = {};
    if (fstatat(folder_.number(), name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return {};
    if (!S_ISSOCK(status.st_mode)) {
      return Status::error(
          fmt::format("rank 0 cannot listen at {}: it is there, and is no socket", path_));
    }
    const FileDescriptor visitor = make_socket();
    if (connect(visitor) || errno != ECONNREFUSED) {
      return Status::error(
          fmt::format("rank 0 cannot listen at {}: another rank 0 does; give every group of ranks "
                      "a MASTER_PORT of its own",
                      path_));
    }
    remove();
    return {};
  }

  std::string name_;
  std::string path_;
  FileDescriptor folder_;
  sockaddr_un address_ = {};
};

/// Where rank 0 waits for the others. The name is free again before anybody hears that all have
/// come, so that the same ranks can meet there again at once.
class Listener {
 public:
  Listener(std::unique_ptr<MeetingPlace> place, FileDescriptor socket)
      : place_(std::move(place)), socket_(std::move(socket)) {}
  Listener(Listener&&) = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener() {
    if (socket_.is_open()) place_->remove();
  }

  int number() const { return socket_.number(); }

 private:
  std::unique_ptr<MeetingPlace> place_;
  FileDescriptor socket_;
};

Result<Listener> listen_in(const std::string& folder, const std::string& name,
                           std::uint64_t timeout_ms) {
  ARLAB_ASSIGN_OR_RETURN(auto place, MeetingPlace::open(folder, name));
  ARLAB_ASSIGN_OR_RETURN(FileDescriptor socket, place->listen(deadline_in(timeout_ms)));
  return Listener(std::move(place), std::move(socket));
}

// ---------------------------------------------------------------- the bootstrap

class SocketBootstrap final : public Bootstrap {
 public:
  SocketBootstrap(int rank, int ranks, std::uint64_t timeout_ms)
      : Bootstrap(rank, ranks, timeout_ms),
        peers_(rank == 0 ? static_cast<std::size_t>(ranks) : 1) {}

  /// Rank 0's part of the meeting.
  Status wait_for_all(Listener listener) {
    std::optional<Listener> here(std::move(listener));
    const Status status = accept_all(*here);
    here.reset();
    return tell_all(status);
  }

  /// Meets rank 0, for the other ranks.
  Status join(const std::string& folder, const std::string& name) {
    ARLAB_ASSIGN_OR_RETURN(const auto place, MeetingPlace::open(folder, name));
    ARLAB_RETURN_IF_ERROR(connect_to(*place));
    const Hello hello = {kMagic, kVersion, rank(), ranks()};
    (void)send_bytes(peers_[0], bytes_of(hello), deadline_in(timeout_ms()));
    return hear(Kind::welcome).status();
  }

 protected:
  Result<Parts> do_all_gather(std::string_view mine) override {
    if (ranks() == 1) return Parts{std::string(mine)};
    return rank() == 0 ? gather_here(mine) : gather_at_rank_0(mine);
  }

  Result<std::vector<FileDescriptor>> do_all_gather_files(int mine) override {
    if (static_cast<std::size_t>(ranks()) > kMostFiles) {
      return Status::error(fmt::format("files of {} ranks: allowed are {}", ranks(), kMostFiles));
    }
    if (ranks() == 1) return std::vector<FileDescriptor>(1);
    return rank() == 0 ? gather_files_here(mine) : gather_files_at_rank_0(mine);
  }

 private:
  // ---- rank 0

  /// Somebody who has connected, until it has said who it is.
  struct Visitor {
    FileDescriptor socket;
    Hello hello = {};
    std::size_t bytes = 0;  // bytes of the hello that have come
  };

  FileDescriptor& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const FileDescriptor& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  /// The first rank that has not arrived; -1 when all have.
  int missing() const {
    for (int rank = 1; rank < ranks(); ++rank) {
      if (!peer(rank).is_open()) return rank;
    }
    return -1;
  }

  /// Serves all who come at the same time, so that nobody's silence holds up the others.
  Status accept_all(const Listener& listener) {
    const Deadline deadline = deadline_in(timeout_ms());
    std::vector<Visitor> visitors;
    while (missing() >= 0) {
      std::vector<pollfd> wanted = {{.fd = listener.number(), .events = POLLIN, .revents = 0}};
      for (const Visitor& visitor : visitors) {
        wanted.push_back({.fd = visitor.socket.number(), .events = POLLIN, .revents = 0});
      }
      for (int rank = 1; rank < ranks(); ++rank) {  // poll() passes over those that are not there
        wanted.push_back({.fd = peer(rank).number(), .events = POLLIN, .revents = 0});
      }
      const int found = poll(wanted.data(), wanted.size(), milliseconds_until(deadline));
      if (found == 0 || (found < 0 && errno != EINTR)) {
        return Status::error(
            fmt::format("rank {} did not arrive within {} ms", missing(), timeout_ms()));
      }
      if (found < 0) continue;
      // A rank that has arrived has nothing to say until all have.
      for (int rank = 1; rank < ranks(); ++rank) {
        if (wanted[visitors.size() + static_cast<std::size_t>(rank)].revents != 0) {
          return Status::error(fmt::format("rank {} has ended", rank));
        }
      }
      ARLAB_RETURN_IF_ERROR(hear_visitors(visitors, std::span(wanted).subspan(1)));
      if (wanted[0].revents != 0) accept_one(listener, visitors);
    }
    return {};
  }

  void accept_one(const Listener& listener, std::vector<Visitor>& visitors) const {
    constexpr std::size_t kMost = 128;
    FileDescriptor socket(
        accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool failed = !socket.is_open() && !is_to_be_tried_again() && errno != ECONNABORTED;
    // Ranks speak at once. Who has been silent for longest has to make room.
    if (failed && visitors.empty()) {
      std::this_thread::sleep_for(kPause);
    } else if (failed || visitors.size() == kMost) {
      visitors.erase(visitors.begin());
    }
    uid_t user = 0;
    if (socket.is_open() && is_of_this_user(socket, user)) {
      visitors.push_back({.socket = std::move(socket)});
    }
  }

  /// Those who have spoken become ranks, or go.
  Status hear_visitors(std::vector<Visitor>& visitors, std::span<const pollfd> found) {
    std::vector<Visitor> staying;
    for (std::size_t i = 0; i < visitors.size(); ++i) {
      Visitor& visitor = visitors[i];
      if (found[i].revents == 0) {
        staying.push_back(std::move(visitor));
        continue;
      }
      const std::span<char> rest = span_of(visitor.hello).subspan(visitor.bytes);
      const ssize_t got = recv(visitor.socket.number(), rest.data(), rest.size(), MSG_DONTWAIT);
      if (got > 0) visitor.bytes += static_cast<std::size_t>(got);
      if (visitor.bytes == sizeof(Hello)) {
        ARLAB_RETURN_IF_ERROR(welcome(visitor));
      } else if (got > 0 || (got < 0 && is_to_be_tried_again())) {
        staying.push_back(std::move(visitor));
      }
    }
    visitors = std::move(staying);
    return {};
  }

  /// An error when it is one of us who is wrong here. A stranger is not worth an error.
  Status welcome(Visitor& visitor) {
    const Hello& hello = visitor.hello;
    if (hello.magic != kMagic) return {};
    Status status;
    if (hello.version != kVersion) {
      status = Status::error(
          fmt::format("rank {} is of another version of arlab than rank 0", hello.rank));
    } else if (hello.ranks != ranks() || hello.rank < 1 || hello.rank >= ranks()) {
      status = Status::error(
          fmt::format("a rank {} of {} came to a group of {}", hello.rank, hello.ranks, ranks()));
    } else if (peer(hello.rank).is_open()) {
      status = Status::error(fmt::format("rank {} is there twice", hello.rank));
    } else {
      peer(hello.rank) = std::move(visitor.socket);
      return {};
    }
    (void)send_message(visitor.socket, Kind::error, status.message(), deadline_in(kGraceMs));
    return status;
  }

  /// So that all ranks end with the same error, or all know that all have come. Returns it.
  Status tell_all(Status status) {
    const Deadline deadline = deadline_in(kGraceMs);
    for (int rank = 1; rank < ranks(); ++rank) {
      if (!peer(rank).is_open()) continue;
      (void)send_message(peer(rank), status.ok() ? Kind::welcome : Kind::error,
                         status.ok() ? std::string() : status.message(), deadline);
    }
    return status;
  }

  /// Why a rank did not do its part.
  Status failure(int rank, Transfer transfer) const {
    if (transfer == Transfer::closed) return Status::error(fmt::format("rank {} has ended", rank));
    if (transfer == Transfer::garbled) {
      return Status::error(fmt::format("rank {} does not speak the same language", rank));
    }
    return Status::error(fmt::format("rank {} did not answer within {} ms", rank, timeout_ms()));
  }

  Result<Parts> gather_here(std::string_view mine) {
    const Deadline deadline = deadline_in(timeout_ms());
    Parts parts(static_cast<std::size_t>(ranks()));
    parts[0] = mine;
    for (int rank = 1; rank < ranks(); ++rank) {
      Header header = {};
      Transfer transfer = receive_header(peer(rank), header, deadline);
      if (transfer == Transfer::done && header.kind != Kind::part) transfer = Transfer::garbled;
      if (transfer == Transfer::done) {
        transfer =
            receive_body(peer(rank), header, parts[static_cast<std::size_t>(rank)], deadline);
      }
      if (transfer != Transfer::done) return tell_all(failure(rank, transfer));
    }
    const std::string joined = join_parts(parts);
    if (joined.size() > most_bytes(Kind::parts)) {
      return tell_all(Status::error(fmt::format("{} bytes to gather of all ranks: allowed are {}",
                                                joined.size(), most_bytes(Kind::parts))));
    }
    for (int rank = 1; rank < ranks(); ++rank) {
      const Transfer transfer = send_message(peer(rank), Kind::parts, joined, deadline);
      if (transfer != Transfer::done) return tell_all(failure(rank, transfer));
    }
    return parts;
  }

  Result<std::vector<FileDescriptor>> gather_files_here(int mine) {
    const Deadline deadline = deadline_in(timeout_ms());
    std::vector<FileDescriptor> files(1);
    std::vector<int> numbers = {mine};
    for (int rank = 1; rank < ranks(); ++rank) {
      Header header = {};
      std::vector<FileDescriptor> received;
      Transfer transfer = receive_header(peer(rank), header, deadline);
      if (transfer == Transfer::done && header.kind != Kind::files) transfer = Transfer::garbled;
      if (transfer == Transfer::done) transfer = receive_files(peer(rank), 1, received, deadline);
      if (transfer != Transfer::done) return tell_all(failure(rank, transfer));
      numbers.push_back(received[0].number());
      files.push_back(std::move(received[0]));
    }
    for (int rank = 1; rank < ranks(); ++rank) {
      const Transfer transfer = send_files(peer(rank), numbers, deadline);
      if (transfer != Transfer::done) return tell_all(failure(rank, transfer));
    }
    return files;
  }

  // ---- other ranks: peers_[0] is rank 0

  Status connect_to(const MeetingPlace& place) {
    const Deadline deadline = deadline_in(timeout_ms());
    for (;;) {
      FileDescriptor socket = make_socket();
      if (!socket.is_open()) return error_of_system("there is no socket to be had");
      if (place.connect(socket)) {
        uid_t user = 0;
        if (!is_of_this_user(socket, user)) {
          return Status::error(
              fmt::format("a process of user {} listens at {}", user, place.path()));
        }
        peers_[0] = std::move(socket);
        return {};
      }
      // Rank 0 may come later, or be busy with others, so that is no answer.
      if (errno != ENOENT && errno != ECONNREFUSED && !is_to_be_tried_again()) {
        return error_of_system("rank 0 cannot be reached at " + place.path());
      }
      if (milliseconds_until(deadline) == 0) {
        return Status::error(
            fmt::format("rank 0 did not arrive at {} within {} ms", place.path(), timeout_ms()));
      }
      std::this_thread::sleep_for(kPause);
    }
  }

  /// The header of rank 0's answer, with the body to come. Rank 0 waits for others as long as this
  /// rank waits for it; a little more time lets it say who is missing.
  Result<Header> hear(Kind kind) {
    Header header = {};
    const Deadline deadline = deadline_in(timeout_ms() + 2 * kGraceMs);
    Transfer transfer = receive_header(peers_[0], header, deadline);
    if (transfer == Transfer::done && header.kind == Kind::error) {
      std::string message;
      transfer = receive_body(peers_[0], header, message, deadline);
      if (transfer == Transfer::done) return Status::error(readable(message));
    }
    if (transfer == Transfer::done && header.kind != kind) transfer = Transfer::garbled;
    if (transfer != Transfer::done) return failure(0, transfer);
    return header;
  }

  Result<Parts> gather_at_rank_0(std::string_view mine) {
    // When this fails, rank 0 has ended, or has given up and said why.
    (void)send_message(peers_[0], Kind::part, mine, deadline_in(timeout_ms()));
    ARLAB_ASSIGN_OR_RETURN(const Header header, hear(Kind::parts));
    std::string joined;
    const Transfer transfer = receive_body(peers_[0], header, joined, deadline_in(timeout_ms()));
    if (transfer != Transfer::done) return failure(0, transfer);
    std::optional<Parts> parts = split_parts(joined, ranks());
    if (!parts) return failure(0, Transfer::garbled);
    return *std::move(parts);
  }

  Result<std::vector<FileDescriptor>> gather_files_at_rank_0(int mine) {
    (void)send_files(peers_[0], std::span(&mine, 1), deadline_in(timeout_ms()));
    ARLAB_RETURN_IF_ERROR(hear(Kind::files).status());
    std::vector<FileDescriptor> files;
    const Transfer transfer = receive_files(peers_[0], static_cast<std::size_t>(ranks()), files,
                                            deadline_in(timeout_ms()));
    if (transfer != Transfer::done) return failure(0, transfer);
    files[static_cast<std::size_t>(rank())] = FileDescriptor();
    return files;
  }

  /// How long rank 0 may take to say what has gone wrong.
  static constexpr std::uint64_t kGraceMs = 1000;

  std::vector<FileDescriptor> peers_;  // rank 0: by rank; others: rank 0
};

}  // namespace

Result<RandomToken> random_token() {
  RandomToken token = {};
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    return error_of_system("there are no random numbers to be had");
  }
  return token;
}

std::string hex(const RandomToken& token) {
  std::string text;
  for (const unsigned char byte : token) text += fmt::format("{:02x}", byte);
  return text;
}

Result<std::unique_ptr<Bootstrap>> socket_bootstrap(int rank, int ranks, const std::string& folder,
                                                    const std::string& name,
                                                    std::uint64_t timeout_ms) {
  Status status = check_rank(rank, ranks);
  if (!status.ok()) return status;
  auto bootstrap = std::make_unique<SocketBootstrap>(rank, ranks, timeout_ms);
  if (ranks > 1 && rank == 0) {
    Result<Listener> listener = listen_in(folder, name, timeout_ms);
    status = listener.status();
    if (status.ok()) status = bootstrap->wait_for_all(std::move(listener.value()));
  } else if (ranks > 1) {
    status = bootstrap->join(folder, name);
  }
  if (!status.ok()) return status;
  return std::unique_ptr<Bootstrap>(std::move(bootstrap));
}

Result<std::vector<FileDescriptor>> Bootstrap::do_all_gather_files(int mine) {
  // Rank 0 says where, after kListens, or why not.
  constexpr char kListens = '=';
  constexpr char kFails = '!';
  SocketBootstrap bootstrap(rank_, ranks_, timeout_ms_);
  if (rank_ != 0) {
    ARLAB_ASSIGN_OR_RETURN(const auto parts, do_all_gather({}));
    const std::string& said = parts[0];
    const std::size_t slash = said.rfind('/');
    if (said.empty() || said[0] != kListens || slash == std::string::npos) {
      return Status::error("rank 0: " + readable(said.substr(said.empty() ? 0 : 1)));
    }
    ARLAB_RETURN_IF_ERROR(bootstrap.join(said.substr(1, slash - 1), said.substr(slash + 1)));
    return bootstrap.all_gather_files(mine);
  }
  const Result<std::string> folder = meeting_folder();
  const Result<RandomToken> token = random_token();
  Status status = folder.ok() ? token.status() : folder.status();
  const std::string name = status.ok() ? hex(token.value()) : "";
  std::optional<Listener> listener;
  if (status.ok()) {
    Result<Listener> made = listen_in(folder.value(), name, timeout_ms_);
    status = made.status();
    if (status.ok()) listener.emplace(std::move(made.value()));
  }
  const auto parts = do_all_gather(status.ok() ? kListens + folder.value() + "/" + name
                                               : kFails + status.message());
  if (!status.ok()) return status;
  if (!parts.ok()) return parts.status();
  ARLAB_RETURN_IF_ERROR(bootstrap.wait_for_all(*std::move(listener)));
  return bootstrap.all_gather_files(mine);
}

}  // namespace arlab::kernels

// How ranks in processes of their own find each other: small messages, before there is a
// communicator.
//
// All waits are bounded. A rank that never comes, or goes away, gives an error that names it, on
// all ranks; after an error, every further call gives the same one.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/runtime/file_descriptor.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {

inline constexpr std::uint64_t kBootstrapTimeoutMs = 60'000;
/// Most bytes of one rank's part in an all-gather.
inline constexpr std::size_t kMostBootstrapBytes = 1 << 20;

class Bootstrap {
 public:
  Bootstrap(int rank, int ranks, std::uint64_t timeout_ms)
      : rank_(rank), ranks_(ranks), timeout_ms_(timeout_ms) {}
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  virtual ~Bootstrap() = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::uint64_t timeout_ms() const { return timeout_ms_; }

  /// The parts of all ranks, in rank order. All ranks call it, the same number of times.
  Result<std::vector<std::string>> all_gather(std::string_view mine);

  /// Returns when all ranks have called it.
  Status barrier();

  /// The open files of all other ranks, in rank order; none at this rank's place. All ranks call
  /// it; they must be processes of one user on one host. `mine` stays the caller's.
  Result<std::vector<FileDescriptor>> all_gather_files(int mine);

 protected:
  virtual Result<std::vector<std::string>> do_all_gather(std::string_view mine) = 0;
  /// Unless there is a better way: over a socket that rank 0 opens for this.
  virtual Result<std::vector<FileDescriptor>> do_all_gather_files(int mine);

 private:
  int rank_;
  int ranks_;
  std::uint64_t timeout_ms_;
  Status failed_;
};

/// A Unix socket of this name in a folder that belongs to this user and has mode 700. Rank 0
/// listens there until all have come. Processes of other users, and what does not speak this
/// language, are turned away without a word.
Result<std::unique_ptr<Bootstrap>> socket_bootstrap(int rank, int ranks, const std::string& folder,
                                                    const std::string& name,
                                                    std::uint64_t timeout_ms = kBootstrapTimeoutMs);

/// An all-gather that the caller has: of PyTorch, of MPI. Its waits are its own affair.
using GatherFunction = std::function<Result<std::vector<std::string>>(std::string_view mine)>;
Result<std::unique_ptr<Bootstrap>> function_bootstrap(int rank, int ranks, GatherFunction gather);

/// As torchrun and similar launchers say, RANK and WORLD_SIZE, or Open MPI's mpirun. The ranks meet at a socket in
/// meeting_folder() that has its name from MASTER_PORT or from mpirun's job; without these, ARLAB_BOOTSTRAP_DIR must name
/// a folder.
Result<std::unique_ptr<Bootstrap>> bootstrap_from_environment(
    std::uint64_t timeout_ms = kBootstrapTimeoutMs);

/// ARLAB_BOOTSTRAP_DIR, or /tmp/arlab-UID, which is made if it is not there. Containers that share
/// the folder can meet there, which they could not at an abstract socket.
Result<std::string> meeting_folder();

// ---- for those who make bootstraps

/// "rank 2: allowed are 0 to 1".
Status check_rank(int rank, int ranks);

/// The parts of all ranks as one message, and back; nothing when it is no such message.
std::string join_parts(const std::vector<std::string>& parts);
std::optional<std::vector<std::string>> split_parts(std::string_view joined, int ranks);

/// Another process's error, as one line of UTF-8 that is not too long.
std::string readable(std::string_view text);

// ---- what ranks tell each other

/// Text in a message of fixed size.
template <std::size_t N>
struct MessageText {
  char characters[N];

  MessageText& operator=(std::string_view text) {
    std::memset(characters, 0, N);
    std::memcpy(characters, text.data(), std::min(text.size(), N - 1));
    return *this;
  }
  std::string string() const {
    const std::string text(characters, strnlen(characters, N));
    return text.empty() ? text : readable(text);
  }
};

/// Everybody's message, in rank order: a struct without pointers, of one size in all processes.
template <class Message>
Result<std::vector<Message>> gather_messages(Bootstrap& bootstrap, const Message& mine) {
  ARLAB_ASSIGN_OR_RETURN(
      const auto gathered,
      bootstrap.all_gather({reinterpret_cast<const char*>(&mine), sizeof(Message)}));
  std::vector<Message> messages(gathered.size());
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    const std::string& bytes = gathered[rank];
    if (bytes.size() != sizeof(Message)) {
      return Status::error(fmt::format("rank {} runs another version of arlab", rank));
    }
    std::memcpy(&messages[rank], bytes.data(), sizeof(Message));
  }
  return messages;
}

/// Id of the machine's last start: the same in all of its containers. Empty where nothing says so.
std::string boot_id();

/// 128 bits that nobody else has; and as text.
using RandomToken = std::array<unsigned char, 16>;
Result<RandomToken> random_token();
std::string hex(const RandomToken& token);

}  // namespace arlab::kernels

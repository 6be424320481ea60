#include "kernels/runtime/bootstrap.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "reference/error.h"

namespace arlab::kernels {
namespace {

using Parts = std::vector<std::string>;

class FunctionBootstrap final : public Bootstrap {
 public:
  FunctionBootstrap(int rank, int ranks, GatherFunction gather)
      : Bootstrap(rank, ranks, kBootstrapTimeoutMs), gather_(std::move(gather)) {}

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
        fmt::format("{}={}: allowed is an integer from {} to {}", name, quote(text), low, high));
  }
  return value;
}

/// The variables of a launcher.
struct Launcher {
  const char* rank;
  const char* ranks;
  const char* ranks_here;
};
constexpr Launcher kTorchrun = {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
constexpr Launcher kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_SIZE"};

Status check_one_host(const Launcher& launcher, int ranks) {
  if (std::getenv(launcher.ranks_here) == nullptr) return {};  // the launcher does not say
  ARLAB_ASSIGN_OR_RETURN(const int here, integer_from_environment(launcher.ranks_here, 1, ranks));
  if (here == ranks) return {};
  return Status::error(fmt::format("{} is {} and {} {}: a communicator needs all ranks on one host",
                                   launcher.ranks, ranks, launcher.ranks_here, here));
}

/// The common name of a launch's ranks: that of the socket at which they meet.
Result<std::string> name_of_launch() {
  if (std::getenv("MASTER_PORT") != nullptr) {
    ARLAB_ASSIGN_OR_RETURN(const int port, integer_from_environment("MASTER_PORT", 1, 65535));
    return fmt::format("port-{}", port);
  }
  if (const char* const job = std::getenv("PMIX_NAMESPACE")) {  // Open MPI's
    std::string name = "job-";
    for (const char c : std::string_view(job).substr(0, 60)) {
      name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
    }
    return name;
  }
  if (std::getenv("ARLAB_BOOTSTRAP_DIR") != nullptr) return std::string("ranks");
  return Status::error(
      "neither MASTER_PORT nor ARLAB_BOOTSTRAP_DIR is in the environment: where do the ranks "
      "meet?");
}

// ---------------------------------------------------------------- text

/// How many bytes the UTF-8 character at the beginning has; 0 when it is none, or a control
/// character.
std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
  };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  const std::size_t size = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  std::uint32_t code = byte(0) & (0xffU >> (size + 1));
  for (std::size_t at = 1; at < size; ++at) {
    if ((byte(at) & 0xc0U) != 0x80) return 0;
    code = code << 6 | (byte(at) & 0x3fU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0xa0, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return byte(0) < 0xc2 || byte(0) > 0xf4 || code < kLeast[size] || code > 0x10ffff || surrogate
             ? 0
             : size;
}

bool is_readable(std::string_view text) {
  constexpr std::size_t kMost = 1000;
  if (text.empty() || text.size() > kMost) return false;
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
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

Result<std::vector<FileDescriptor>> Bootstrap::all_gather_files(int mine) {
  if (!failed_.ok()) return failed_;
  Result<std::vector<FileDescriptor>> files = do_all_gather_files(mine);
  failed_ = files.status();
  return files;
}

Status check_rank(int rank, int ranks) {
  if (ranks < 1)
    return Status::refusal(fmt::format("world size {}: allowed are 1 and more", ranks));
  if (rank < 0 || rank >= ranks) {
    return Status::refusal(fmt::format("rank {}: allowed are 0 to {}", rank, ranks - 1));
  }
  return {};
}

std::string join_parts(const Parts& parts) {
  std::string joined;
  for (const std::string& part : parts) {
    const auto size = static_cast<std::uint32_t>(part.size());
    joined.append(reinterpret_cast<const char*>(&size), sizeof(size));
    joined += part;
  }
  return joined;
}

std::optional<Parts> split_parts(std::string_view joined, int ranks) {
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

std::string readable(std::string_view text) {
  return is_readable(text) ? std::string(text) : quote(text);
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

Result<std::unique_ptr<Bootstrap>> function_bootstrap(int rank, int ranks, GatherFunction gather) {
  ARLAB_RETURN_IF_ERROR(check_rank(rank, ranks));
  if (!gather) return Status::error("a bootstrap needs a function that gathers");
  return std::unique_ptr<Bootstrap>(
      std::make_unique<FunctionBootstrap>(rank, ranks, std::move(gather)));
}

Result<std::string> meeting_folder() {
  if (const char* const named = std::getenv("ARLAB_BOOTSTRAP_DIR")) return std::string(named);
  const std::string folder = fmt::format("/tmp/arlab-{}", geteuid());
  // Whether a folder that is there already is ours, is looked at where it is used.
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return Status::error(
        fmt::format("{} cannot be made: {}; name a folder of mode 700 in ARLAB_BOOTSTRAP_DIR",
                    folder, std::strerror(errno)));
  }
  return folder;
}

Result<std::unique_ptr<Bootstrap>> bootstrap_from_environment(std::uint64_t timeout_ms) {
  constexpr int kMost = 65536;
  const bool by_mpi =
      std::getenv(kTorchrun.rank) == nullptr && std::getenv(kOpenMpi.rank) != nullptr;
  const Launcher& launcher = by_mpi ? kOpenMpi : kTorchrun;
  ARLAB_ASSIGN_OR_RETURN(const int ranks, integer_from_environment(launcher.ranks, 1, kMost));
  ARLAB_ASSIGN_OR_RETURN(const int rank, integer_from_environment(launcher.rank, 0, ranks - 1));
  ARLAB_RETURN_IF_ERROR(check_one_host(launcher, ranks));
  ARLAB_ASSIGN_OR_RETURN(const std::string name, name_of_launch());
  ARLAB_ASSIGN_OR_RETURN(const std::string folder, meeting_folder());
  return socket_bootstrap(rank, ranks, folder, name, timeout_ms);
}

}  // namespace arlab::kernels

#include "kernels/compile/kernel_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include "kernels/compile/trusted.h"
#include "reference/error.h"
#include "reference/tensors/file.h"
#include "reference/tensors/sha256.h"

namespace arlab::kernels {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "arlab kernel 1 ";
constexpr std::size_t kHashDigits = 64;
constexpr std::uint64_t kMostFileBytes = std::uint64_t{64} << 20;

std::string hash_of_text(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

// ---- what a file holds: the hash of all behind its first line, then lines that say what it is, then the compiler's log and the code

std::string contents_of(const std::string& name, const KernelKey& key, const CodeObject& code) {
  const std::string body =
      fmt::format("{}\n{}\n{}\n{}\n{} {}\n", name, printable(key.kernel), key.architecture,
                  key.compiler, code.log.size(), code.bytes.size()) +
      code.log + code.bytes;
  return fmt::format("{}{}\n", kMagic, hash_of_text(body)) + body;
}

/// Takes the part of a text before the next end of a line.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

struct FileHead {
  std::string_view hash;
  std::string_view name;
  std::string_view kernel;
  std::string_view architecture;
  std::string_view compiler;
  std::string_view sizes;
};

/// Reads the head of a whole file, or of the beginning of one. Takes it off the text.
std::optional<FileHead> take_head(std::string_view& text) {
  if (!text.starts_with(kMagic)) return std::nullopt;
  text.remove_prefix(kMagic.size());
  FileHead head;
  for (std::string_view* line :
       {&head.hash, &head.name, &head.kernel, &head.architecture, &head.compiler, &head.sizes}) {
    *line = take_line(text);
  }
  return head;
}

/// Content of a whole file, if it is whole and is the one that its name says.
std::optional<CodeObject> code_of(std::string_view text, std::string_view name) {
  const std::size_t body_at = kMagic.size() + kHashDigits + 1;
  const std::string_view body = text.substr(std::min(body_at, text.size()));
  const std::optional<FileHead> head = take_head(text);
  if (!head || head->name != name || head->hash != hash_of_text(body)) return std::nullopt;
  std::size_t log_bytes = 0;
  (void)std::from_chars(head->sizes.begin(), head->sizes.end(), log_bytes);
  if (log_bytes > text.size()) return std::nullopt;
  return CodeObject{std::string(text.substr(log_bytes)), std::string(text.substr(0, log_bytes))};
}

// ---- files and folders

std::string reason_of_system() { return std::strerror(errno); }

/// As mkdir -p, for this user only.
bool make_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST) return true;
  if (errno != ENOENT || !path.has_parent_path() || path.parent_path() == path) return false;
  return make_folder(path.parent_path()) &&
         (::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST);
}

/// Beyond this limit the system does not fail the call but ends the program.
bool is_beyond_limit(std::size_t bytes) {
  rlimit limit = {};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         bytes > limit.rlim_cur;
}

/// A file or folder that is open, as a path. It leads to nothing else, whatever happens to its name.
fs::path path_of_open(const FileDescriptor& file) {
  return fmt::format("/proc/self/fd/{}", file.number());
}

struct stat status_of(const FileDescriptor& file) {
  struct stat status = {};
  (void)::fstat(file.number(), &status);
  return status;
}

/// Why a folder is not for this user only; empty where it is.
std::string why_not_own(const struct stat& status) {
  if (status.st_uid != ::geteuid()) {
    return fmt::format("it belongs to user {}, not to {}", status.st_uid, ::geteuid());
  }
  const unsigned mode = status.st_mode & 07777U;
  return mode == S_IRWXU ? "" : fmt::format("it has mode {:o}, and must have 700", mode);
}

}  // namespace

KernelFolder::KernelFolder(fs::path path, int flags)
    : name_(std::move(path)),
      descriptor_(::open(name_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags)) {}

Result<std::unique_ptr<KernelFolder>> KernelFolder::open_own(const fs::path& path) {
  const auto refuse = [&](const std::string& why) {
    return Status::error(fmt::format("the kernel cache {} is not used: {}", path.string(), why));
  };
  if (!make_folder(path)) return refuse(reason_of_system());
  std::unique_ptr<KernelFolder> folder(new KernelFolder(path, O_NOFOLLOW));
  if (!folder->descriptor_.is_open()) return refuse(reason_of_system());
  const std::string why = why_not_own(status_of(folder->descriptor_));
  if (!why.empty()) return refuse(why);
  remove_left_behind(folder->path_of(""), ".arlab-#-#.part");
  return folder;
}

Result<std::unique_ptr<KernelFolder>> KernelFolder::open_read_only(const fs::path& path) {
  const auto refuse = [&](const std::string& why) {
    return Status::error(fmt::format("the kernels in {} are not used: {}", path.string(), why));
  };
  const Status trusted = require_trusted(path);
  if (!trusted.ok()) return refuse(trusted.message());
  std::unique_ptr<KernelFolder> folder(new KernelFolder(path, 0));
  if (!folder->descriptor_.is_open()) return refuse(reason_of_system());
  return folder;
}

fs::path KernelFolder::path_of(const std::string& name) const {
  return path_of_open(descriptor_) / name;
}

/// A regular file of this user or root, to which nobody else may write. No link is followed, and no pipe waited for.
FileDescriptor KernelFolder::open_file(const std::string& name, int mode) const {
  FileDescriptor file(::openat(descriptor_.number(), name.c_str(),
                               mode | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                               S_IRUSR | S_IWUSR));
  if (!file.is_open()) return file;
  const struct stat status = status_of(file);
  const bool is_ours = status.st_uid == ::geteuid() || status.st_uid == 0;
  const bool is_safe =
      S_ISREG(status.st_mode) && is_ours && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  return is_safe ? std::move(file) : FileDescriptor();
}

bool KernelFolder::has(const std::string& name) const {
  struct stat status = {};
  return ::fstatat(descriptor_.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(status.st_mode);
}

std::vector<std::string> KernelFolder::names(std::string_view start) const {
  std::error_code ignored;
  std::vector<std::string> found;
  for (const fs::path& path : paths_in(path_of(""), ignored)) {
    const std::string name = path.filename().string();
    if (name.starts_with(start) && name.ends_with(kSuffix)) found.push_back(name);
  }
  return found;
}

std::optional<CodeObject> KernelFolder::read(const std::string& name) const {
  const FileDescriptor file = open_file(name, O_RDONLY);
  if (!file.is_open() || status_of(file).st_size > static_cast<off_t>(kMostFileBytes)) {
    return std::nullopt;
  }
  try {
    std::optional<CodeObject> code = code_of(InputFile(path_of_open(file)).read_rest(), name);
    if (code) (void)::futimens(file.number(), nullptr);
    return code;
  } catch (const InvalidInput&) {  // a file that grows shorter
    return std::nullopt;
  }
}

CachedKernel KernelFolder::describe(const std::string& name) const {
  CachedKernel found = {.file = name_ / name, .kernel = "a damaged file"};
  const FileDescriptor file = open_file(name, O_RDONLY);
  if (!file.is_open()) return found;
  const struct stat status = status_of(file);
  found.bytes = static_cast<std::uint64_t>(status.st_size);
  found.seconds_unused = std::max<std::int64_t>(0, std::time(nullptr) - status.st_mtime);
  try {
    constexpr std::size_t kMostHeadBytes = 4096;
    InputFile input(path_of_open(file));
    std::string beginning(std::min(input.remaining(), kMostHeadBytes), '\0');
    input.read(std::span<char>(beginning));
    std::string_view text = beginning;
    const std::optional<FileHead> head = take_head(text);
    if (!head) return found;
    found.kernel = head->kernel;
    found.architecture = head->architecture;
    found.compiler = head->compiler;
  } catch (const InvalidInput&) {  // it stays a damaged file
  }
  return found;
}

std::string KernelFolder::write(const std::string& name, const KernelKey& key,
                                const CodeObject& code) const {
  const std::string contents = contents_of(name, key, code);
  if (is_beyond_limit(contents.size())) return std::strerror(EFBIG);
  try {
    write_file(path_of(name), contents);
  } catch (const InvalidInput& error) {
    const std::string_view why = error.what();
    return std::string(why.substr(why.rfind(": ") + 2));  // without a path of /proc
  }
  // Also where the user lets a group write to new files: those are not believed.
  (void)::fchmodat(descriptor_.number(), name.c_str(), S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH, 0);
  return "";
}

void KernelFolder::remove(const std::string& name) const {
  (void)::unlinkat(descriptor_.number(), name.c_str(), 0);
}

void KernelFolder::keep_at_most(std::uint64_t most_bytes) const {
  struct Kernel {
    std::int64_t seconds;
    long nanoseconds;
    std::uint64_t bytes;
    std::string name;
    auto operator<=>(const Kernel&) const = default;
  };
  std::set<Kernel> kernels;  // the one that was not used for longest first
  std::uint64_t bytes = 0;
  for (const std::string& name : names("")) {
    struct stat status = {};
    if (::fstatat(descriptor_.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const auto size = static_cast<std::uint64_t>(status.st_size);
    kernels.insert({status.st_mtim.tv_sec, status.st_mtim.tv_nsec, size, name});
    bytes += size;
  }
  for (const Kernel& oldest : kernels) {
    if (bytes <= most_bytes) break;
    remove(oldest.name);
    bytes -= oldest.bytes;
  }
}

FileDescriptor KernelFolder::lock(const std::string& name) const {
  constexpr auto kLongest = std::chrono::seconds(120);
  constexpr auto kPause = std::chrono::milliseconds(5);
  constexpr int kDigits = 15;
  FileDescriptor file = open_file("lock", O_RDWR | O_CREAT);
  // A byte for each kernel, so that no file for each is left behind.
  struct flock range = {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_len = 1;
  (void)std::from_chars(name.data(), name.data() + kDigits, range.l_start, 16);
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  while (file.is_open() && ::fcntl(file.number(), F_OFD_SETLK, &range) != 0) {
    const bool is_taken = errno == EAGAIN || errno == EACCES || errno == EINTR;
    if (!is_taken || std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(kPause);
  }
  return file;
}

}  // namespace arlab::kernels

#include "kernels/nccl/recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace arlab::nccl {

using kernels::FileDescriptor;

namespace {

/// Most bytes of a rank's payloads, in all and of one call.
constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kMostElements = std::size_t{4} << 20;
constexpr std::size_t kLinesBytes = std::size_t{1} << 16;
/// While one of them waits for its payload.
constexpr std::size_t kMostLines = 10'000;

constexpr std::string_view kHeader =
    "communicator,ranks,call,collective,dtype,elements,bytes,took,host_us,payload\n";

std::string_view type_name(int type) {
  constexpr std::string_view kNames[] = {"int8",  "uint8",  "int32",    "uint32",
                                         "int64", "uint64", "fp16",     "fp32",
                                         "fp64",  "bf16",   "fp8-e4m3", "fp8-e5m2"};
  return element_bytes(type) == 0 ? "unknown" : kNames[type];
}

/// One line of each kind, whatever number of ranks and communicators meet it.
void say_once(const std::string& line) {
  static std::mutex mutex;
  static auto& said = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (said.insert(line).second) fmt::print(stderr, "arlab: {}\n", line);
}

[[noreturn]] void fail_with(const std::string& path, const std::string& why) {
  throw std::runtime_error(fmt::format("{}: {}", path, why));
}
[[noreturn]] void fail_to_write(const std::string& path) {
  fail_with(path, fmt::format("it cannot be written: {}", std::strerror(errno)));
}

/// Throws unless only this user can come to it.
struct stat require_own(int file, const std::string& path, mode_t kind) {
  struct stat status = {};
  if (fstat(file, &status) != 0) fail_to_write(path);
  const char* const needed = kind == S_IFDIR ? "a folder" : "a regular file";
  const mode_t mode = status.st_mode & 0777;
  if ((status.st_mode & S_IFMT) != kind) fail_with(path, fmt::format("needed is {}", needed));
  if (status.st_uid != geteuid()) {
    fail_with(path, fmt::format("it belongs to user {}: needed is {} of this user's ({})",
                                status.st_uid, needed, geteuid()));
  }
  if ((mode & 077) != 0) {
    fail_with(path, fmt::format("others can come to it (mode {:o}): needed is mode {}", mode,
                                kind == S_IFDIR ? 700 : 600));
  }
  return status;
}

/// A file for this user only: a new one, or one that is there and is such a file. No link is followed, and no pipe waited for.
FileDescriptor open_own(int folder, const std::string& name, int mode, const std::string& path) {
  const int flags = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const mode_t access = S_IRUSR | S_IWUSR;
  // It may come and go between two tries.
  for (int tries = 0; tries < 100; ++tries) {
    FileDescriptor file(openat(folder, name.c_str(), mode | flags | O_CREAT | O_EXCL, access));
    if (!file.is_open() && errno == EEXIST) {
      file = FileDescriptor(openat(folder, name.c_str(), mode | flags));
      if (!file.is_open() && errno == ENOENT) continue;
    }
    if (!file.is_open()) fail_to_write(path);
    require_own(file.number(), path, S_IFREG);
    return file;
  }
  errno = EEXIST;
  fail_to_write(path);
}

/// Until it is closed. Whoever has stopped while it has the lock holds nobody up.
void lock(int file, const std::string& path) {
  constexpr int kMostTries = 1000;
  for (int tries = 0; flock(file, LOCK_EX | LOCK_NB) != 0; ++tries) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || tries == kMostTries) fail_to_write(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class Unlocks {
 public:
  explicit Unlocks(int file) : file_(file) {}
  ~Unlocks() { (void)flock(file_, LOCK_UN); }
  Unlocks(const Unlocks&) = delete;
  Unlocks& operator=(const Unlocks&) = delete;

 private:
  int file_;
};

void write_at(int file, std::string_view bytes, off_t at, const std::string& path) {
  // Beyond this limit the system does not fail the call but ends the program.
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(at) + bytes.size() > limit.rlim_cur) {
    errno = EFBIG;
    fail_to_write(path);
  }
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file, bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) fail_to_write(path);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    at += written;
  }
}

std::string part_of(const std::string& payload) { return "." + payload + ".part"; }

}  // namespace

Recorder::Recorder(const std::string& folder, std::string communicator, int rank,
                   int ranks) noexcept
    : communicator_(std::move(communicator)), rank_(rank), ranks_(ranks), room_(kMostBytes) {
  try {
    open_folder(folder);
    open_calls();
  } catch (const std::exception& why) {
    stop(why);
  }
}

Recorder::~Recorder() {
  try {
    if (!stopped_) flush(/*at_end=*/true);
  } catch (const std::exception& why) {
    stop(why);
  }
  for (const std::string& payload : parts_) {
    (void)unlinkat(folder_.number(), part_of(payload).c_str(), 0);
  }
}

void Recorder::stop(const std::exception& why) noexcept {
  stopped_ = true;
  try {
    say_once(fmt::format("ARLAB_NCCL_RECORD: {}; nothing more is recorded", why.what()));
  } catch (const std::exception&) {  // no memory for the line
  }
}

void Recorder::open_folder(const std::string& folder) {
  folder_name_ = folder;
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) fail_to_write(folder);
  folder_ = FileDescriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder_.is_open()) fail_to_write(folder);
  require_own(folder_.number(), folder, S_IFDIR);
}

void Recorder::open_calls() {
  const std::string path = folder_name_ + "/calls.csv";
  calls_file_ = open_own(folder_.number(), "calls.csv", O_WRONLY, path);
  lock(calls_file_.number(), path);
  const Unlocks unlocks(calls_file_.number());
  if (require_own(calls_file_.number(), path, S_IFREG).st_size != 0) return;
  try {
    write_at(calls_file_.number(), kHeader, 0, path);
  } catch (const std::exception&) {
    (void)ftruncate(calls_file_.number(), 0);
    throw;
  }
}

void Recorder::add(const CallRecord& call) noexcept {
  ++calls_;
  if (rank_ != 0 || stopped_) return;
  try {
    lines_.push_back({fmt::format("{},{},{},{},{},{},{},{},{:.3f},", communicator_, ranks_, calls_,
                                  call.collective, type_name(call.type), call.elements, call.bytes,
                                  call.took, call.host_us),
                      call.payload});
    lines_bytes_ += lines_.back().text.size();
    if (lines_bytes_ > kLinesBytes) flush(/*at_end=*/false);
  } catch (const std::exception& why) {
    stop(why);
  }
}

bool Recorder::is_there(const std::string& payload) const {
  return faccessat(folder_.number(), payload.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void Recorder::flush(bool at_end) {
  std::string text;
  std::size_t taken = 0;
  for (const Line& line : lines_) {
    const bool is_whole = line.payload.empty() || is_there(line.payload);
    if (!is_whole && !at_end && lines_.size() < kMostLines) break;
    text += line.text + (is_whole ? line.payload : "") + "\n";
    ++taken;
  }
  lines_.erase(lines_.begin(), lines_.begin() + static_cast<std::ptrdiff_t>(taken));
  lines_bytes_ = 0;  // those that wait for a payload are looked at again after as many others
  if (text.empty()) return;
  const std::string path = folder_name_ + "/calls.csv";
  const int file = calls_file_.number();
  lock(file, path);
  const Unlocks unlocks(file);
  const off_t end = require_own(file, path, S_IFREG).st_size;
  try {
    write_at(file, text, end, path);
  } catch (const std::exception&) {
    (void)ftruncate(file, end);
    throw;
  }
}

std::size_t Recorder::sampled(DType dtype, std::size_t elements) noexcept {
  const bool is_due = std::has_single_bit(++all_reduces_);
  if (stopped_ || !is_due) return 0;
  return std::min({elements, kMostElements, room_ / size_of(dtype)});
}

std::string Recorder::keep(DType dtype, const std::string& payload, std::size_t ahead) noexcept {
  if (stopped_) return {};
  room_ -= payload.size();
  std::string name;
  try {
    name = fmt::format("all_reduce-{}-{}.safetensors", communicator_, calls_ + ahead + 1);
    write_part(dtype, payload, name);
    return name;
  } catch (const std::exception& why) {
    stop(why);
    if (!name.empty()) (void)unlinkat(folder_.number(), part_of(name).c_str(), 0);
    return {};
  }
}

void Recorder::write_part(DType dtype, const std::string& payload, const std::string& name) {
  const std::size_t ranks = static_cast<std::size_t>(ranks_);
  std::string header =
      fmt::format(R"({{"payload":{{"dtype":"{}","shape":[{},{}],"data_offsets":[0,{}]}}}})",
                  dtype == DType::fp16   ? "F16"
                  : dtype == DType::bf16 ? "BF16"
                                         : "F32",
                  ranks, payload.size() / size_of(dtype), ranks * payload.size());
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t header_bytes = header.size();
  header.insert(0, reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));

  const std::string part = part_of(name);
  const std::string path = folder_name_ + "/" + part;
  const FileDescriptor opened = open_own(folder_.number(), part, O_RDWR, path);
  const int file = opened.number();
  parts_.push_back(name);
  lock(file, path);
  write_at(file, header, 0, path);
  const std::size_t at = header.size() + static_cast<std::size_t>(rank_) * payload.size();
  write_at(file, payload, static_cast<off_t>(at), path);
  // Behind all parts, a letter of each rank that has written its own; the last to do so gives the file its name.
  const std::size_t end = header.size() + ranks * payload.size();
  write_at(file, "w", static_cast<off_t>(end) + rank_, path);
  std::string written(ranks, '\0');
  const ssize_t got = pread(file, written.data(), ranks, static_cast<off_t>(end));
  if (got != static_cast<ssize_t>(ranks) || written != std::string(ranks, 'w')) return;
  if (is_there(name)) fail_with(folder_name_ + "/" + name, "it is there already");
  if (ftruncate(file, static_cast<off_t>(end)) != 0 ||
      renameat(folder_.number(), part.c_str(), folder_.number(), name.c_str()) != 0) {
    fail_to_write(path);
  }
}

}  // namespace arlab::nccl

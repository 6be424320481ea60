#include "reference/tensors/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <system_error>
#include <utility>

#include "reference/error.h"
#include "reference/memory.h"
#include "reference/signals.h"

namespace arlab {

namespace fs = std::filesystem;

namespace {

std::string reason(int error_number) { return std::generic_category().message(error_number); }

/// A name beside `path` that no other thread and no other living process uses; short, for `path`
/// may be as long as names can be.
fs::path temporary_beside(const fs::path& path) {
  static std::atomic<unsigned> count{0};
  return path.parent_path() / fmt::format(".arlab-{}-{}.part", ::getpid(), count++);
}

/// The file that writing to `path` means: what a symbolic link names in the end, else the path.
fs::path target_of(fs::path path) {
  constexpr int kMostLinks = 40;  // as the kernel counts
  std::error_code error;
  for (int links = 0; links < kMostLinks && fs::is_symlink(path, error); ++links) {
    path = path.parent_path() / fs::read_symlink(path, error);
  }
  return path;
}

/// A new file, open for writing and locked; the path becomes its name. Returns -1 and sets errno.
int create_beside(const fs::path& target, fs::path& path) {
  constexpr int kMostTries = 100;  // where a killed process with the same number has left some
  for (int tries = 0; tries < kMostTries; ++tries) {
    path = temporary_beside(target);
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0 && lock_temporary(descriptor)) return descriptor;
    if (descriptor >= 0) ::close(descriptor);
    if (descriptor < 0 && errno != EEXIST) return -1;
  }
  errno = EEXIST;
  return -1;
}

/// Removes temporary files that killed processes have left beside a target; once per folder.
void remove_left_beside(const fs::path& target) {
  static std::mutex mutex;
  static std::set<fs::path> known;
  const std::scoped_lock lock(mutex);
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (known.insert(folder).second) remove_left_behind(folder, ".arlab-#-#.part");
}

/// Whether a name is one of those that the pattern of remove_left_behind() means.
bool is_one_of(std::string_view name, std::string_view pattern) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (const char c : pattern) {
    if (name.empty()) return false;
    const bool letter = (name[0] | 0x20) >= 'a' && (name[0] | 0x20) <= 'z';
    if (c == '#' ? !is_digit(name[0]) : c == 'X' ? !is_digit(name[0]) && !letter : name[0] != c) {
      return false;
    }
    do {
      name.remove_prefix(1);
    } while (c == '#' && !name.empty() && is_digit(name[0]));
  }
  return name.empty();
}

/// Writes all of a piece. Returns 0 or the errno; EINTR when a signal waits for the end of it.
int write_all(int descriptor, std::span<const std::byte> piece) {
  constexpr std::size_t kMost = std::size_t{16} << 20;  // little enough to look for signals between
  while (!piece.empty()) {
    if (SignalsWait::one_came()) return EINTR;
    const ssize_t written = ::write(descriptor, piece.data(), std::min(piece.size(), kMost));
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) piece = piece.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

/// Writes all pieces and closes the file. Returns 0 or the errno.
int write_and_close(int descriptor, std::initializer_list<std::span<const std::byte>> pieces,
                    Durable durable) {
  int error = 0;
  for (const auto piece : pieces) {
    if (error == 0) error = write_all(descriptor, piece);
  }
  if (error == 0 && durable == Durable::yes && ::fsync(descriptor) != 0) error = errno;
  if (::close(descriptor) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

InputFile::InputFile(fs::path path) : path_(std::move(path)) {
  // Looked at before it is opened: opening a device may do something.
  struct ::stat status = {};
  if (::stat(path_.c_str(), &status) != 0) fail("cannot read {}: {}", name(), reason(errno));
  if (!S_ISREG(status.st_mode)) fail("cannot read {}: not a regular file", name());
  // The name is checked once more: a pipe with no writer may have taken it.
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) fail("cannot read {}: {}", name(), reason(errno));
  file_.reset(::fdopen(descriptor, "rb"));
  if (file_ == nullptr) {
    ::close(descriptor);
    throw std::bad_alloc();
  }
  if (::fstat(descriptor, &status) != 0) fail("cannot read {}: {}", name(), reason(errno));
  if (!S_ISREG(status.st_mode)) fail("cannot read {}: not a regular file", name());
  remaining_ = static_cast<std::size_t>(status.st_size);
  // Files of /proc say that they are empty.
  if (remaining_ == 0 && std::fgetc(file_.get()) != EOF) {
    fail("cannot read {}: it has content, but says that its size is 0; copy it first", name());
  }
  if (std::ferror(file_.get()) != 0) fail("cannot read {}: {}", name(), reason(errno));
}

void InputFile::fail_early(std::size_t wanted) const {
  fail("{}: the file ends early: {} more bytes expected, {} found", name(), wanted, remaining_);
}

void InputFile::read(std::span<std::byte> into) {
  if (into.empty()) return;
  if (into.size() > remaining_) fail_early(into.size());
  if (std::fread(into.data(), 1, into.size(), file_.get()) != into.size()) {
    if (std::ferror(file_.get()) != 0) fail("cannot read {}: {}", name(), reason(errno));
    fail_early(into.size());
  }
  remaining_ -= into.size();
}

std::string InputFile::read_rest() {
  require_memory(remaining_, name());
  std::string text(remaining_, '\0');
  read(std::span<char>(text));
  return text;
}

void InputFile::skip(std::size_t bytes) {
  if (bytes > remaining_ || ::fseeko(file_.get(), static_cast<off_t>(bytes), SEEK_CUR) != 0) {
    fail("{}: the file ends early: cannot skip {} of {} bytes", name(), bytes, remaining_);
  }
  remaining_ -= bytes;
}

std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return text;
}

std::string read_text_file(const fs::path& path, const char* what) {
  try {
    return InputFile(path).read_rest();
  } catch (const InvalidInput& error) {
    std::string_view why = error.what();
    const std::string first_words = "cannot read " + path.string() + ": ";
    if (why.starts_with(first_words)) why.remove_prefix(first_words.size());
    fail("{} '{}' cannot be read: {}", what, printable(path.string()), why);
  }
}

bool lock_temporary(int descriptor) {
  // Not every file system has locks; there nothing is taken for left behind.
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  struct ::stat status = {};
  return ::fstat(descriptor, &status) == 0 && status.st_nlink > 0;
}

std::vector<fs::path> paths_in(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> paths;
  error.clear();
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), ::closedir);
  if (stream == nullptr) {
    error = std::error_code(errno, std::generic_category());
    return paths;
  }
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") paths.push_back(folder / name);
  }
  if (errno != 0) error = std::error_code(errno, std::generic_category());
  std::sort(paths.begin(), paths.end());
  return paths;
}

void remove_left_behind(const fs::path& folder, std::string_view names) {
  std::error_code error;
  for (const fs::path& path : paths_in(folder, error)) {
    if (!is_one_of(path.filename().string(), names)) continue;
    const int descriptor =
        ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (descriptor < 0) continue;
    struct ::stat ours = {};
    struct ::stat there = {};
    const bool left = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 &&
                      ::fstat(descriptor, &ours) == 0 && ::lstat(path.c_str(), &there) == 0 &&
                      ours.st_ino == there.st_ino && ours.st_dev == there.st_dev &&
                      ours.st_uid == ::geteuid() &&
                      (S_ISREG(ours.st_mode) || S_ISDIR(ours.st_mode));
    std::error_code ignored;  // files that cannot be removed stay
    if (left) fs::remove_all(path, ignored);
    ::close(descriptor);
  }
}

void require_replaceable(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    fail("cannot write {}: not a regular file", path.string());
  }
  if (!fs::status_known(status)) fail("cannot write {}: {}", path.string(), error.message());
}

void write_file(const fs::path& path, std::initializer_list<std::span<const std::byte>> pieces,
                Durable durable) {
  require_replaceable(path);
  const fs::path target = target_of(path);
  const SignalsWait wait;
  remove_left_beside(target);
  fs::path temporary;
  const int descriptor = create_beside(target, temporary);
  if (descriptor < 0) fail("cannot write {}: {}", path.string(), reason(errno));
  int error_number = write_and_close(descriptor, pieces, durable);
  if (error_number == 0 && std::rename(temporary.c_str(), target.c_str()) != 0) {
    error_number = errno;
  }
  if (error_number != 0) {
    ::unlink(temporary.c_str());
    fail("cannot write {}: {}", path.string(), reason(error_number));
  }
}

}  // namespace arlab

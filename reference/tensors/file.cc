#include "reference/tensors/file.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "reference/error.h"

namespace arlab {

namespace fs = std::filesystem;

namespace {

std::string reason(int error_number) { return std::generic_category().message(error_number); }

/// A name beside `path` that no other thread and no other living process uses.
fs::path temporary_beside(const fs::path& path) {
  static std::atomic<unsigned> count{0};
  return path.parent_path() /
         fmt::format(".{}.{}-{}.part", path.filename().string(), ::getpid(), count++);
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

/// Creates the file and writes all of it to the disk's cache. Returns 0 or the errno.
int write_new(const fs::path& path, std::initializer_list<std::span<const std::byte>> pieces) {
  std::FILE* const file = std::fopen(path.c_str(), "wbx");
  if (file == nullptr) return errno;
  int error = 0;
  for (const auto piece : pieces) {
    if (piece.empty()) continue;
    if (error == 0 && std::fwrite(piece.data(), 1, piece.size(), file) != piece.size()) {
      error = errno;
    }
  }
  if (std::fclose(file) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

InputFile::InputFile(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (!fs::exists(status)) fail("cannot read {}: {}", name(), reason(ENOENT));
  if (!fs::is_regular_file(status)) fail("cannot read {}: not a regular file", name());
  file_.reset(std::fopen(path_.c_str(), "rbe"));
  if (file_ == nullptr) fail("cannot read {}: {}", name(), reason(errno));
  remaining_ = fs::file_size(path_, error);
  if (error) fail("cannot read {}: {}", name(), error.message());
}

void InputFile::read(std::span<std::byte> into) {
  if (into.empty()) return;
  if (into.size() > remaining_ ||
      std::fread(into.data(), 1, into.size(), file_.get()) != into.size()) {
    fail("{}: the file ends early: {} more bytes expected, {} found", name(), into.size(),
         remaining_);
  }
  remaining_ -= into.size();
}

void InputFile::skip(std::size_t bytes) {
  if (bytes > remaining_ || ::fseeko(file_.get(), static_cast<off_t>(bytes), SEEK_CUR) != 0) {
    fail("{}: the file ends early: cannot skip {} of {} bytes", name(), bytes, remaining_);
  }
  remaining_ -= bytes;
}

void write_file(const fs::path& path, std::initializer_list<std::span<const std::byte>> pieces) {
  const fs::path target = target_of(path);
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    fail("cannot write {}: not a regular file", path.string());
  }
  const fs::path temporary = temporary_beside(target);
  int error_number = write_new(temporary, pieces);
  if (error_number == 0 && std::rename(temporary.c_str(), target.c_str()) != 0) {
    error_number = errno;
  }
  if (error_number != 0) {
    fs::remove(temporary, error);
    fail("cannot write {}: {}", path.string(), reason(error_number));
  }
}

}  // namespace arlab

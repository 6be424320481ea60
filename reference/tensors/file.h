// Whole files in and out: sizes known before memory is asked for, no half-written results.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace arlab {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// A regular file that is read from front to back.
class InputFile {
 public:
  /// Throws InvalidInput when the file is missing, unreadable, or not a regular file.
  explicit InputFile(std::filesystem::path path);

  std::string name() const { return path_.string(); }

  /// Bytes not read yet.
  std::size_t remaining() const { return remaining_; }

  /// Fills `into` with the next into.size() bytes. Throws InvalidInput when there are fewer.
  void read(std::span<std::byte> into);
  void read(std::span<char> into) { read(std::as_writable_bytes(into)); }

  /// Leaves out the next `bytes` bytes. Throws InvalidInput when there are fewer.
  void skip(std::size_t bytes);

 private:
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::size_t remaining_ = 0;
};

/// Writes the pieces, one after the other, to a temporary file beside `path`, then renames it to
/// `path`: readers see the old file or the whole new one. A symbolic link is followed.
/// Throws InvalidInput, and leaves nothing behind, when the file cannot be written.
void write_file(const std::filesystem::path& path,
                std::initializer_list<std::span<const std::byte>> pieces);

}  // namespace arlab

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
#include <system_error>
#include <vector>

namespace arlab {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// A regular file that is read from front to back.
class InputFile {
 public:
  /// Throws InvalidInput, with the system's reason, when the file is missing, unreadable, or not a
  /// regular file with a size. Never waits for the other end of a pipe.
  explicit InputFile(std::filesystem::path path);

  std::string name() const { return path_.string(); }

  /// Bytes not read yet.
  std::size_t remaining() const { return remaining_; }

  /// Fills `into` with the next into.size() bytes. Throws InvalidInput when there are fewer.
  void read(std::span<std::byte> into);
  void read(std::span<char> into) { read(std::as_writable_bytes(into)); }

  /// Reads all that is left, as text.
  std::string read_rest();

  /// Leaves out the next `bytes` bytes. Throws InvalidInput when there are fewer.
  void skip(std::size_t bytes);

 private:
  [[noreturn]] void fail_early(std::size_t wanted) const;

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::size_t remaining_ = 0;
};

/// Text of a file as it may stand in a one-line message.
std::string printable(std::string text);

/// The whole of a regular file. Throws InvalidInput when it cannot be read; `what` says what it
/// should be.
std::string read_text_file(const std::filesystem::path& path, const char* what);

/// Whether what was written is on the disk, or in the system's memory, when write_file returns.
enum class Durable { no, yes };

/// Writes the pieces, one after the other, to a temporary file beside `path`, then renames it to
/// `path`: readers see the old file or the whole new one. A symbolic link is followed.
/// Throws InvalidInput, and leaves nothing behind, when the file cannot be written. A signal that
/// would end the program waits until nothing is left behind (reference/signals.h).
void write_file(const std::filesystem::path& path,
                std::initializer_list<std::span<const std::byte>> pieces,
                Durable durable = Durable::no);
/// The same with a text in place of pieces.
inline void write_file(const std::filesystem::path& path, std::string_view text,
                       Durable durable = Durable::no) {
  write_file(path, {std::as_bytes(std::span(text))}, durable);
}

/// Locks a new temporary file or folder until the descriptor is closed, as it is when its process is
/// killed. False where another process has just taken it for one that was left behind.
bool lock_temporary(int descriptor);

/// Returns the paths in a folder, by name; nothing, and the reason, where it cannot be read. In place of
/// std::filesystem::directory_iterator, which ends the program where it gets no memory.
std::vector<std::filesystem::path> paths_in(const std::filesystem::path& folder,
                                            std::error_code& error);

/// Removes what killed processes of this user have left in a folder: files and folders with such names that are not locked. In
/// the names, `X` stands for a letter or digit each, `#` for a number.
void remove_left_behind(const std::filesystem::path& folder, std::string_view names);

/// Throws InvalidInput when something that is not a regular file has the name that is to be
/// written, so that long work is not done in vain.
void require_replaceable(const std::filesystem::path& path);

}  // namespace arlab

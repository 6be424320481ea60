// Files that come with arlab, and files that a request is to write.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace arlab::lab {

/// A file or folder that belongs to arlab, by its path below experiments/: that of the folder
/// named by set_data_folder(), else of the source tree, else where the program is installed.
std::filesystem::path data_path(const std::filesystem::path& path);
/// Where data_path() looks first; before anything is asked.
void set_data_folder(const std::filesystem::path& folder);

/// The Python that draws: $ARLAB_PYTHON, the project's virtual environment, or python3.
std::string python();

/// Throws InvalidInput unless the file's folder exists, so that long work is not done in vain.
void require_folder_of(const std::string& path);
/// The same, and when the name is that of a folder, a pipe or a device, or, by whatever links, of a file that is read.
void require_output_file(const std::string& path, const std::vector<std::string>& read = {});
/// The same, and unless the name ends in one of these; The message calls it `what`.
void require_output_name(const std::string& what, const std::string& path,
                         const std::vector<std::string>& endings,
                         const std::vector<std::string>& read = {});

/// Removes files that are there, so that nobody takes them for those of what is made now.
void remove_all(const std::vector<std::filesystem::path>& files);

/// Text as it may stand in a line of a file: control characters and bytes that are not UTF-8 as
/// \xNN.
std::string one_line(const std::string& text);

/// An argument as a shell takes it, on one line of printable characters.
std::string shell_quote(const std::string& text);

/// How the program was called, for files of results: arlab and its arguments, as for a shell, on one line.
void set_command_line(std::string line);
const std::string& command_line();

/// The file that --setup names, and a hash of all that it has run; of this thread, empty where there is none.
struct Setup {
  std::string file;
  std::string hash;
};
void set_setup(Setup setup);
const Setup& setup_of_command();

/// Objects that are cleaned up even when the program ends at once, since there was no memory for a destructor of a library:
/// then no other destructor runs. Those of a thread end in the reverse order.
class CleanedUpAtLast {
 public:
  CleanedUpAtLast() : before_(last_) { last_ = this; }
  virtual ~CleanedUpAtLast() { last_ = before_; }
  CleanedUpAtLast(const CleanedUpAtLast&) = delete;
  CleanedUpAtLast& operator=(const CleanedUpAtLast&) = delete;

  /// All of this thread's.
  static void clean_up_all() noexcept {
    for (CleanedUpAtLast* one = last_; one != nullptr; one = one->before_) one->clean_up();
  }

 private:
  /// Takes no memory.
  virtual void clean_up() noexcept = 0;

  static inline thread_local CleanedUpAtLast* last_ = nullptr;
  CleanedUpAtLast* before_;
};

}  // namespace arlab::lab

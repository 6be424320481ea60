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

/// Throws InvalidInput unless the file's folder exists, so that long work is not done in vain.
void require_folder_of(const std::string& path);
/// The same, and when the name is that of a folder, a pipe or a device.
void require_output_file(const std::string& path);
/// The same, and unless the name ends in one of these; `what` is what the message calls it.
void require_output_name(const std::string& what, const std::string& path,
                         const std::vector<std::string>& endings);

}  // namespace arlab::lab

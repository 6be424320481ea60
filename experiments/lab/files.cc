#include "experiments/lab/files.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "reference/error.h"
#include "reference/tensors/file.h"

namespace arlab::lab {

namespace {
std::filesystem::path data_folder;
}

void set_data_folder(const std::filesystem::path& folder) { data_folder = folder; }

std::filesystem::path data_path(const std::filesystem::path& path) {
  std::error_code error;
  for (const std::filesystem::path& folder :
       {data_folder, std::filesystem::path(ARLAB_SOURCE_DIR) / "experiments"}) {
    if (!folder.empty() && std::filesystem::exists(folder / path, error)) return folder / path;
  }
  return std::filesystem::path(ARLAB_DATA_DIR) / path;
}

void require_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return;
  const bool is_other = !error || error == std::errc::no_such_file_or_directory ||
                        error == std::errc::not_a_directory;
  if (is_other) fail("cannot write {}: there is no folder {}", path, folder.string());
  fail("cannot write {}: {}", path, error.message());
}

void require_output_file(const std::string& path) {
  require_folder_of(path);
  require_replaceable(path);
}

void require_output_name(const std::string& what, const std::string& path,
                         const std::vector<std::string>& endings) {
  const bool fits = std::any_of(endings.begin(), endings.end(), [&path](const std::string& ending) {
    return path.size() > ending.size() && path.ends_with(ending);
  });
  if (!fits) {
    fail("{} is {}: allowed is a name that ends in {}", what, quote(path),
         fmt::join(endings, " or "));
  }
  require_output_file(path);
}

}  // namespace arlab::lab

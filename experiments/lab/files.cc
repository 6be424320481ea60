#include "experiments/lab/files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

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

std::string python() {
  if (const char* chosen = std::getenv("ARLAB_PYTHON"); chosen != nullptr && *chosen != '\0')
    return chosen;
  const auto of_project = std::filesystem::path(ARLAB_SOURCE_DIR) / ".venv/bin/python";
  std::error_code error;
  return std::filesystem::exists(of_project, error) ? of_project.string() : "python3";
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

void require_output_file(const std::string& path, const std::vector<std::string>& read) {
  require_folder_of(path);
  require_replaceable(path);
  std::error_code error;  // files need not be there
  for (const std::string& each : read) {
    if (std::filesystem::equivalent(path, each, error)) {
      fail("cannot write {}: {} is read: allowed is another file", path, each);
    }
  }
}

void require_output_name(const std::string& what, const std::string& path,
                         const std::vector<std::string>& endings,
                         const std::vector<std::string>& read) {
  const bool fits = std::any_of(endings.begin(), endings.end(), [&path](const std::string& ending) {
    return path.size() > ending.size() && path.ends_with(ending);
  });
  if (!fits) {
    fail("{} is {}: allowed is a name that ends in {}", what, quote(path),
         fmt::join(endings, " or "));
  }
  require_output_file(path, read);
}

namespace {

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::ordered_json(text).dump();
    return true;
  } catch (const nlohmann::ordered_json::type_error&) {
    return false;
  }
}

/// Control characters as \xNN, and all that is not ASCII where the text is not UTF-8; also what
/// `marked` holds.
std::string escaped(const std::string& text, std::string_view marked) {
  const bool readable = is_utf8(text);
  std::string line;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    const bool plain = code >= 0x20 && code != 0x7f && (code < 0x80 || readable) &&
                       marked.find(c) == std::string_view::npos;
    line += plain ? std::string(1, c) : fmt::format("\\x{:02x}", code);
  }
  return line;
}

}  // namespace

void remove_all(const std::vector<std::filesystem::path>& files) {
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    std::filesystem::remove(file, error);
    if (error) fail("{} cannot be removed: {}", file.string(), error.message());
  }
}

std::string one_line(const std::string& text) { return escaped(text, ""); }

std::string shell_quote(const std::string& text) {
  const auto needs_none = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-+=./,:@%^").find(c) != std::string_view::npos ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  if (one_line(text) != text) return "$'" + escaped(text, "'\\") + "'";
  if (!text.empty() && std::all_of(text.begin(), text.end(), needs_none)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

namespace {
// They stay when their thread ends: a destructor has to be registered, for which there may be no memory.
thread_local const std::string* called_as = nullptr;
thread_local const Setup* set_up_by = nullptr;
}  // namespace

void set_command_line(std::string line) {
  delete std::exchange(called_as, new std::string(std::move(line)));
}
const std::string& command_line() {
  static const std::string otherwise = "arlab";
  return called_as == nullptr ? otherwise : *called_as;
}

void set_setup(Setup setup) { delete std::exchange(set_up_by, new Setup(std::move(setup))); }
const Setup& setup_of_command() {
  static const Setup none;
  return set_up_by == nullptr ? none : *set_up_by;
}

}  // namespace arlab::lab

#include "kernels/runtime/conformance_record.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <system_error>
#include <utility>

#include "reference/error.h"
#include "reference/tensors/file.h"

namespace arlab::kernels {
namespace {

namespace fs = std::filesystem;

/// Throws InvalidInput where there is something else than a file of lines.
std::set<std::string> lines_of(const fs::path& path) {
  std::set<std::string> lines;
  std::error_code error;
  if (fs::status(path, error).type() == fs::file_type::not_found) return lines;
  std::istringstream file(read_text_file(path, "the record of conform"));
  for (std::string line; std::getline(file, line);) lines.insert(line);
  return lines;
}

}  // namespace

ConformanceRecord::ConformanceRecord(const std::string& devices) {
  utsname system = {};
  (void)uname(&system);
  machine_ =
      fmt::format("{}, {}, {}, arlab {}", system.nodename, system.release, devices, ARLAB_VERSION);
  std::replace_if(
      machine_.begin(), machine_.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
}

std::string ConformanceRecord::line(const std::string& algorithm, int ranks) const {
  return fmt::format("{}\t{}\t{}", machine_, algorithm, ranks);
}

Result<fs::path> ConformanceRecord::file() const {
  for (const auto& [variable, below] :
       {std::pair("ARLAB_CACHE", ""), std::pair("XDG_CACHE_HOME", "arlab"),
        std::pair("HOME", ".cache/arlab")}) {
    const char* const value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
    if (value != nullptr && *value != '\0') return fs::path(value) / below / "sentinels.tsv";
  }
  return Status::error(
      "there is no place for a record: set ARLAB_CACHE, XDG_CACHE_HOME or HOME to a folder");
}

bool ConformanceRecord::has(int ranks) const {
  const auto path = file();
  if (!path.ok()) return false;
  try {
    const std::set<std::string> lines = lines_of(path.value());
    return lines.contains(line("one_shot", ranks)) && lines.contains(line("two_shot", ranks));
  } catch (const InvalidInput&) {
    return false;
  }
}

Status ConformanceRecord::set(const std::set<std::string>& algorithms, const std::set<int>& ranks,
                              bool passed) const {
  ARLAB_ASSIGN_OR_RETURN(const fs::path path, file());
  std::set<std::string> lines;
  try {
    lines = lines_of(path);
  } catch (const InvalidInput& wrong) {
    return Status::error(wrong.what());
  }
  for (const std::string& algorithm : algorithms) {
    for (const int count : ranks) {
      if (passed) {
        lines.insert(line(algorithm, count));
      } else {
        lines.erase(line(algorithm, count));
      }
    }
  }
  std::string text;
  for (const std::string& each : lines) text += each + '\n';
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  try {
    write_file(path, text);
  } catch (const InvalidInput& wrong) {
    return Status::error(wrong.what());
  }
  return {};
}

}  // namespace arlab::kernels

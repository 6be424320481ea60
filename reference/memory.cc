#include "reference/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>

#include "reference/error.h"

namespace arlab {
namespace {

// Paths are texts: what joins those of std::filesystem does not survive it where there is no memory (libstdc++ 12).

std::uint64_t less(std::uint64_t all, std::uint64_t used) { return all - std::min(all, used); }

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE)); }

/// The first word of a file, if it is a number ("max" is none).
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

/// The number behind a word at the start of a line.
std::optional<std::uint64_t> number_behind(const std::string& path, std::string_view word) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string first;
    std::uint64_t number = 0;
    if (words >> first >> number && first == word) return number;
  }
  return std::nullopt;
}

std::uint64_t free_in_machine(const std::string& root) {
  constexpr std::uint64_t kKiB = 1024;
  const std::string meminfo = root + "/proc/meminfo";
  const auto available = number_behind(meminfo, "MemAvailable:");
  if (available) return (*available + number_behind(meminfo, "SwapFree:").value_or(0)) * kKiB;
  const long pages = sysconf(_SC_PHYS_PAGES);
  return pages <= 0 ? UINT64_MAX : static_cast<std::uint64_t>(pages) * page_bytes();
}

/// The names of the files of a version of cgroups.
struct CgroupFiles {
  const char* mount;
  const char* limit;
  const char* used;
  const char* cache;  ///< in memory.stat: of what is used, files that can be dropped
};
constexpr CgroupFiles kVersion1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                   "memory.usage_in_bytes", "total_inactive_file"};
constexpr CgroupFiles kVersion2 = {"sys/fs/cgroup", "memory.max", "memory.current",
                                   "inactive_file"};

/// Returns the bytes left in a cgroup and in those around it. Inside of a container its path may be that of the host; the
/// container's own cgroup is then what is mounted.
std::uint64_t left_in_cgroup(const std::string& root, const CgroupFiles& files, std::string path) {
  std::uint64_t left = UINT64_MAX;
  for (bool last = false; !last;) {
    last = path.empty();
    const std::string folder = root + "/" + files.mount + "/" + path + "/";
    const std::size_t parent = path.rfind('/');
    path.resize(parent == std::string::npos ? 0 : parent);
    const auto limit = number_in(folder + files.limit);
    const auto used = number_in(folder + files.used);
    if (!limit || !used) continue;
    const std::uint64_t cache = number_behind(folder + "memory.stat", files.cache).value_or(0);
    left = std::min(left, less(*limit, less(*used, cache)));
  }
  return left;
}

std::uint64_t left_in_cgroups(const std::string& root) {
  std::uint64_t left = UINT64_MAX;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;  // number:controllers:path
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers =
        fmt::format(",{},", std::string_view(line).substr(first + 1, second - first - 1));
    const bool version1 = controllers.find(",memory,") != std::string::npos;
    if (!version1 && controllers != ",,") continue;
    left = std::min(
        left, left_in_cgroup(root, version1 ? kVersion1 : kVersion2, line.substr(second + 1)));
  }
  return left;
}

std::uint64_t left_of_address_space(const std::string& root) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  const std::uint64_t pages = number_in(root + "/proc/self/statm").value_or(0);
  return less(limit.rlim_cur, pages * page_bytes());
}

}  // namespace

std::uint64_t available_memory(const std::string& root) {
  return std::min({free_in_machine(root), left_in_cgroups(root), left_of_address_space(root)});
}

std::string memory_text(std::uint64_t bytes) {
  constexpr double kMiB = 1 << 20;
  const double mib = static_cast<double>(bytes) / kMiB;
  return mib < 1024 ? fmt::format("{:.0f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

void require_memory(std::uint64_t bytes, std::string_view what, std::string_view advice) {
  const std::uint64_t available = available_memory();
  if (bytes <= available) return;
  fail("not enough memory: {} needs about {}, {} are available{}{}", what, memory_text(bytes),
       memory_text(available), advice.empty() ? "" : "; ", advice);
}

void require_memory_for(std::uint64_t units, std::string_view option, double fixed, double per_unit,
                        std::string_view what) {
  const double needed = fixed + per_unit * static_cast<double>(units);
  const auto available = static_cast<double>(available_memory());
  const double fitting = (available - fixed) / per_unit;
  const std::string advice = fitting < 1
                                 ? fmt::format("no {} fits", option)
                                 : fmt::format("{} up to {:.0f} fits", option, std::floor(fitting));
  constexpr double kMost = 0x1p63;
  require_memory(static_cast<std::uint64_t>(std::min(needed, kMost)), what, advice);
}

}  // namespace arlab

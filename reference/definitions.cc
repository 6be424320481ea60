#include "reference/definitions.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <ctime>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

namespace arlab {
namespace {

std::atomic<std::uint64_t> made = 0;

struct Definitions {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, Fingerprint> by_kind_and_name;
  std::set<std::string> guessed;
};
Definitions& kept() {
  static Definitions instance;
  return instance;
}

/// Whether a name stands in a text, and is no part of a longer one there.
bool mentions(std::string_view text, std::string_view name) {
  const auto goes_on = [&](std::size_t at) {
    return at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
    if ((at == 0 || !goes_on(at - 1)) && !goes_on(at + name.size())) return true;
  }
  return false;
}

bool any_mentions(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::any_of(names, [&](const auto& text) { return mentions(text, name); });
}

}  // namespace

std::uint64_t definitions_made() { return made.load(); }

void count_definition() { ++made; }

void keep_fingerprint(const std::string& kind, const std::string& name, Fingerprint fingerprint) {
  Definitions& all = kept();
  const std::scoped_lock lock(all.mutex);
  all.by_kind_and_name[{kind, name}] = std::move(fingerprint);
}

std::map<std::string, Fingerprint> fingerprints_of(const std::vector<std::string>& names) {
  Definitions& all = kept();
  const std::scoped_lock lock(all.mutex);
  std::map<std::string, Fingerprint> found;
  for (const auto& [key, fingerprint] : all.by_kind_and_name) {
    const auto& [kind, name] = key;
    if (any_mentions(names, name)) found[kind + ' ' + name] = fingerprint;
  }
  return found;
}

FileVersion version_of_file(const std::string& path) {
  struct ::stat about = {};
  if (::stat(path.c_str(), &about) != 0) return {};
  const std::time_t changed = std::max(about.st_mtim.tv_sec, about.st_ctim.tv_sec);
  return {fmt::format("{} {} {} {}.{} {}.{}", about.st_dev, about.st_ino, about.st_size,
                      about.st_mtim.tv_sec, about.st_mtim.tv_nsec, about.st_ctim.tv_sec,
                      about.st_ctim.tv_nsec),
          changed + 1 < std::time(nullptr)};
}

void keep_guess(const std::string& codec, bool is_guess) {
  Definitions& all = kept();
  const std::scoped_lock lock(all.mutex);
  if (is_guess) {
    all.guessed.insert(codec);
  } else {
    all.guessed.erase(codec);
  }
}

std::vector<std::string> guessed_codecs(const std::vector<std::string>& names) {
  Definitions& all = kept();
  const std::scoped_lock lock(all.mutex);
  std::vector<std::string> found;
  for (const std::string& codec : all.guessed) {
    if (any_mentions(names, codec)) found.push_back(codec);
  }
  return found;
}

}  // namespace arlab

#include "experiments/lab/distributed.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>

#include "experiments/lab/files.h"
#include "experiments/lab/hashes.h"
#include "experiments/lab/results_file.h"
#include "reference/definitions.h"
#include "reference/error.h"
#include "reference/json.h"

namespace arlab::lab {

void Run::lose(std::size_t point, const std::string& why) {
  lost_.push_back(fmt::format("{}: {}", name(point), why));
  progress().say("failed: " + lost_.back());
}

std::string Run::losses() const {
  constexpr std::size_t kMost = 3;  // in full; all of them have been said
  if (lost_.empty()) return {};
  std::string text = fmt::format("{} of {} points failed", lost_.size(), points());
  for (std::size_t i = 0; i < std::min(kMost, lost_.size()); ++i) {
    text += fmt::format("{} {}", i == 0 ? ":" : ";", lost_[i]);
  }
  if (lost_.size() > kMost) text += fmt::format("; and {} more", lost_.size() - kMost);
  return fmt::format("{}; {}", text, remedy());
}

std::vector<Outcome> values_of(const std::string& task) {
  const Json json = parse_json<Json>(task);
  return json.at("kind") == "study" ? study_values_of(json) : sweep_values_of(json);
}

std::string located_path(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  if (error) fail("{}: {}", path.string(), error.message());
  return whole.lexically_normal().string();
}

std::string program_definition() {
  return fmt::format("arlab {} {}", ARLAB_VERSION, known_hash_of_file(program_file()));
}

Json own_definitions(const std::vector<std::string>& names) {
  Json own = Json::object();
  for (const auto& [what, fingerprint] : fingerprints_of(names)) {
    const std::string text = fingerprint();
    own[what] = text.starts_with(kUntold) ? text : fmt::format("{:016x}", quick_hash(text));
  }
  if (const Setup& setup = setup_of_command(); !setup.file.empty()) own["setup"] = setup.hash;
  return own;
}

void require_told(const Json& own, std::string_view option) {
  for (const auto& [what, hash] : own.items()) {
    const auto& text = hash.get_ref<const std::string&>();
    if (!text.starts_with(kUntold)) continue;
    const std::string_view why = std::string_view(text).substr(kUntold.size());
    fail("{}: {} may have changed: it uses {}; leave out {}", option, what,
         why.substr(0, why.rfind(" #")), option);
  }
}

std::string known_hash_of_file(const std::string& path) {
  struct Known {
    FileVersion version;
    std::string hash;
  };
  static std::mutex mutex;
  static std::map<std::string, Known> known;
  const FileVersion version = version_of_file(path);
  const std::scoped_lock lock(mutex);
  const auto found = known.find(path);
  if (found != known.end() && found->second.version.is_still(version)) {
    return found->second.hash;
  }
  const std::string hash = quick_hash_of_file(path);
  known[path] = {version, hash};
  return hash;
}

void require_same_definition(const Json& run, const Json& worker) {
  if (run == worker) return;
  fail(
      "another version of arlab, or other files, than where the points are handed out (they differ "
      "in: {})",
      differences(json_line(run), json_line(worker)));
}

Outcome outcome_of(const std::function<std::string()>& compute) {
  try {
    return {compute(), ""};
  } catch (const InvalidInput& error) {
    return {"", error.what()};
  } catch (const std::bad_alloc&) {
    return {"", "not enough memory for this request"};
  }
}

}  // namespace arlab::lab

#include "experiments/lab/grids/grid.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>

#include "experiments/lab/files.h"
#include "experiments/lab/hashes.h"
#include "reference/collectives/algorithm.h"
#include "reference/definitions.h"
#include "reference/error.h"
#include "reference/json.h"
#include "reference/parallel.h"
#include "sim/topology/topology.h"

namespace arlab::lab {
namespace {

/// While it exists, a reader that stops listening does not end the program.
class IgnoredPipes {
 public:
  IgnoredPipes() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
  ~IgnoredPipes() { std::signal(SIGPIPE, before_); }
  IgnoredPipes(const IgnoredPipes&) = delete;
  IgnoredPipes& operator=(const IgnoredPipes&) = delete;

 private:
  void (*before_)(int);
};

/// The hash of a file that has not changed since this process has last hashed it, or quick_hash_of_file().
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

bool is_file_name(const std::string& name) {
  return name.ends_with(".toml") || is_schedule_file(name);
}

/// Returns the hash of a machine, with the files that it builds on.
std::string hash_of(const std::string& file) {
  if (!file.ends_with(".toml")) return known_hash_of_file(file);
  return fmt::format("{:016x}", quick_hash(to_toml(find_topology(file))));
}

/// By which program rows are computed, and what of it is defined at run time.
Json program_with(const Json& own) {
  Json program = {
      {"program", fmt::format("arlab {} {}", ARLAB_VERSION, known_hash_of_file(program_file()))}};
  program.update(own);
  return program;
}

Answer answer_of(const Json& kind) { return kind == "study" ? study_answer() : sweep_answer(); }

std::string text_of_cell(const Cell& cell) {
  return cell.json().is_string() ? cell.json().get<std::string>() : json_line(cell);
}

}  // namespace

Outcome outcome_of(const std::function<Json()>& compute) {
  try {
    return {json_line(compute()), ""};
  } catch (const InvalidInput& error) {
    return {"", error.what()};
  } catch (const std::bad_alloc&) {
    return {"", "not enough memory for this request"};
  }
}

// ---------------------------------------------------------------- where the rows are

void Grid::take(std::vector<Point> points, std::vector<std::string> names,
                std::vector<std::string> files) {
  points_ = std::move(points);
  names_ = std::move(names);
  rows_.resize(points_.size());
  refused_.resize(points_.size());
  own_ = own_definitions(names_);
  std::ranges::copy_if(names_, std::back_inserter(files), is_file_name);
  for (const std::string& file : files) hashes_.try_emplace(located_path(file));
  for (auto& [file, hash] : hashes_) hash = hash_of(file);
}

void Grid::keep_in(const std::filesystem::path& folder, std::string title, std::string provenance,
                   bool resume, const std::vector<std::string>& derived) {
  for (const std::string& name : derived) derived_.push_back(folder / name);
  std::vector<ResultsFile::Cells> keys;
  for (const Point& point : points_) {
    std::ranges::transform(point.key, std::back_inserter(keys.emplace_back()), text_of_cell);
  }
  file_.emplace(folder,
                ResultsHeader{std::move(title), command_line(), std::move(provenance),
                              json_line(definition())},
                columns_, std::move(keys));
  resume_ = resume;
  if (resume) require_told(own_, "--resume");
}

/// Everything that decides the rows: two grids with equal definitions have equal rows, wherever their files are.
Json Grid::definition() const {
  Json json = program_with(own_);
  std::string requests;
  for (const Point& point : points_) {
    for (std::size_t i = 0; i < point.key.size(); ++i) {
      Json& axis = json[columns_[i]];
      if (std::ranges::find(axis, point.key[i].json()) == axis.end()) axis.push_back(point.key[i]);
    }
    requests += json_line(point.asked);
  }
  for (const auto& [file, hash] : hashes_) {
    json["files"].push_back(hash);
    const std::string name = json_line(file);
    for (std::size_t at = 0; (at = requests.find(name, at)) != std::string::npos;) {
      requests.replace(at, name.size(), hash);
    }
  }
  json["requests"] = fmt::format("{:016x}", quick_hash(requests));
  return json;
}

void Grid::open() {
  if (file_) {
    if (!resume_) remove_all(derived_);
    file_->open(resume_);
    remove_all(derived_);
    done_ = file_->rows();
  }
  if (done_ > 0) write_progress(fmt::format("resuming after {} points\n", done_));
  progress_.emplace(points());
  progress_->show(done_);
}

std::vector<std::size_t> Grid::missing() const {
  std::vector<std::size_t> points;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (!file_ || !file_->has(i)) points.push_back(i);
  }
  return points;
}

std::string Grid::task(std::span<const std::size_t> points) const {
  Json json = {{"kind", kind_}, {"names", names_}, {"definition", program_with(own_)}};
  for (const std::size_t point : points) json["points"].push_back(points_[point].asked.json());
  const std::string asked = json_line(json["points"]);
  Json files = Json::object();
  for (const auto& [file, hash] : hashes_) {
    if (asked.find(json_line(file)) != std::string::npos) files[file] = hash;
  }
  json["definition"]["files"] = files;
  return json_line(json);
}

void Grid::append(std::span<const std::size_t> points, std::span<const Outcome> outcomes) {
  std::vector<std::size_t> done;
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!outcomes[i].error.empty()) {
      if (file_) {
        lose(points[i], outcomes[i].error);
      } else {
        refused_[points[i]] = outcomes[i].error;
      }
      continue;
    }
    std::vector<Cell> row = points_[points[i]].key;
    for (const Json& value : parse_json<Json>(outcomes[i].values)) row.emplace_back(value);
    done.push_back(points[i]);
    lines.push_back(csv_line(row));
    lines.back().pop_back();  // the line feed
    rows_[points[i]] = std::move(row);
  }
  if (file_ && !done.empty()) file_->append(done, lines);
  done_ += file_ ? done.size() : points.size();
  if (progress_) progress_->show(done_);
}

void Grid::lose(std::size_t point, const std::string& why) {
  lost_.push_back(fmt::format("{}: {}", name(point), why));
  progress_->say("failed: " + lost_.back());
}

std::string Grid::losses() const {
  constexpr std::size_t kMost = 3;  // in full; all of them have been said
  if (lost_.empty()) return {};
  std::string text = fmt::format("{} of {} points failed", lost_.size(), points());
  for (std::size_t i = 0; i < std::min(kMost, lost_.size()); ++i) {
    text += fmt::format("{} {}", i == 0 ? ":" : ";", lost_[i]);
  }
  if (lost_.size() > kMost) text += fmt::format("; and {} more", lost_.size() - kMost);
  return fmt::format("{}; {}", text, remedy());
}

std::string Grid::name(std::size_t point) const {
  std::string text;
  for (std::size_t i = 0; i < points_[point].key.size(); ++i) {
    const std::string value = text_of_cell(points_[point].key[i]);
    if (value.empty() || value == "null") continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", columns_[i], value);
  }
  return text;
}

void Grid::require_same_files() const {
  for (const auto& [file, hash] : hashes_) {
    if (hash_of(file) != hash) fail("{}: it has changed since the first row; begin anew", file);
  }
}

/// Rows are kept in pieces that take about a second: not more is lost when the process is ended.
void Grid::compute() {
  using std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kShort(500);
  const IgnoredPipes ignored;
  if (file_) open();  // others take seconds, and say nothing
  const Answer answer = answer_of(kind_);
  const std::vector<std::size_t> all = missing();
  std::size_t at_once = hardware_threads();
  for (std::span<const std::size_t> left = all; !left.empty();) {
    const auto points = left.first(std::min(at_once, left.size()));
    left = left.subspan(points.size());
    const auto start = steady_clock::now();
    std::vector<Cell> asked;
    for (const std::size_t point : points) asked.push_back(points_[point].asked);
    const std::vector<Outcome> outcomes = answer(asked, 0);
    for (const Outcome& outcome : outcomes) {
      if (file_ && !outcome.error.empty()) throw InvalidInput(outcome.error);
    }
    require_same_files();
    append(points, outcomes);
    if (steady_clock::now() - start < kShort) {
      at_once *= 2;
    } else if (steady_clock::now() - start > 2 * kShort && at_once > hardware_threads()) {
      at_once /= 2;
    }
  }
}

// ---------------------------------------------------------------- anywhere

std::vector<Outcome> values_of(const std::string& task) {
  const Json json = parse_json<Json>(task);
  const Json& theirs = json.at("definition");
  const std::vector<Cell> points(json.at("points").begin(), json.at("points").end());
  Json ours;
  const Outcome defined = outcome_of([&] {
    ours = program_with(own_definitions(json.at("names").get<std::vector<std::string>>()));
    ours["files"] = Json::object();
    for (const auto& [file, hash] : theirs.at("files").items()) ours["files"][file] = hash_of(file);
    return Json();
  });
  // A file that is gone is the matter of these points. Other points need not have it.
  if (!defined.error.empty()) return std::vector<Outcome>(points.size(), defined);
  if (ours != theirs) {
    fail(
        "another version of arlab, or other files, than where the points are handed out (they "
        "differ in: {})",
        differences(json_line(theirs), json_line(ours)));
  }
  return answer_of(json.at("kind"))(points, 1);
}

std::string located_path(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  if (error) fail("{}: {}", path.string(), error.message());
  return whole.lexically_normal().string();
}

std::string located_name(const std::string& name) {
  return is_file_name(name) ? located_path(name) : name;
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

}  // namespace arlab::lab

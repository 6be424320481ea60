// A study or a sweep in two halves, for processes that share the work. A Run, of which there is one, knows what is missing,
// writes tasks, and keeps what comes of them; values_of() does a task anywhere, with nothing but its text and the files that
// it names. Who sends tasks to whom is the Python package's matter (arlab/distributed.py): Dask's.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "experiments/lab/progress.h"
#include "experiments/lab/question.h"
#include "experiments/lab/result.h"

namespace arlab::lab {

/// What came of a point: a part of its row, or in one line why there is none.
struct Outcome {
  std::string values;
  std::string error;
};

class Run {
 public:
  Run() = default;
  virtual ~Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Missing points that may share a task, `most` of them at a time.
  struct Part {
    std::vector<std::size_t> points;
    std::size_t most = 1;
  };

  /// Before anything is computed: takes what is there already, and says how much that is.
  virtual void open() = 0;
  virtual std::size_t points() const = 0;
  virtual std::size_t rows() const = 0;  ///< points that are there
  virtual std::vector<Part> missing() const = 0;

  /// What values_of() needs to know of points of one part. File names in it begin at the root.
  virtual std::string task(std::span<const std::size_t> points) const = 0;

  /// Keeps what came of a task.
  virtual void append(std::span<const std::size_t> points, std::span<const Outcome> outcomes) = 0;

  /// Does without a point, and says why.
  void lose(std::size_t point, const std::string& why);

  /// One line about the points that were lost; empty where there are none.
  std::string losses() const;

  /// A point in words.
  virtual std::string name(std::size_t point) const = 0;

  /// Computes what is missing with all threads of this machine.
  virtual void compute() = 0;

  /// When no point was lost.
  virtual Result finish() = 0;

  /// When some were: leaves the others in order.
  virtual void finish_others() = 0;

 protected:
  Progress& progress() { return *progress_; }
  void start_progress() { progress_.emplace(points()); }

 private:
  /// What to do about points that were lost.
  virtual std::string remedy() const = 0;

  std::optional<Progress> progress_;
  std::vector<std::string> lost_;  // each with the reason
};

/// Does a task, on one thread, as others may run beside it. Throws InvalidInput when this process is not what the run wants: it has
/// another program, or its files have another content.
std::vector<Outcome> values_of(const std::string& task);

/// The same for the tasks of each kind.
std::vector<Outcome> study_values_of(const Json& task);
std::vector<Outcome> sweep_values_of(const Json& task);

/// A path from the root on: workers have working directories of their own.
std::string located_path(const std::filesystem::path& path);

/// The part of the definition of rows that says by which program they are computed.
std::string program_definition();

/// What the names stand for that is defined at run time, and what --setup has run, each with a hash: parts of the definition of
/// rows, and of keys under which results are kept.
Json own_definitions(const std::vector<std::string>& names);

/// Throws InvalidInput, which begins with `option`, where one of own_definitions() cannot be told from what it may have been before.
void require_told(const Json& own, std::string_view option);

/// The hash of a file that has not changed since this process has last hashed it, or quick_hash_of_file().
std::string known_hash_of_file(const std::string& path);

/// Throws InvalidInput when a worker defines its rows otherwise than the run.
void require_same_definition(const Json& run, const Json& worker);

/// What `compute` gives, or why it gives nothing.
Outcome outcome_of(const std::function<std::string()>& compute);

/// A question whose work is a run's, which is made of a request.
template <class RunOf, class Request>
Question shared_question(std::string name, std::string help, std::string more_help = {}) {
  Question shared{std::move(name), std::move(help), {}, std::move(more_help)};
  shared.ask = [] {
    const auto request = std::make_shared<Request>();
    const auto answer = [request](Format) {
      RunOf run(*request);
      run.compute();
      return run.finish();
    };
    const auto run = [request]() -> std::unique_ptr<Run> {
      return std::make_unique<RunOf>(*request);
    };
    return Asked{fields(*request), answer, run};
  };
  return shared;
}

}  // namespace arlab::lab

// A grid: a question asked for many points, a row of a table each. One process has a Grid: it knows what is missing, writes tasks and
// keeps what comes of them. values_of() does a task anywhere, with nothing but its text and the files that it names.
// arlab/distributed.py sends tasks to other processes, by Dask.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/lab/grids/results_file.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/question.h"
#include "experiments/lab/result.h"

namespace arlab::lab {

/// The outcome of a point: the cells of its row behind the key, as a JSON array, or in one line why there are none.
struct Outcome {
  std::string values;
  std::string error;
};
Outcome outcome_of(const std::function<Json()>& compute);

/// Computes points, so many at the same time (0: as many as there are threads). It remembers what points share.
using Answer = std::function<std::vector<Outcome>(std::span<const Cell> asked, unsigned threads)>;
Answer study_answer();
Answer sweep_answer();

class Grid {
 public:
  struct Point {
    std::vector<Cell> key;  ///< the first cells of its row
    Cell asked;             ///< input of the other cells; names of files begin at the root
  };

  virtual ~Grid() = default;
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  /// Before anything is computed: takes what is there already, and says how much that is.
  void open();
  std::size_t points() const { return points_.size(); }
  std::size_t rows() const { return done_; }  ///< points that are there
  std::vector<std::size_t> missing() const;

  std::string task(std::span<const std::size_t> points) const;
  /// Keeps what came of a task.
  void append(std::span<const std::size_t> points, std::span<const Outcome> outcomes);
  /// Does without a point, and says why.
  void lose(std::size_t point, const std::string& why);
  /// One line about the points that were lost; empty where there are none.
  std::string losses() const;

  /// Computes what is missing with all threads of this machine.
  void compute();

  virtual Result finish() = 0;       ///< when no point was lost
  virtual void finish_others() = 0;  ///< when some were: leaves the others in order

 protected:
  /// `kind`: whose answer it is. `columns`: of the whole rows.
  Grid(std::string kind, std::vector<std::string> columns)
      : kind_(std::move(kind)), columns_(std::move(columns)) {}

  /// `names`: of machines, algorithms and codecs on which rows depend. `files`: those that have other names.
  void take(std::vector<Point> points, std::vector<std::string> names,
            std::vector<std::string> files = {});

  /// Keeps rows in results.csv of a folder, and goes on with those that are there (`resume`). A point that is refused ends
  /// compute() then; without such a file, it is left out. `derived`: files that are made of all rows, and are gone until then.
  void keep_in(const std::filesystem::path& folder, std::string title, std::string provenance,
               bool resume, const std::vector<std::string>& derived);
  ResultsFile& file() { return *file_; }

  /// In the order of the points, where there is no file: empty for those that are refused, and why.
  const std::vector<std::vector<Cell>>& kept() const { return rows_; }
  const std::vector<std::string>& refused() const { return refused_; }

 private:
  virtual std::string remedy() const = 0;  ///< advice about points that were lost
  Json definition() const;
  void require_same_files() const;
  std::string name(std::size_t point) const;

  std::string kind_;
  std::vector<std::string> columns_;
  std::vector<Point> points_;
  std::vector<std::string> names_;
  Cell own_;                                   // definitions, as they were when the grid was made
  std::map<std::string, std::string> hashes_;  // likewise of files
  std::optional<ResultsFile> file_;
  bool resume_ = false;
  std::vector<std::filesystem::path> derived_;
  std::vector<std::vector<Cell>> rows_;
  std::vector<std::string> refused_;
  std::size_t done_ = 0;
  std::optional<Progress> progress_;
  std::vector<std::string> lost_;  // each with the reason
};

/// Does a task, on one thread, as others may run beside it. Throws InvalidInput when this process is not what the grid wants: it has
/// another program, or its files have another content.
std::vector<Outcome> values_of(const std::string& task);

/// A path from the root on: workers have working directories of their own.
std::string located_path(const std::filesystem::path& path);
/// The same of a machine or an algorithm that is named by its file; else the name as it is.
std::string located_name(const std::string& name);

/// Returns the definitions of names that are defined at run time, and those that --setup has made, each with a hash: parts of
/// the definition of rows, and of keys under which results are kept.
Json own_definitions(const std::vector<std::string>& names);

/// Throws InvalidInput, which begins with `option`, where one of own_definitions() cannot be told from what it may have been before.
void require_told(const Json& own, std::string_view option);

/// A question whose answer is a grid's, which is made of a request.
template <class GridOf, class Request>
Question grid_question(std::string name, std::string help, std::string more_help = {}) {
  const auto ask = [] {
    const auto request = std::make_shared<Request>();
    const auto grid = [request] { return std::make_unique<GridOf>(*request); };
    const auto answer = [grid](Format) {
      const auto made = grid();
      made->compute();
      return made->finish();
    };
    return BoundRequest{fields(*request), answer, grid};
  };
  return {std::move(name), std::move(help), ask, std::move(more_help)};
}

}  // namespace arlab::lab

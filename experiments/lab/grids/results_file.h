// results.csv of a study: a ledger. Comment lines say what the rows are of, a line names the columns, and every row ends with a
// check of itself and of the study. So an interrupted study goes on only with its own rows, whatever happened to the file in
// between.
//
//   # arlab.study/1: TITLE
//   # command: arlab study ...
//   # provenance: ...
//   # definition: {...}            all that decides the rows: the program, the data, the study
//   # check: x0123abcd             of the lines above
//   input,tensor,...,check
//   gaussian,,...,x4567cdef        check of the definition and of the row
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernels/runtime/bootstrap.h"

namespace arlab::lab {

/// The head above the rows.
struct ResultsHeader {
  std::string title;
  std::string command;
  std::string provenance;
  std::string definition;  // JSON, on one line
};

/// The names of what two definitions say differently.
std::string differences(const std::string& a, const std::string& b);

/// No other study writes to its folder while it exists; the system frees the folder when the process ends, however it ends.
class ResultsFile {
 public:
  using Cells = std::vector<std::string>;

  /// `points` are the keys of all rows, the first cells of each, in the order of the finished file. Makes the folder if need be.
  /// Throws InvalidInput, with its name, when it is taken.
  ResultsFile(const std::filesystem::path& folder, ResultsHeader header, Cells columns,
              std::vector<Cells> points);

  /// Begins without rows, in the place of what is there; or (`resume`) takes over the rows that are there, in whatever order
  /// they are, but for a last line without an end. Throws InvalidInput with the line for all that this study has not written so.
  void open(bool resume);

  std::size_t rows() const { return count_; }
  bool has(std::size_t point) const { return !rows_[point].empty(); }

  /// Writes rows, lines of CSV without an end, and waits until the disk has them.
  void append(std::span<const std::size_t> points, std::span<const std::string> rows);

  /// The rows that are there in the order of the points, in the file, too: with all rows, as an
  /// uninterrupted study leaves it.
  std::vector<Cells> finish();

 private:
  std::string header_text() const;
  std::string check_of_row(std::string_view row) const;
  std::string text_of_row(std::size_t point) const;
  std::size_t read();
  void read_header(const std::string& comments, std::size_t lines);
  void read_row(std::string_view line, std::size_t number);

  std::filesystem::path path_;
  ResultsHeader header_;
  Cells columns_;
  std::vector<Cells> points_;
  std::map<Cells, std::size_t> numbers_;      // points, by key
  std::vector<std::string> rows_;             // by point; as in the file, without the check
  std::map<std::size_t, std::size_t> lines_;  // rows that were there, by point
  std::size_t count_ = 0;
  kernels::FileDescriptor lock_;  // holds the folder
  kernels::FileDescriptor file_;
  std::size_t bytes_ = 0;  // length of whole rows and their head
};

}  // namespace arlab::lab

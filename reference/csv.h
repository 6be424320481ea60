// Tables as text: comma-separated as in RFC 4180 but for line breaks in cells, names in the first
// line, lines that begin with # say where the numbers come from.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace arlab {

struct CsvTable {
  std::vector<std::vector<std::string>> rows;  ///< the first has the names; all are as long
  std::vector<std::size_t> lines;              ///< by row, its line in the file, from 1 on
};

/// Throws InvalidInput with the row when it has more or fewer cells than the first line, or there
/// is nothing below that.
CsvTable read_csv(const std::filesystem::path& path);

/// Text as a cell that spreadsheets do not run: an apostrophe before what begins with = + - or @ and
/// is no number. cut_csv_line takes it away again.
std::string guarded_cell(std::string text);

/// The cells of a line; those in quotes may hold commas, and quotes as "". Throws InvalidInput when
/// a quote is not closed, or text stands outside of it.
std::vector<std::string> cut_csv_line(std::string_view line);

/// The number that is the whole text; NaN when it is none.
double number_of(const std::string& text);

}  // namespace arlab

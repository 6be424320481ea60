#include "reference/csv.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>
#include <system_error>

#include "reference/error.h"
#include "reference/tensors/file.h"

namespace arlab {
namespace {

/// Whether spreadsheets run it, or would without apostrophes before it.
bool is_formula(std::string_view text) {
  const std::size_t at = text.find_first_not_of('\'');
  return at != std::string_view::npos && at + 1 < text.size() &&
         std::string_view("=+-@\t\r").find(text[at]) != std::string_view::npos;
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

}  // namespace

CsvTable read_csv(const std::filesystem::path& path) {
  std::istringstream text(read_text_file(path, "table"));
  CsvTable table;
  std::size_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    try {
      table.rows.push_back(cut_csv_line(line));
    } catch (const InvalidInput& error) {
      fail("{}: line {}: {}", path.string(), number, error.what());
    }
    const std::vector<std::string>& row = table.rows.back();
    table.lines.push_back(number);
    if (row.size() != table.rows.front().size()) {
      fail("{}: row '{}' has {} cells, but the first line has {}", path.string(),
           printable(row.front()), row.size(), table.rows.front().size());
    }
  }
  if (table.rows.size() < 2) fail("{}: it has no rows", path.string());
  return table;
}

std::vector<std::string> cut_csv_line(std::string_view line) {
  std::vector<std::string> cells;
  std::size_t at = 0;
  while (true) {
    std::string& cell = cells.emplace_back();
    if (at < line.size() && line[at] == '"') {
      for (++at;; ++at) {
        if (at == line.size()) fail("a quote is not closed");
        if (line[at] != '"') {
          cell += line[at];
        } else if (line.substr(at + 1).starts_with('"')) {
          cell += line[++at];
        } else {
          break;
        }
      }
      ++at;
      if (at < line.size() && line[at] != ',') fail("text follows a closed quote");
    } else {
      const std::size_t end = std::min(line.find(',', at), line.size());
      cell = line.substr(at, end - at);
      at = end;
    }
    if (cell.starts_with('\'') && is_formula(cell)) cell.erase(0, 1);
    if (at == line.size()) return cells;
    ++at;  // the comma
  }
}

std::string guarded_cell(std::string text) {
  if (is_formula(text) && !is_number(text)) text.insert(0, 1, '\'');
  return text;
}

double number_of(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? value : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace arlab

#include "sim/calibration/csv.h"

#include <charconv>
#include <limits>
#include <sstream>
#include <system_error>

#include "sim/topology/toml_section.h"

namespace arlab {

CsvTable read_csv(const std::filesystem::path& path) {
  std::istringstream text(read_text_file(path, "table"));
  CsvTable table;
  std::size_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    std::vector<std::string>& row = table.rows.emplace_back(1);
    table.lines.push_back(number);
    for (const char c : line) {
      if (c == ',') {
        row.emplace_back();
      } else {
        row.back() += c;
      }
    }
    if (row.size() != table.rows.front().size()) {
      fail("{}: row '{}' has {} cells, but the first line has {}", path.string(),
           printable(row.front()), row.size(), table.rows.front().size());
    }
  }
  if (table.rows.size() < 2) fail("{}: it has no rows", path.string());
  return table;
}

double number_of(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? value : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace arlab

#include "experiments/cli/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace arlab::cli {

using Json = nlohmann::ordered_json;

Json count_json(WideCount count) {
  if (count <= UINT64_MAX) return static_cast<std::uint64_t>(count);
  return static_cast<double>(count);
}

std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string cell_text(const Json& cell) {
  if (cell.is_null()) return "-";
  if (cell.is_boolean()) return cell.get<bool>() ? "yes" : "no";
  if (cell.is_string()) return cell.get<std::string>();
  if (cell.is_number_float()) return fmt::format("{:.6g}", cell.get<double>());
  return json_line(cell);
}

namespace {

/// Some of the columns.
Table only(const std::vector<std::string>& kept, const Table& table) {
  Table result{kept, {}};
  for (const auto& row : table.rows) {
    std::vector<nlohmann::ordered_json>& cells = result.rows.emplace_back();
    for (const std::string& column : kept) {
      const auto at = std::find(table.columns.begin(), table.columns.end(), column);
      cells.push_back(row[static_cast<std::size_t>(at - table.columns.begin())]);
    }
  }
  return result;
}

constexpr std::size_t kTerminal = 120;  // characters in a line

/// The text in lines of at most `width` characters, broken at spaces where there are any.
std::vector<std::string> lines_of(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    const std::size_t space = text.rfind(' ', width);
    const bool broken = space != std::string_view::npos && space > 0;
    lines.emplace_back(text.substr(0, broken ? space : width));
    text.remove_prefix(broken ? space + 1 : width);
  }
  lines.emplace_back(text);
  return lines;
}

}  // namespace

Table wrapped(const Table& table) {
  const std::size_t columns = table.columns.size();
  std::vector<std::size_t> width(columns);
  std::vector<std::size_t> least(columns);
  std::size_t total = 2 * (columns - 1);
  for (std::size_t c = 0; c < columns; ++c) {
    width[c] = table.columns[c].size();
    bool text = c > 0;
    for (const auto& row : table.rows) {
      width[c] = std::max(width[c], cell_text(row[c]).size());
      text = text && !row[c].is_number();
    }
    least[c] = text ? table.columns[c].size() : width[c];
    total += width[c];
  }
  while (total > kTerminal) {
    std::size_t widest = columns;
    for (std::size_t c = 0; c < columns; ++c) {
      if (width[c] > least[c] && (widest == columns || width[c] > width[widest])) widest = c;
    }
    if (widest == columns) break;
    --width[widest];
    --total;
  }
  Table result{table.columns, {}};
  for (const auto& row : table.rows) {
    const std::size_t first = result.rows.size();
    for (std::size_t c = 0; c < columns; ++c) {
      const std::vector<std::string> lines = lines_of(cell_text(row[c]), width[c]);
      while (result.rows.size() < first + lines.size()) {
        result.rows.emplace_back(columns, nlohmann::ordered_json(""));
      }
      for (std::size_t l = 0; l < lines.size(); ++l) {
        result.rows[first + l][c] = lines.size() == 1 ? row[c] : nlohmann::ordered_json(lines[l]);
      }
    }
  }
  return result;
}

std::string render_text(const Table& table) {
  const std::size_t columns = table.columns.size();
  std::vector<std::size_t> width(columns, 0);
  std::vector<bool> numeric(columns, true);
  for (std::size_t c = 0; c < columns; ++c) {
    width[c] = table.columns[c].size();
    for (const auto& row : table.rows) {
      width[c] = std::max(width[c], cell_text(row[c]).size());
      numeric[c] = numeric[c] && (row[c].is_number() || row[c].is_null() || row[c] == "" ||
                                  row[c] == "inf" || row[c] == "-inf");
    }
  }
  std::string text;
  const auto line = [&](const auto& cell_of) {
    std::string out;
    for (std::size_t c = 0; c < columns; ++c) {
      if (c > 0) out += "  ";
      out += numeric[c] ? fmt::format("{:>{}}", cell_of(c), width[c])
                        : fmt::format("{:<{}}", cell_of(c), width[c]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + '\n';
  };
  line([&](std::size_t c) { return table.columns[c]; });
  line([&](std::size_t c) { return std::string(width[c], '-'); });
  for (const auto& row : table.rows) {
    line([&](std::size_t c) { return cell_text(row[c]); });
  }
  return text;
}

std::string csv_line(const std::vector<Json>& cells) {
  std::string line;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    if (c > 0) line += ',';
    if (cells[c].is_null()) continue;
    std::string cell = cells[c].is_string() ? cells[c].get<std::string>() : json_line(cells[c]);
    // A line that begins with # is a comment to readers of our files.
    if (cell.find_first_of(",\"\n\r") != std::string::npos || cell.starts_with('#')) {
      std::string quoted = "\"";
      for (const char ch : cell) quoted += ch == '"' ? "\"\"" : std::string(1, ch);
      cell = quoted + '"';
    }
    line += cell;
  }
  return line + '\n';
}

std::string render_csv(const Table& table) {
  std::string text = csv_line({table.columns.begin(), table.columns.end()});
  for (const auto& row : table.rows) text += csv_line(row);
  return text;
}

namespace {

std::string render_fields(const std::vector<Field>& fields) {
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  for (const Field& field : fields) {
    name_width = std::max(name_width, field.name.size());
    if (!field.note.empty()) value_width = std::max(value_width, cell_text(field.value).size());
  }
  std::string text;
  for (const Field& field : fields) {
    std::string line = fmt::format("{:<{}}  {:<{}}  {}", field.name, name_width,
                                   cell_text(field.value), value_width, field.note);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

Json to_json(const Report& report) {
  Json json = {{"schema", report.schema}};
  for (const Field& field : report.fields) json[field.name] = field.value;
  if (!report.rows_name.empty()) {
    Json rows = Json::array();
    for (const auto& row : report.rows.rows) {
      Json object = Json::object();
      for (std::size_t c = 0; c < row.size(); ++c) object[report.rows.columns[c]] = row[c];
      rows.push_back(std::move(object));
    }
    json[report.rows_name] = std::move(rows);
  }
  return json;
}

}  // namespace

std::string render(const Report& report, Format format) {
  const bool has_rows = !report.rows_name.empty();
  if (format == Format::json)
    return to_json(report).dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  if (format == Format::csv) {
    if (has_rows) return render_csv(report.rows);
    Table table;
    table.rows.emplace_back();
    for (const Field& field : report.fields) {
      table.columns.push_back(field.name);
      table.rows.front().push_back(field.value);
    }
    return render_csv(table);
  }
  std::string text = render_fields(report.fields);
  if (has_rows) {
    if (!text.empty()) text += '\n';
    text +=
        render_text(wrapped(report.shown.empty() ? report.rows : only(report.shown, report.rows)));
  }
  return text;
}

}  // namespace arlab::cli

#include "experiments/lab/result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "reference/csv.h"
#include "reference/definitions.h"

namespace arlab::lab {

Cell::Cell(const Json& json) : json_(std::make_shared<const Json>(json)) {}
Cell::Cell(std::nullptr_t) : Cell(Json(nullptr)) {}
Cell::Cell(bool flag) : Cell(Json(flag)) {}
Cell::Cell(double number) : Cell(Json(number)) {}
Cell::Cell(std::string text) : Cell(Json(std::move(text))) {}
Cell::Cell(OfCount, std::uint64_t count) : Cell(Json(count)) {}
Cell::Cell(OfInteger, std::int64_t count) : Cell(Json(count)) {}
Cell::Cell(WideCount count)
    : Cell(count <= UINT64_MAX ? Json(static_cast<std::uint64_t>(count))
                               : Json(static_cast<double>(count))) {}
Cell::Cell(const std::vector<std::string>& texts) : Cell(Json(texts)) {}
Cell::Cell(const FieldValue& value)
    : Cell(std::visit(
          [](const auto& given) -> Json {
            if constexpr (std::is_same_v<std::decay_t<decltype(given)>, std::monostate>) {
              return nullptr;
            } else {
              return given;
            }
          },
          value)) {}

std::string_view name_of(Format format) {
  constexpr std::string_view kNames[] = {"table", "json", "csv", "nccl", "nccl-json", "toml"};
  return kNames[static_cast<std::size_t>(format)];
}

void add_findings(Result& result, std::string name, const std::vector<std::string>& findings,
                  std::string_view what) {
  if (!name.empty()) result.details.push_back({std::move(name), findings});
  if (findings.empty()) return;
  result.sections.push_back({fmt::format("{}", fmt::join(findings, "\n"))});
  result.verdict = fmt::format("{}{}", what, findings.front());
}

double quantile(const std::vector<double>& sorted, double share) {
  const double place = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(1.0, place)) - 1];
}

std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

namespace {

/// Six digits; from a million on with an exponent of three, six, nine ...: 70.5524e9.
std::string number_text(double number) {
  constexpr double kMany = 999999.5;  // which six digits round to a million
  if (!std::isfinite(number) || std::abs(number) < kMany) return fmt::format("{:.6g}", number);
  const int thousands = std::max(2, static_cast<int>(std::floor(std::log10(std::abs(number)) / 3)));
  return fmt::format("{:.6g}e{}", number / std::pow(1000.0, thousands), 3 * thousands);
}

/// Bytes with their unit, where that says it exactly: 64 MiB, 64 MB, 1.5 KiB. Else the digits.
std::string size_text(std::uint64_t bytes) {
  constexpr double kUnits[] = {1024, 1000};
  // Whole numbers before hundredths.
  for (const std::uint64_t parts : {1u, 100u}) {
    for (const double base : kUnits) {
      for (int power = 1; power <= 3; ++power) {
        const auto unit = static_cast<std::uint64_t>(std::pow(base, power));
        if (bytes < unit || bytes / unit >= 1000 || bytes % unit * parts % unit != 0) continue;
        return fmt::format("{:g} {}{}", static_cast<double>(bytes) / static_cast<double>(unit),
                           "KMG"[power - 1], base == 1024 ? "iB" : "B");
      }
    }
  }
  return fmt::format("{}", bytes);
}

/// Bytes with their unit.
std::string sized_text(const std::string& name, const Json& cell) {
  const bool is_size = name == "bytes" || name.ends_with("_bytes");
  if (!is_size || !cell.is_number_unsigned()) return cell_text(cell);
  return size_text(cell.get<std::uint64_t>());
}

}  // namespace

std::string cell_text(const Json& cell) {
  if (cell.is_null()) return "-";
  if (cell.is_boolean()) return cell.get<bool>() ? "yes" : "no";
  if (cell.is_string()) return cell.get<std::string>();
  if (cell.is_number_float()) return number_text(cell.get<double>());
  return json_line(cell);
}

namespace {

/// Some of the columns.
Table only(const std::vector<std::string>& kept, const Table& table) {
  Table result{kept, {}};
  for (const auto& row : table.rows) {
    std::vector<Cell>& cells = result.rows.emplace_back();
    for (const std::string& column : kept) {
      const auto at = std::find(table.columns.begin(), table.columns.end(), column);
      const auto index = static_cast<std::size_t>(at - table.columns.begin());
      cells.push_back(index < row.size() ? row[index] : Cell());
    }
  }
  return result;
}

/// The text in lines of at most `width` characters, broken at spaces; a longer word has a line of
/// its own.
std::vector<std::string> lines_of(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    std::size_t space = text.rfind(' ', width);
    if (space == 0 || space == std::string_view::npos) space = text.find(' ', 1);
    if (space == std::string_view::npos) break;
    lines.emplace_back(text.substr(0, space));
    text.remove_prefix(space + 1);
  }
  lines.emplace_back(text);
  return lines;
}

constexpr std::size_t kNarrow = 20;  // sentences in narrower columns are hard to read

/// A column of a table that is to fit.
struct Column {
  std::size_t width = 0;
  std::size_t least = 0;  ///< narrower only for sentences, and not below their longest word
  bool numeric = true;
};

Column column_of(const Table& table, std::size_t c) {
  Column column;
  column.width = table.columns[c].size();
  std::size_t longest_word = column.width;
  for (const auto& row : table.rows) {
    const std::string text = sized_text(table.columns[c], row[c]);
    column.width = std::max(column.width, text.size());
    const Json& cell = row[c];
    column.numeric = column.numeric && (cell.is_number() || cell.is_null() || cell == "" ||
                                        cell == "inf" || cell == "-inf");
    for (const std::string& word : lines_of(text, 1)) {
      longest_word = std::max(longest_word, word.size());
    }
  }
  // The first column names the row.
  column.least = c == 0 ? column.width : std::min(column.width, std::max(longest_word, kNarrow));
  return column;
}

std::size_t total_width(const std::vector<Column>& columns) {
  std::size_t total = columns.empty() ? 0 : 2 * (columns.size() - 1);
  for (const Column& column : columns) total += column.width;
  return total;
}

/// Columns as narrow as the page needs them; those that do not fit are left out.
std::vector<Column> fitted(const Table& table, const Page& page) {
  std::vector<Column> columns;
  for (std::size_t c = 0; c < table.columns.size(); ++c) columns.push_back(column_of(table, c));
  const auto least_total = [&] {
    std::vector<Column> narrow = columns;
    for (Column& column : narrow) column.width = column.least;
    return total_width(narrow);
  };
  while (!page.all && columns.size() > 1 && least_total() > page.width) columns.pop_back();
  while (total_width(columns) > page.width) {
    Column* widest = nullptr;
    for (Column& column : columns) {
      if (column.width > column.least && (widest == nullptr || column.width > widest->width)) {
        widest = &column;
      }
    }
    if (widest == nullptr) break;
    --widest->width;
  }
  return columns;
}

}  // namespace

std::string render_text(const Table& table, const Page& page, std::vector<std::string>* left_out) {
  const std::vector<Column> columns = fitted(table, page);
  if (left_out != nullptr) {
    left_out->insert(left_out->end(), table.columns.begin() + std::ssize(columns),
                     table.columns.end());
  }
  std::string text;
  const auto line = [&](const auto& cell_of) {
    std::string out;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (c > 0) out += "  ";
      out += columns[c].numeric ? fmt::format("{:>{}}", cell_of(c), columns[c].width)
                                : fmt::format("{:<{}}", cell_of(c), columns[c].width);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + '\n';
  };
  line([&](std::size_t c) { return table.columns[c]; });
  line([&](std::size_t c) { return std::string(columns[c].width, '-'); });
  for (const auto& row : table.rows) {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 1;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      cells.push_back(lines_of(sized_text(table.columns[c], row[c]), columns[c].width));
      height = std::max(height, cells.back().size());
    }
    for (std::size_t l = 0; l < height; ++l) {
      line([&](std::size_t c) { return l < cells[c].size() ? cells[c][l] : std::string(); });
    }
  }
  return text;
}

std::string csv_line(const std::vector<Cell>& cells) {
  std::string line;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    if (c > 0) line += ',';
    const Json& value = cells[c];
    if (value.is_null()) continue;
    std::string cell =
        value.is_string() ? guarded_cell(value.get<std::string>()) : json_line(value);
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

Table table_of(const std::vector<std::vector<Figure>>& rows) {
  Table table;
  for (const auto& row : rows) {
    for (const Figure& field : row) {
      const auto& known = table.columns;
      if (std::find(known.begin(), known.end(), field.name) == known.end()) {
        table.columns.push_back(field.name);
      }
    }
  }
  for (const auto& row : rows) {
    std::vector<Cell>& cells = table.rows.emplace_back();
    for (const std::string& column : table.columns) {
      const auto found = std::find_if(row.begin(), row.end(),
                                      [&](const Figure& field) { return field.name == column; });
      cells.push_back(found == row.end() ? Cell() : found->value);
    }
  }
  return table;
}

namespace {

/// A figure's value; of bytes both the digits and the size with its unit.
std::string value_text(const Figure& field) {
  std::string text = cell_text(field.value);
  const std::string size = sized_text(field.name, field.value);
  return size == text ? text : fmt::format("{} ({})", text, size);
}

/// Returns the columns of a page right of so many.
std::size_t room_right_of(std::size_t columns, const Page& page) {
  if (page.width == std::string::npos) return page.width;
  return std::max(page.width, columns + kNarrow) - columns;
}

/// Values and notes that do not fit go on in the lines below. A note stands right of its value, but below one that would push
/// the others away.
std::string render_fields(const std::vector<Figure>& fields, const Page& page) {
  constexpr std::size_t kWide = 40;
  std::size_t name_width = 0;
  for (const Figure& field : fields) name_width = std::max(name_width, field.name.size());
  const std::size_t values = name_width + 2;
  const std::size_t widest = std::min(kWide, room_right_of(values, page) / 2);
  std::size_t value_width = 0;
  for (const Figure& field : fields) {
    const std::size_t width = value_text(field).size();
    if (!field.note.empty() && width <= widest) value_width = std::max(value_width, width);
  }
  const std::size_t notes = values + value_width + 2;
  std::string text;
  for (const Figure& field : fields) {
    std::string start = fmt::format("{:<{}}  ", field.name, name_width);
    const auto add_lines = [&](std::string_view words, std::size_t column) {
      for (const std::string& each : lines_of(words, room_right_of(column, page))) {
        std::string line = start + each;
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
        start = std::string(column, ' ');
      }
    };
    if (field.value.json().is_array()) {  // one a line
      for (const Json& each : field.value.json()) {
        add_lines(cell_text(each), values);
      }
      continue;
    }
    const std::string value = value_text(field);
    if (value.size() <= value_width) {
      start += fmt::format("{:<{}}  ", value, value_width);
      add_lines(field.note, notes);
    } else if (field.note.empty() || page.width != std::string::npos) {
      add_lines(value, values);
      start = std::string(notes, ' ');
      if (!field.note.empty()) add_lines(field.note, notes);
    } else {
      text += fmt::format("{}{}  {}\n", start, value, field.note);
    }
  }
  return text;
}

/// Describes the columns that a page does not show, by name where that is short.
std::string left_out_text(const std::vector<std::string>& names, const Page& page) {
  constexpr std::size_t kMostNames = 6;
  if (names.empty()) return {};
  const std::string what = names.size() > kMostNames ? fmt::format("{} figures", names.size())
                                                     : fmt::format("{}", fmt::join(names, ", "));
  std::string text;
  for (const std::string& line : lines_of(fmt::format("(--all adds {})", what), page.width)) {
    text += line + '\n';
  }
  return '\n' + text;
}

}  // namespace

namespace {

/// Whether a column is one of times.
bool is_of_times(std::string_view name) {
  return name.ends_with("_us") || name.find("latency_us") != name.npos;
}

/// The texts of a table's columns of codecs, row by row.
std::vector<std::vector<std::string>> codecs_in(const Table& table) {
  std::vector<std::vector<std::string>> names(table.rows.size());
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c] != "codec" && table.columns[c] != "inner_codec") continue;
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const Json& cell = table.rows[i][c];
      if (cell.is_string()) names[i].push_back(cell.get<std::string>());
    }
  }
  return names;
}

constexpr const char* kIsGuess = "latency_is_guess";

}  // namespace

void mark_guesses(Table& table) {
  if (std::ranges::none_of(table.columns, is_of_times)) return;
  std::vector<bool> guessed;
  for (const auto& names : codecs_in(table)) guessed.push_back(!guessed_codecs(names).empty());
  if (std::ranges::find(guessed, true) == guessed.end()) return;
  table.columns.emplace_back(kIsGuess);
  for (std::size_t i = 0; i < table.rows.size(); ++i) table.rows[i].emplace_back(bool{guessed[i]});
}

void mark_guesses(Result& result) {
  std::vector<std::string> names;
  for (const auto& row : codecs_in(result.rows)) names.insert(names.end(), row.begin(), row.end());
  bool has_time = std::ranges::any_of(result.rows.columns, is_of_times);
  for (const Figure& figure : result.figures) {
    const Json& value = figure.value;
    if (figure.name.ends_with("codec") && value.is_string()) names.push_back(value);
    has_time = has_time || is_of_times(figure.name);
  }
  const std::vector<std::string> guessed = guessed_codecs(names);
  if (guessed.empty() || !has_time) return;
  mark_guesses(result.rows);
  std::erase_if(result.figures, [](const Figure& each) { return each.name == "guessed_codecs"; });
  result.figures.push_back(
      {"guessed_codecs", fmt::format("{}", fmt::join(guessed, ", ")),
       "not all of their operations could be counted, so that times are a guess: name encode_ops "
       "and decode_ops"});
  if (!result.shown_figures.empty()) result.shown_figures.emplace_back("guessed_codecs");
  if (!result.shown.empty()) result.shown.emplace_back(kIsGuess);
}

Json to_json(const Table& table) {
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json object = Json::object();
    for (std::size_t c = 0; c < row.size(); ++c) object[table.columns[c]] = row[c].json();
    rows.push_back(std::move(object));
  }
  return rows;
}

Json to_json(const Result& result) {
  Json json = {{"schema", result.schema}};
  for (const Figure& figure : result.figures) json[figure.name] = figure.value.json();
  for (const Figure& figure : result.details) json[figure.name] = figure.value.json();
  if (!result.rows_name.empty()) json[result.rows_name] = to_json(result.rows);
  for (const Figure& figure : result.appendix) json[figure.name] = figure.value.json();
  return json;
}

std::string render(const Result& result, Format format, const Page& page) {
  const bool has_rows =
      !result.rows_name.empty() && !(result.figures_in_csv && format == Format::csv);
  if (format == Format::json)
    return to_json(result).dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
  if (format == Format::csv) {
    if (has_rows) return render_csv(result.rows);
    Table table;
    table.rows.emplace_back();
    for (const Figure& field : result.figures) {
      table.columns.push_back(field.name);
      table.rows.front().push_back(field.words.empty() ? field.value : Cell(field.words));
    }
    return render_csv(table);
  }
  if (format > Format::csv || result.is_text) return result.text;
  std::vector<std::string> left_out;
  const auto is_shown = [&](const std::vector<std::string>& shown, const std::string& name) {
    const bool is =
        page.all || shown.empty() || std::find(shown.begin(), shown.end(), name) != shown.end();
    if (!is) left_out.push_back(name);
    return is;
  };
  std::vector<Figure> fields;
  for (const Figure& field : result.figures) {
    if (!is_shown(result.shown_figures, field.name)) continue;
    fields.push_back(field);
    if (!field.words.empty()) fields.back().value = field.words;
  }
  std::string text = render_fields(fields, page);
  if (has_rows) {
    std::vector<std::string> columns;
    for (const std::string& column : result.rows.columns) {
      if (is_shown(result.shown, column)) columns.push_back(column);
    }
    if (!text.empty()) text += '\n';
    text += render_text(only(columns, result.rows), page, &left_out);
  }
  text += left_out_text(left_out, page);
  for (const Below& section : result.sections) {
    text += fmt::format("\n{}\n", section.heading);
    if (section.rows.columns.empty()) continue;
    const Result below{
        .schema = {}, .rows_name = "rows", .rows = section.rows, .shown = section.shown};
    text += '\n' + render(below, format, section.is_whole ? Page{} : page);
  }
  return text;
}

}  // namespace arlab::lab

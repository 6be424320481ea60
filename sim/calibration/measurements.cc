#include "sim/calibration/measurements.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "reference/csv.h"
#include "reference/words.h"
#include "sim/library/library_plan.h"
#include "sim/topology/toml_section.h"
#include "sim/topology/topology.h"

namespace arlab {

std::string_view name_of(TableQuantity quantity) {
  return quantity == TableQuantity::latency_us       ? "latency_us"
         : quantity == TableQuantity::algbw_gb_per_s ? "algbw_gb_per_s"
                                                     : "copies_gb_per_s";
}

namespace {

/// A row's or a column's statement about its cells; an empty field is left to the other.
struct Meaning {
  std::string topology;
  std::string algorithm;
  std::string codec;
  std::optional<bool> library;

  void override_with(const Meaning& other) {
    if (!other.topology.empty()) topology = other.topology;
    if (!other.algorithm.empty()) algorithm = other.algorithm;
    if (!other.codec.empty()) codec = other.codec;
    if (other.library) library = other.library;
  }
};

Meaning read_meaning(Section& section) {
  Meaning meaning;
  if (section.has("topology")) meaning.topology = section.text("topology");
  if (section.has("algorithm")) meaning.algorithm = section.text("algorithm");
  if (section.has("codec")) meaning.codec = section.text("codec");
  meaning.library = section.optional_flag("library");
  return meaning;
}

std::map<std::string, Meaning> read_meanings(Section& table, const std::string& key) {
  std::map<std::string, Meaning> meanings;
  Section section = table.section(key, "a table of what its cells mean");
  for (const std::string& name : section.keys()) {
    Section entry = section.section(name, "a table: topology, algorithm, codec, library");
    meanings[name] = read_meaning(entry);
    entry.reject_other_keys();
  }
  return meanings;
}

double number(const std::string& text, const std::filesystem::path& path, const std::string& row) {
  const double value = number_of(text);
  if (!(value > 0 && value < 1e15)) {
    fail("{}: row '{}': '{}' is not a number above 0", path.string(), printable(row),
         printable(text));
  }
  return value;
}

/// 64M, 4096.
std::uint64_t size_in_bytes(const std::string& text, const std::string& where) {
  const std::uint64_t value = parse_size(text).value_or(0);
  if (value == 0 || value > kMaxElements) {
    fail("{}: '{}' is not a size; allowed are numbers like 4096, 64K, 1M, 1G", where,
         printable(text));
  }
  return value;
}

/// The rows of a file with a cell per row that a table means: its `where` says what stands in some of
/// their columns.
class ListedRows {
 public:
  ListedRows(Section& section, const MeasurementTable& table, std::filesystem::path path)
      : table_(table.name), path_(std::move(path)), csv_(read_csv(path_).rows) {
    Section where = section.section("where", "a table: column = \"text\"");
    for (const std::string& key : where.keys()) {
      conditions_.emplace_back(place(key), where.text(key));
    }
  }

  const std::filesystem::path& path() const { return path_; }
  std::size_t place(const std::string& column) const {
    const auto found = std::find(csv_[0].begin(), csv_[0].end(), column);
    if (found == csv_[0].end()) {
      fail("{}: there is no column '{}', which table '{}' describes", path_.string(), column,
           table_);
    }
    return static_cast<std::size_t>(found - csv_[0].begin());
  }
  std::vector<const std::vector<std::string>*> rows() const {
    std::vector<const std::vector<std::string>*> meant;
    for (std::size_t r = 1; r < csv_.size(); ++r) {
      const bool fits = std::all_of(conditions_.begin(), conditions_.end(), [&](const auto& each) {
        return csv_[r][each.first] == each.second;
      });
      if (fits) meant.push_back(&csv_[r]);
    }
    return meant;
  }
  [[noreturn]] void fail_empty() const {
    fail("table '{}': no row of {} is meant by it", table_, path_.string());
  }

 private:
  std::string table_;
  std::filesystem::path path_;
  std::vector<std::vector<std::string>> csv_;
  std::vector<std::pair<std::size_t, std::string>> conditions_;  ///< column, text
};

class TableReader {
 public:
  TableReader(const std::filesystem::path& folder, Measurements& measurements)
      : folder_(folder), measurements_(measurements) {}

  void read(Section& section) {
    MeasurementTable table;
    table.name = section.text("name");
    for (const MeasurementTable& other : measurements_.tables) {
      if (other.name == table.name) fail("table '{}' is there twice", table.name);
    }
    table.file = section.text("file");
    table.source = section.choice("source", {Source::published, Source::measured});
    table.quantity = section.choice("quantity", kTableQuantities);
    if (table.quantity == TableQuantity::copies_gb_per_s) return read_flows(section, table);
    dtype_ = parse_dtype(section.text("dtype"));
    Meaning common;
    if (section.has("topology")) common.topology = section.text("topology");
    bytes_ = 0;
    if (section.has("bytes")) bytes_ = size_in_bytes(section.text("bytes"), table.name);
    const std::string rows_are = section.text("rows_are");
    if (rows_are == "cells") return read_list(section, table, common);
    const bool by_bytes = rows_are == "bytes";
    if (!by_bytes && rows_are != "machines") {
      fail("table '{}': rows_are '{}' is unknown; allowed are bytes, machines, cells", table.name,
           rows_are);
    }
    if (!by_bytes && bytes_ == 0) fail("table '{}': key 'bytes' is missing", table.name);
    const auto columns = read_meanings(section, "columns");
    std::map<std::string, Meaning> rows;
    if (!by_bytes) rows = read_meanings(section, "rows");
    measurements_.tables.push_back(table);
    read_cells(table, common, columns, rows, by_bytes);
  }

 private:
  /// A file with a set of flows per row, in words.
  void read_flows(Section& section, const MeasurementTable& table) {
    const std::string topology = section.text("topology");
    const std::string value_key = section.text("value");
    const ListedRows listed(section, table, folder_ / table.file);
    const std::size_t flows_at = listed.place("flows");
    const std::size_t value_at = listed.place(value_key);
    measurements_.tables.push_back(table);
    constexpr std::uint64_t kLarge = std::uint64_t{1} << 28;  // any: a rate is all that counts
    std::size_t row_number = 0;
    for (const std::vector<std::string>* row : listed.rows()) {
      const std::string& flows = (*row)[flows_at];
      measurements_.cells.push_back({.table = measurements_.tables.size() - 1,
                                     .row_number = row_number++,
                                     .row = flows,
                                     .column = value_key,
                                     .topology = topology,
                                     .bytes = kLarge,
                                     .value = number((*row)[value_at], listed.path(), flows)});
    }
    if (row_number == 0) listed.fail_empty();
  }

  /// A file with a cell per row: some of its columns say which cell that is. The median counts for a cell that was measured
  /// several times.
  void read_list(Section& section, const MeasurementTable& table, const Meaning& common) {
    const std::string column_key = section.text("column");
    const std::string value_key = section.text("value");
    std::uint64_t least = 1;
    if (section.has("least_bytes")) least = size_in_bytes(section.text("least_bytes"), table.name);
    const auto columns = read_meanings(section, "columns");
    const ListedRows listed(section, table, folder_ / table.file);
    const std::size_t bytes_at = listed.place("bytes");
    const std::size_t column_at = listed.place(column_key);
    const std::size_t value_at = listed.place(value_key);
    std::map<std::uint64_t, std::map<std::string, std::vector<double>>> cells;  // by bytes, column
    for (const std::vector<std::string>* meant : listed.rows()) {
      const auto& row = *meant;
      const std::uint64_t bytes = size_in_bytes(row[bytes_at], listed.path().string());
      if (bytes < least || !columns.contains(row[column_at])) continue;
      cells[bytes][row[column_at]].push_back(number(row[value_at], listed.path(), row[bytes_at]));
    }
    if (cells.empty()) listed.fail_empty();
    measurements_.tables.push_back(table);
    std::size_t row_number = 0;
    for (auto& [bytes, of_columns] : cells) {
      for (auto& [column, values] : of_columns) {
        const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
        std::nth_element(values.begin(), middle, values.end());
        Meaning meaning = common;
        meaning.override_with(columns.at(column));
        add_cell(meaning, table, row_number, std::to_string(bytes), column, bytes, *middle);
      }
      ++row_number;
    }
  }

  void add_cell(const Meaning& meaning, const MeasurementTable& table, std::size_t row_number,
                const std::string& row, const std::string& column, std::uint64_t bytes,
                double value) {
    require_complete(meaning, table, row, column);
    measurements_.cells.push_back({.table = measurements_.tables.size() - 1,
                                   .row_number = row_number,
                                   .row = row,
                                   .column = column,
                                   .topology = meaning.topology,
                                   .algorithm = meaning.algorithm,
                                   .codec = meaning.codec,
                                   .library = meaning.library.value_or(false),
                                   .dtype = dtype_,
                                   .bytes = bytes,
                                   .value = value});
  }

  void read_cells(const MeasurementTable& table, const Meaning& common,
                  const std::map<std::string, Meaning>& columns,
                  const std::map<std::string, Meaning>& rows, bool by_bytes) {
    const std::filesystem::path path = folder_ / table.file;
    const auto csv = read_csv(path).rows;
    for (const auto& [name, meaning] : columns) {
      if (std::find(csv[0].begin() + 1, csv[0].end(), name) == csv[0].end()) {
        fail("{}: there is no column '{}', which table '{}' describes", path.string(), name,
             table.name);
      }
    }
    for (std::size_t r = 1; r < csv.size(); ++r) {
      const std::string& row = csv[r][0];
      Meaning of_row = common;
      if (!by_bytes) {
        const auto known = rows.find(row);
        if (known == rows.end()) continue;  // not of this description
        of_row.override_with(known->second);
      }
      for (std::size_t c = 1; c < csv[r].size(); ++c) {
        const auto column = columns.find(csv[0][c]);
        if (column == columns.end() || csv[r][c].empty()) continue;
        Meaning meaning = of_row;
        meaning.override_with(column->second);
        add_cell(meaning, table, r - 1, row, csv[0][c],
                 by_bytes ? size_in_bytes(row, path.string()) : bytes_,
                 number(csv[r][c], path, row));
      }
    }
  }

  static void require_complete(const Meaning& meaning, const MeasurementTable& table,
                               const std::string& row, const std::string& column) {
    const std::pair<const char*, const std::string*> parts[] = {{"topology", &meaning.topology},
                                                                {"algorithm", &meaning.algorithm},
                                                                {"codec", &meaning.codec}};
    for (const auto& [name, text] : parts) {
      if (text->empty()) {
        fail("table '{}': row '{}', column '{}': no {} is given", table.name, row, column, name);
      }
    }
    // The library's own choice of all-reduce.
    const bool chosen = meaning.library.value_or(false) && meaning.algorithm == kOwnChoice;
    if (!chosen) find_simulated_algorithm(meaning.algorithm);
    find_codec(meaning.codec);
  }

  std::filesystem::path folder_;
  Measurements& measurements_;
  DType dtype_ = DType::fp16;
  std::uint64_t bytes_ = 0;
};

constexpr std::pair<const char*, HeldRows> kHeldRows[] = {
    {"odd", HeldRows::odd},
    {"even", HeldRows::even},
    {"largest third", HeldRows::largest_third},
    {"smallest third", HeldRows::smallest_third}};

HoldOut read_hold_out(Section& section) {
  HoldOut hold_out;
  hold_out.name = section.text("name");
  if (section.has("tables")) hold_out.tables = section.texts("tables");
  if (section.has("ignored")) hold_out.ignored = section.texts("ignored");
  if (section.has("columns")) hold_out.columns = section.texts("columns");
  if (section.has("rows")) {
    const std::string rows = section.text("rows");
    const auto found =
        std::ranges::find(kHeldRows, rows, [](const auto& each) { return each.first; });
    if (found == std::end(kHeldRows)) {
      fail(
          "hold-out '{}': rows '{}' is unknown; allowed are odd, even, largest third, smallest "
          "third",
          hold_out.name, rows);
    }
    hold_out.rows = found->second;
  }
  return hold_out;
}

/// One, or one for each of `each_column`.
std::vector<HoldOut> read_hold_outs(Section& section) {
  if (!section.has("each_column")) return {read_hold_out(section)};
  std::vector<HoldOut> all;
  const std::vector<std::string> columns = section.texts("each_column");
  const HoldOut common = read_hold_out(section);
  for (const std::string& column : columns) {
    HoldOut one = common;
    one.name = fmt::format("{} {}", column, common.name);
    one.columns = {column};
    all.push_back(std::move(one));
  }
  return all;
}

Neutral read_neutral(Section section) {
  Neutral neutral;
  if (section.has("machines")) neutral.machines = section.texts("machines");
  for (const std::string& key : section.keys()) {
    if (key != "machines") neutral.values[key] = section.number(key);
  }
  for (const std::string& machine : neutral.machines) find_topology(machine);
  return neutral;
}

bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool Measurements::ignores(const HoldOut& hold_out, const Measurement& cell) const {
  return is_in(hold_out.ignored, tables[cell.table].name);
}

bool Measurements::holds_out(const HoldOut& hold_out, const Measurement& cell) const {
  if (!hold_out.tables.empty() && !is_in(hold_out.tables, tables[cell.table].name)) return false;
  if (!hold_out.columns.empty() && !is_in(hold_out.columns, cell.column)) return false;
  if (hold_out.rows == HeldRows::odd) return cell.row_number % 2 == 1;
  if (hold_out.rows == HeldRows::even) return cell.row_number % 2 == 0;
  if (hold_out.rows == HeldRows::all) return true;
  std::size_t rows = 0;
  for (const Measurement& other : cells) {
    if (other.table == cell.table) rows = std::max(rows, other.row_number + 1);
  }
  return hold_out.rows == HeldRows::smallest_third ? 3 * (cell.row_number + 1) <= rows
                                                   : 3 * (rows - cell.row_number) <= rows;
}

const FitDefinition& Measurements::fit(const std::string& name) const {
  std::vector<std::string> known;
  for (const FitDefinition& candidate : fits) {
    if (candidate.name == name) return candidate;
    known.push_back(candidate.name);
  }
  fail("unknown fit '{}': {}", name, instead_of(name, {known}));
}

std::vector<Measurement> Measurements::cells_of(const FitDefinition& fit) const {
  std::vector<Measurement> chosen;
  for (const Measurement& cell : cells) {
    if (is_in(fit.tables, tables[cell.table].name)) chosen.push_back(cell);
  }
  return chosen;
}

Measurements read_measurements(const std::filesystem::path& path) {
  const std::string origin = path.string();
  const toml::table toml = parse_toml(read_text_file(path, "description of tables"), origin);
  Section file(toml, origin, "");
  Measurements measurements;
  TableReader reader(path.parent_path(), measurements);
  file.for_each("tables", [&reader](Section& section) { reader.read(section); });
  file.for_each("fits", [&](Section& section) {
    FitDefinition fit;
    fit.name = section.text("name");
    fit.tables = section.texts("tables");
    for (const std::string& name : fit.tables) {
      const auto known = [&name](const MeasurementTable& t) { return t.name == name; };
      if (std::none_of(measurements.tables.begin(), measurements.tables.end(), known)) {
        fail("{}: fit '{}': there is no table '{}'", origin, fit.name, name);
      }
    }
    fit.shared = section.texts("shared");
    fit.own = section.texts("own");
    fit.chosen = section.optional_integer("chosen", 0, 1000).value_or(0);
    if (section.has("neutral")) {
      fit.neutral = read_neutral(section.section("neutral", "a table: machines, or key = number"));
    }
    section.for_each("hold_outs", [&fit](Section& hold_out) {
      for (HoldOut& each : read_hold_outs(hold_out)) fit.hold_outs.push_back(std::move(each));
    });
    measurements.fits.push_back(std::move(fit));
  });
  file.reject_other_keys();
  if (measurements.cells.empty()) fail("{}: it describes no cells", origin);
  return measurements;
}

}  // namespace arlab

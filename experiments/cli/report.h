// What a command prints: one result, in three formats.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "reference/wide_count.h"

namespace arlab::cli {

/// The last two are of bench and simulate (nccl_tests.h).
enum class Format { table, json, csv, nccl, nccl_json, toml };

/// Exact up to 2^64 - 1; above that the nearest float64, as most readers of JSON would make of it.
nlohmann::ordered_json count_json(WideCount count);

/// One named figure of a result.
struct Field {
  std::string name;              ///< snake_case, with its unit; the key in JSON and CSV
  nlohmann::ordered_json value;  ///< null where a figure does not exist
  std::string note = {};         ///< for people: unit, provenance, meaning
};

/// Rows of equal shape.
struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<nlohmann::ordered_json>> rows;
};

/// A row for each list of figures, a column for each name in any of them; null where a row has none.
Table table_of(const std::vector<std::vector<Field>>& rows);

/// A result: figures, or rows, or both.
struct Report {
  std::string schema;  ///< for example arlab.reduce/1
  std::vector<Field> fields = {};
  std::string rows_name = {};  ///< key of the rows in JSON
  Table rows = {};
  // What people are shown who do not ask for all; empty: everything.
  std::vector<std::string> shown = {};         ///< columns of the rows
  std::vector<std::string> shown_fields = {};  ///< figures
};

/// What text for people may be like.
struct Page {
  std::size_t width = std::string::npos;  ///< characters in a line
  bool all = false;                       ///< every figure and column, however long the lines
};

/// table: aligned text, figures first. json: one object. csv: the rows, or the figures as one row.
/// Only a table has a page; what it leaves out, its last line says.
std::string render(const Report& report, Format format, const Page& page = {});

/// Aligned text; numbers stand to the right. Sentences go on in the rows below, broken at spaces.
/// What is still too wide loses columns from the right, never a part of a name; they are added to
/// `left_out`.
std::string render_text(const Table& table, const Page& page = {},
                        std::vector<std::string>* left_out = nullptr);

/// Comma-separated values as in RFC 4180, with a header line; null is an empty cell.
std::string render_csv(const Table& table);
std::string csv_line(const std::vector<nlohmann::ordered_json>& cells);

/// JSON text on one line; bytes that are not UTF-8 (a file's name) become U+FFFD.
std::string json_line(const nlohmann::ordered_json& json);

/// A cell as a person reads it: six significant digits, "-" for null.
std::string cell_text(const nlohmann::ordered_json& cell);

}  // namespace arlab::cli

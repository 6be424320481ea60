// The answer to a question: figures with names and units, and rows of equal shape; and how a person reads it.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/field.h"
#include "reference/wide_count.h"

namespace arlab::lab {

using Json = nlohmann::ordered_json;  // no header of the lab has more of it

/// A value as JSON has it; null where a figure does not exist. It is JSON wherever that is asked for.
class Cell {
 public:
  Cell(std::nullptr_t = nullptr);
  Cell(bool flag);
  Cell(double number);
  Cell(std::string text);
  Cell(const char* text) : Cell(std::string(text)) {}
  Cell(std::string_view text) : Cell(std::string(text)) {}
  template <std::unsigned_integral Count>
  Cell(Count count) : Cell(OfCount{}, count) {}
  template <std::signed_integral Count>
  Cell(Count count) : Cell(OfInteger{}, count) {}
  /// Exact up to 2^64 - 1; above that the nearest float64, as most readers of JSON would make of it.
  Cell(WideCount count);
  template <class Value>
  Cell(const std::optional<Value>& value) : Cell(value ? Cell(*value) : Cell()) {}
  Cell(const std::vector<std::string>& texts);
  Cell(const FieldValue& value);
  Cell(const Json& json);

  const Json& json() const { return *json_; }
  operator const Json&() const { return *json_; }

 private:
  struct OfCount {};
  struct OfInteger {};
  Cell(OfCount, std::uint64_t count);
  Cell(OfInteger, std::int64_t count);

  std::shared_ptr<const Json> json_;
};

/// One named figure of a result.
struct Figure {
  std::string name;  ///< snake_case, with its unit; the key in JSON and CSV
  Cell value;
  std::string note = {};   ///< for people: unit, provenance, meaning
  std::string words = {};  ///< text in place of the value for people and in CSV
};

/// Rows of equal shape.
struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

/// A row for each list of figures, a column for each name in any of them; null where a row has none.
Table table_of(const std::vector<std::vector<Figure>>& rows);

/// Rows below the others of a table.
struct Below {
  std::string heading;
  Table rows = {};
  std::vector<std::string> shown = {};  ///< as of a result
  bool is_whole = false;                ///< however wide the page
};

/// A picture that arlab.figures draws: data into a file, or the arguments of `python -m arlab.figures KIND`.
struct Picture {
  std::string kind;
  std::string file;  ///< empty: not asked for
  Cell data;
  std::string kept;  ///< result without it, in words
  std::vector<std::string> arguments = {};
};

/// The last three are of some questions only.
enum class Format { table, json, csv, nccl, nccl_json, toml };

/// As --format has it.
std::string_view name_of(Format format);

/// Limits of text for people.
struct Page {
  std::size_t width = std::string::npos;  ///< characters in a line
  bool all = false;                       ///< every figure and column, however long the lines
};

/// Takes text piece by piece.
using Write = std::function<void(std::string_view)>;

/// Figures, or rows, or both.
struct Result {
  std::string schema;  ///< for example arlab.reduce/1
  std::vector<Figure> figures = {};
  std::string rows_name = {};  ///< key of the rows in JSON
  Table rows = {};
  // Parts for people who do not ask for all; empty: everything.
  std::vector<std::string> shown = {};          ///< columns of the rows
  std::vector<std::string> shown_figures = {};  ///< figures
  std::vector<Figure> details = {};             ///< in JSON only, before the rows
  std::vector<Figure> appendix = {};            ///< likewise behind them
  std::vector<Below> sections = {};             ///< in a table only
  bool figures_in_csv = false;                  ///< and not the rows
  std::string text = {};                        ///< as a file of another format: a machine's TOML
  bool is_text = false;                         ///< for people, too, in place of the table
  std::optional<Picture> picture = {};
  std::string verdict = {};  ///< why a check has failed, in one line
  std::function<void(Format, const Page&, const Write&)> written =
      {};  ///< in place of render(), for what is too much to be in memory
  std::function<void()> at_last = {};  ///< last work, once the answer is shown
};

/// Adds the findings of a check, a line each: all in JSON, under `name`; for people below the table. The first is the verdict,
/// behind `what`.
void add_findings(Result& result, std::string name, const std::vector<std::string>& findings,
                  std::string_view what);

/// Adds the column latency_is_guess to a table of times where operations of a codec in it were guessed (guessed_codecs()).
void mark_guesses(Table& table);
/// The same of a result, with a figure that names the codecs.
void mark_guesses(Result& result);

/// One object: figures by their names, and the rows as objects.
Json to_json(const Result& result);
Json to_json(const Table& table);

/// table: aligned text, figures first. json: one object. csv: the rows, or the figures as one row.
/// Only a table has a page; what it leaves out, its last line says.
std::string render(const Result& result, Format format, const Page& page = {});

/// Aligned text; numbers stand to the right. Sentences go on in the rows below, broken at spaces.
/// Tables that are still too wide lose columns from the right, never a part of a name; they are added to `left_out`.
std::string render_text(const Table& table, const Page& page = {},
                        std::vector<std::string>* left_out = nullptr);

/// Comma-separated values as in RFC 4180, with a header line; null is an empty cell.
std::string render_csv(const Table& table);
std::string csv_line(const std::vector<Cell>& cells);

/// Returns a quantile as p50 or p99 mean it: the least of the sorted values that is not below such a share of them.
double quantile(const std::vector<double>& sorted, double share);

/// JSON text on one line; bytes that are not UTF-8 (a file's name) become U+FFFD.
std::string json_line(const Json& json);

/// A cell as a person reads it: six significant digits, "-" for null.
std::string cell_text(const Json& cell);

}  // namespace arlab::lab

// How far are times of models from published and measured ones, cell by cell?

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "experiments/lab/files.h"
#include "experiments/lab/questions.h"
#include "reference/codecs/registry.h"
#include "reference/csv.h"
#include "sim/simulator.h"
#include "sim/topology/toml_section.h"
#include "sim/workload/model_time.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

/// One number of a table, and ours.
struct EndToEndCell {
  std::string table;
  std::string source;
  std::string row;
  std::string quantity;  ///< speedup or layer_us
  bool fitted = false;
  double value = 0;
  double simulated = 0;

  double error_percent() const { return 100 * (simulated / value - 1); }
};

Communication vendor_library(DType dtype) {
  return {.algorithm = "ring", .codec = find_codec(name_of(dtype)), .library = true};
}

/// Reads the description (its schema is in its head) and simulates what it names.
class EndToEndTables {
 public:
  explicit EndToEndTables(const fs::path& path) : path_(path) {
    const std::string origin = printable(path.string());
    const toml::table table = parse_toml(read_text_file(path, "description"), origin);
    Section file(table, origin, "");
    file.for_each("tables", [this](Section& section) { read_table(section); });
    file.reject_other_keys();
  }

  const std::vector<EndToEndCell>& cells() const { return cells_; }
  std::size_t left_out() const { return left_out_; }

 private:
  void read_table(Section& section) {
    name_ = section.text("name");
    source_ = section.text("source");
    const CsvTable csv = read_csv(path_.parent_path() / section.text("file"));
    const std::string kind = section.text("kind");
    if (kind == "layers") return read_layers(section, csv);
    if (kind == "speedups") return read_speedups(section, csv);
    fail("{}: table '{}': unknown kind '{}'; allowed are speedups, layers", path_.string(), name_,
         kind);
  }

  std::size_t column_of(const CsvTable& csv, const std::string& column) const {
    const auto& names = csv.rows.front();
    const auto found = std::find(names.begin(), names.end(), column);
    if (found == names.end()) {
      fail("{}: table '{}': its file has no column '{}'", path_.string(), name_, column);
    }
    return static_cast<std::size_t>(found - names.begin());
  }

  double value_of(const CsvTable& csv, std::size_t row, std::size_t column) const {
    const double value = number_of(csv.rows[row][column]);
    if (!(value > 0)) {
      fail("{}: table '{}': line {} of its file: '{}' is not a positive number", path_.string(),
           name_, csv.lines[row], csv.rows[row][column]);
    }
    return value;
  }

  void add(const std::string& row, const char* quantity, bool fitted, double value,
           double simulated) {
    cells_.push_back({name_, source_, row, quantity, fitted, value, simulated});
  }

  // ---------------------------------------------------------------- speed-ups of the first token

  void read_speedups(Section& section, const CsvTable& csv) {
    const std::size_t column = column_of(csv, section.text("column"));
    InferenceStep step{.batch = section.integer("batch", 1, 1 << 16),
                       .tokens = section.integer("tokens", 1, 1 << 24),
                       .dtype = parse_dtype(section.text("dtype"))};
    Section rows = section.section("rows", "a table of what the rows stand for");
    for (std::size_t r = 1; r < csv.rows.size(); ++r) {
      const std::string& label = csv.rows[r].front();
      Section row = rows.section(label, "a table { model, topology, ranks, algorithm, codecs }");
      const ModelShape shape = find_model(row.text("model"));
      const Topology topology = find_topology(row.text("topology"));
      step.ranks = row.integer("ranks", 1, kMaxWorldSize);
      Communication communication{.algorithm = row.text("algorithm")};
      double best = 0;
      for (const std::string& codec : row.texts("codecs")) {
        communication.codec = find_codec(codec);
        const double us = model_time(shape, step, communication, topology).total_us;
        if (best == 0 || us < best) best = us;
      }
      row.reject_other_keys();
      const double plain = model_time(shape, step, vendor_library(step.dtype), topology).total_us;
      add(label, "speedup", false, value_of(csv, r, column), plain / best);
    }
    rows.reject_other_keys();
  }

  // ---------------------------------------------------------------- layers

  void read_layers(Section& section, const CsvTable& csv) {
    const ModelShape shape = find_model(section.text("model"));
    const std::string machine = section.text("machine");
    const std::vector<Rank> fitted =
        section.has("fitted_tokens") ? section.extents("fitted_tokens") : std::vector<Rank>();
    const std::size_t ranks = column_of(csv, "ranks");
    const std::size_t dtype = column_of(csv, "dtype");
    const std::size_t tokens = column_of(csv, "tokens");
    const std::size_t all_reduce = column_of(csv, "all_reduce");
    const std::size_t layer_us = column_of(csv, "layer_us");
    const auto& names = csv.rows.front();
    const auto run = std::find(names.begin(), names.end(), "run");  // one of several, if there are
    std::map<std::string, std::pair<double, double>> of_nccl;
    for (std::size_t r = 1; r < csv.rows.size(); ++r) {
      const std::vector<std::string>& row = csv.rows[r];
      const std::string& how = row[all_reduce];
      if (how != "none" && how != "nccl" && !how.starts_with("arlab ")) {
        ++left_out_;
        continue;
      }
      const auto world = static_cast<Rank>(value_of(csv, r, ranks));
      const InferenceStep step{.tokens = static_cast<std::uint64_t>(value_of(csv, r, tokens)),
                               .ranks = world,
                               .dtype = parse_dtype(row[dtype]),
                               .kernels = Kernels::separate,
                               .attention = false};
      const std::string run_of_row =
          run == names.end() ? "1" : row[static_cast<std::size_t>(run - names.begin())];
      const std::string set_up =
          fmt::format("{} GPUs, {}, run {}, {} tokens", world, row[dtype], run_of_row, step.tokens);
      const double value = value_of(csv, r, layer_us);
      const double ours =
          layer_time_us(shape, step, how, find_topology(fmt::format("{}-{}", machine, world)));
      const bool seen = how == "none" && run_of_row == "1" && row[dtype] == "bf16" &&
                        std::count(fitted.begin(), fitted.end(), step.tokens) > 0;
      const std::string label = fmt::format("{}, {}", set_up, how);
      add(label, "layer_us", seen, value, ours);
      if (how == "nccl") of_nccl[set_up] = {value, ours};
      if (!how.starts_with("arlab ") || !of_nccl.contains(set_up)) continue;
      const auto [nccl_value, nccl_ours] = of_nccl[set_up];
      add(label, "speedup", false, nccl_value / value, nccl_ours / ours);
    }
  }

  static double layer_time_us(const ModelShape& model, const InferenceStep& step,
                              const std::string& how, const Topology& topology) {
    Communication communication = vendor_library(step.dtype);
    if (how.starts_with("arlab ")) {
      const std::size_t algorithm = std::string_view("arlab ").size();
      const std::size_t codec = how.find(' ', algorithm) + 1;
      communication = {.algorithm = how.substr(algorithm, codec - algorithm - 1),
                       .codec = find_codec(how.substr(codec))};
    }
    double us = 0;
    for (const TimedOperation& each : model_time(model, step, communication, topology).operations) {
      const bool sent = each.operation.kind == OperationKind::communication;
      if (each.first_layer == 0 && !(sent && how == "none")) us += each.us;
    }
    return us;
  }

  fs::path path_;
  std::string name_;
  std::string source_;
  std::vector<EndToEndCell> cells_;
  std::size_t left_out_ = 0;
};

struct ModelValidateRequest {
  std::string tables;
  bool cells = false;

  Result answer() const {
    const EndToEndTables compared(tables.empty() ? data_path("published/end_to_end.toml")
                                                 : fs::path(tables));
    return cells ? all(compared) : summary(compared);
  }

  static Json rounded(double value) { return std::round(value * 1000) / 1000; }

  static Result all(const EndToEndTables& compared) {
    Result report{"arlab.model.validate.cells/1", {}, "cells"};
    report.rows.columns = {"table",  "source", "row",       "quantity",
                           "fitted", "value",  "simulated", "error_percent"};
    for (const EndToEndCell& cell : compared.cells()) {
      report.rows.rows.push_back({cell.table, cell.source, cell.row, cell.quantity, cell.fitted,
                                  cell.value, cell.simulated, rounded(cell.error_percent())});
    }
    return report;
  }

  static Result summary(const EndToEndTables& compared) {
    using Key = std::tuple<std::string, std::string, bool>;
    std::vector<Key> order;
    std::map<Key, std::vector<const EndToEndCell*>> groups;
    double sum = 0;
    std::size_t speedups = 0;
    for (const EndToEndCell& cell : compared.cells()) {
      const Key key{cell.table, cell.quantity, cell.fitted};
      if (groups[key].empty()) order.push_back(key);
      groups[key].push_back(&cell);
      if (cell.quantity != "speedup") continue;
      sum += std::abs(cell.error_percent());
      ++speedups;
    }
    Result report{"arlab.model.validate/1", {}, "tables"};
    report.figures = {
        {"cells", compared.cells().size(), "numbers in the tables"},
        {"left_out", compared.left_out(), "rows of all-reduces that are not simulated"},
        {"speedups", speedups, "over NCCL or RCCL; none was fitted to"},
        {"speedup_mean_error_percent", rounded(speedups > 0 ? sum / double(speedups) : 0)},
        {"provenance", fmt::format("simulated: roofline of [compute], model {}; beside published "
                                   "and measured tables",
                                   kSimulatorModel)}};
    report.rows.columns = words_in(
        "name source quantity held_out cells mean_error_percent max_error_percent "
        "bias_percent worst");
    report.shown = {"name",  "quantity",           "held_out",
                    "cells", "mean_error_percent", "max_error_percent"};
    for (const Key& key : order) {
      double absolute = 0;
      double bias = 0;
      const EndToEndCell* worst = nullptr;
      for (const EndToEndCell* cell : groups[key]) {
        absolute += std::abs(cell->error_percent());
        bias += cell->error_percent();
        if (worst == nullptr ||
            std::abs(cell->error_percent()) > std::abs(worst->error_percent())) {
          worst = cell;
        }
      }
      const auto count = static_cast<double>(groups[key].size());
      report.rows.rows.push_back({std::get<0>(key), worst->source, std::get<1>(key),
                                  !std::get<2>(key), groups[key].size(), rounded(absolute / count),
                                  rounded(std::abs(worst->error_percent())), rounded(bias / count),
                                  worst->row});
    }
    return report;
  }
};

std::vector<BoundField> fields(ModelValidateRequest& r) {
  return {field("tables", &r.tables,
                "Compare with the tables that this TOML file describes, as "
                "experiments/published/end_to_end.toml does",
                "that file"),
          field("cells", &r.cells, "Print every cell: table, simulated, error")};
}

}  // namespace

Question model_validate_question() {
  return question<ModelValidateRequest>(
      "model validate",
      "Compare times of models and layers with published and measured ones, cell by cell",
      &ModelValidateRequest::answer);
}

}  // namespace arlab::lab

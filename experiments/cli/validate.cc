// How far is the simulator from every table of times, cell by cell, also on cells that its constants were not fitted to? And
// fits of the constants. They need a solver, which nothing else does: so they are of the program alone.

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "experiments/cli/commands.h"
#include "experiments/cli/nccl_logs.h"
#include "experiments/cli/options.h"
#include "reference/device_facts/kernel_rules.h"
#include "reference/parallel.h"
#include "reference/tensors/file.h"
#include "reference/words.h"
#include "sim/calibration/bench_file.h"
#include "sim/calibration/fit.h"
#include "sim/calibration/machine_text.h"
#include "sim/simulator.h"
#include "sim/uncertainty.h"

namespace arlab::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

fs::path tables_of(const std::string& against) {
  return data_path(fs::path(against) / "validation.toml");
}

/// Returns files of measurements by `arlab bench`: those named, or all in the source tree or the installation that measured
/// kernels as they are. `superseded`: names of those that it has of others.
std::vector<fs::path> bench_files(const std::vector<std::string>& named,
                                  std::vector<std::string>& superseded) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::path file : named) {
    for (const fs::path& other : found) {
      if (file != other && !fs::equivalent(file, other, error)) continue;
      fail("--file {} is there twice: its rows would count twice", quote(file.string()));
    }
    found.push_back(file);
  }
  if (!named.empty()) return found;
  for (const fs::path& path : paths_in(data_path("measured"), error)) {
    const auto header = header_of(path);
    const auto kernels = header.find("kernels");
    if (kernels == header.end()) continue;
    if (kernels->second.starts_with(kKernelsSince)) {
      found.push_back(path);
    } else {
      superseded.push_back(path.filename().string());
    }
  }
  if (found.empty()) {
    fail(
        "there are no measured times: experiments/measured has no file that says '# kernels: {}'; "
        "--file names one",
        kKernelsSince);
  }
  return found;
}

std::vector<std::size_t> all_indices(std::size_t count) {
  std::vector<std::size_t> indices(count);
  for (std::size_t i = 0; i < count; ++i) indices[i] = i;
  return indices;
}

/// The sort of a prediction, of which `classes` has a line each.
std::string class_of(const Topology& machine, const CollectiveRun& run,
                     std::span<const Extrapolation> beyond) {
  const Device& device = machine.device;
  if (run.algorithm.empty()) return "copies";
  if (run.library && machine.kind == TopologyKind::fat_tree) return "several servers";
  const bool is_elsewhere = std::ranges::any_of(
      beyond, [](const Extrapolation& each) { return each.in == Beyond::generation; });
  if (is_elsewhere) return "another generation";
  if (run.library) return is_over_pcie(device) ? "PCIe host" : "one server";
  if (device.blocks) return "own kernels";
  return device.stores ? "QuickReduce" : "Flash Communication";
}

/// A fit's prediction of a cell that it does not see.
struct Predicted {
  SimulatedCell cell;
  std::string sort = {};     ///< class_of()
  double off_percent = 0;    ///< 100 log(measured / simulated), of the latency
  double sigma_percent = 0;  ///< as the fit says, and as the file declares
  std::vector<Extrapolation> beyond;

  double sigma(const Widening& widening) const { return widened(sigma_percent, beyond, widening); }
  bool is_inside(const Widening& widening = kWidening) const {
    return std::abs(off_percent) <= kIntervalSigmas * sigma(widening);
  }
};

/// Predictions by a fit of cells that it does not see.
struct HeldOut {
  std::string fit;
  std::string name;
  std::size_t constants = 0;             ///< determined by its cells
  std::vector<std::string> frozen = {};  ///< the others, each with the reason and what was taken
  std::vector<Predicted> predicted = {};

  std::vector<SimulatedCell> cells() const {
    std::vector<SimulatedCell> all;
    std::ranges::transform(predicted, std::back_inserter(all), &Predicted::cell);
    return all;
  }
};

double share_inside_percent(std::span<const Predicted> cells,
                            const Widening& widening = kWidening) {
  const auto inside =
      std::ranges::count_if(cells, [&](const Predicted& each) { return each.is_inside(widening); });
  return 100 * static_cast<double>(inside) / static_cast<double>(cells.size());
}

/// Mean of half the interval's width, in percent of the latency: narrow ones that hold are the goal.
double mean_width_percent(std::span<const Predicted> cells) {
  double sum = 0;
  for (const Predicted& each : cells) {
    sum += 100 * std::sinh(kIntervalSigmas * each.sigma(kWidening) / 100);
  }
  return sum / static_cast<double>(cells.size());
}

HeldOut predict(const Measurements& measurements, const FitDefinition& fit,
                const HoldOut& hold_out) {
  const CellSimulator simulator(measurements, measurements.cells_of(fit));
  std::vector<std::size_t> seen;
  std::vector<std::size_t> unseen;
  for (std::size_t i = 0; i < simulator.size(); ++i) {
    if (measurements.ignores(hold_out, simulator.cell(i))) continue;
    (measurements.holds_out(hold_out, simulator.cell(i)) ? unseen : seen).push_back(i);
  }
  if (unseen.empty() || (seen.empty() && fit.neutral.machines.empty())) {
    fail("fit '{}', hold-out '{}': it leaves no cells to {}", fit.name, hold_out.name,
         seen.empty() ? "fit to" : "predict");
  }
  const FitResult fitted = fit_constants(fit, simulator, seen, true);
  HeldOut result{.fit = fit.name, .name = fmt::format("{}: {}", fit.name, hold_out.name)};
  for (const FittedConstant& constant : fitted.constants) {
    if (constant.frozen.empty()) {
      ++result.constants;
    } else {
      result.frozen.push_back(fmt::format("{} ({})", constant.key, constant.frozen));
    }
  }
  for (const std::size_t i : unseen) {
    const Topology& machine = fitted.machines.at(simulator.cell(i).topology);
    const CollectiveRun run = simulator.run(i);
    Predicted cell{.cell = simulator.simulate_cell(i, machine),
                   .beyond = extrapolations_of(machine, run)};
    cell.off_percent = -100 * std::log1p(cell.cell.error_percent / 100);
    cell.sigma_percent = sigma_percent_of(
        machine, run, {}, [&](const Topology& t) { return simulator.latency_us(i, t); });
    std::erase_if(cell.beyond, [](const Extrapolation& each) { return !each.in; });
    cell.sort = class_of(machine, run, cell.beyond);
    result.predicted.push_back(std::move(cell));
  }
  return result;
}

/// By how much each extrapolation has to widen intervals so that 90 % of the cells lie in them which
/// hold-outs predict that differ in it alone; 0 where there are none. `but`: a fit that is left out.
Widening widening_of(std::span<const HeldOut> held_out, const std::string& but = {}) {
  std::array<std::vector<double>, kBeyonds> needed;  // by each cell
  for (const HeldOut& one : held_out) {
    if (one.fit == but) continue;
    for (const Predicted& each : one.predicted) {
      if (each.beyond.size() != 1) continue;
      const double sigma = std::abs(each.off_percent) / kIntervalSigmas;
      const double more = sigma * sigma - each.sigma_percent * each.sigma_percent;
      const Extrapolation& beyond = each.beyond.front();
      needed[static_cast<std::size_t>(beyond.in.value())].push_back(std::sqrt(std::max(0.0, more)) /
                                                             beyond.times);
    }
  }
  Widening widening{};
  for (std::size_t k = 0; k < kBeyonds; ++k) {
    std::ranges::sort(needed[k]);
    const auto at =
        static_cast<std::size_t>(static_cast<double>(needed[k].size()) * kIntervalPercent / 100);
    if (!needed[k].empty()) widening[k] = needed[k][std::min(at, needed[k].size() - 1)];
  }
  return widening;
}

Json percent(double value) { return std::round(value * 1000) / 1000; }

/// A line for each class of predictions; those with fewer cells than it takes to tell are one.
Table classes_of(std::span<const HeldOut> held_out) {
  constexpr std::size_t kFew = 40;
  std::map<std::string, std::vector<Predicted>> by_class;
  for (const HeldOut& one : held_out) {
    for (const Predicted& each : one.predicted) by_class[each.sort].push_back(each);
  }
  std::vector<Predicted> others;
  for (const auto& [name, cells] : by_class) {
    if (cells.size() < kFew) others.insert(others.end(), cells.begin(), cells.end());
  }
  std::erase_if(by_class, [](const auto& each) { return each.second.size() < kFew; });
  if (!others.empty()) by_class["others"] = std::move(others);
  Table table{words_in("name cells mape_percent bias_percent p90_percent inside_percent "
                       "half_width_percent"),
              {}};
  for (const auto& [name, cells] : by_class) {
    std::vector<double> errors;
    double bias = 0;
    double mape = 0;
    const auto count = static_cast<double>(cells.size());
    for (const Predicted& each : cells) {
      errors.push_back(std::abs(each.cell.error_percent));
      bias += each.cell.error_percent / count;
      mape += errors.back() / count;
    }
    std::ranges::sort(errors);
    const double p90 = errors[static_cast<std::size_t>(0.9 * count)];
    table.rows.push_back({name, cells.size(), percent(mape), percent(bias), percent(p90),
                          percent(share_inside_percent(cells)),
                          percent(mean_width_percent(cells))});
  }
  return table;
}

/// All hold-outs of all fits, in the order of the file, as many at a time as there are threads.
std::vector<HeldOut> predict_all(const Measurements& measurements) {
  std::vector<std::pair<const FitDefinition*, const HoldOut*>> asked;
  for (const FitDefinition& fit : measurements.fits) {
    for (const HoldOut& hold_out : fit.hold_outs) asked.emplace_back(&fit, &hold_out);
  }
  std::vector<HeldOut> results(asked.size());
  parallel_for(asked.size(), 0, [&](unsigned, std::size_t i) {
    results[i] = predict(measurements, *asked[i].first, *asked[i].second);
  });
  return results;
}

/// Mean error of cells of so many bytes, or null: how far it is at small sizes and at large ones.
Json error_between(const std::vector<SimulatedCell>& cells, std::uint64_t from, std::uint64_t to) {
  std::vector<SimulatedCell> some;
  for (const SimulatedCell& cell : cells) {
    if (cell.measurement.bytes >= from && cell.measurement.bytes < to) some.push_back(cell);
  }
  return some.empty() ? Json(nullptr) : percent(summarize(some).mape_percent);
}
constexpr std::uint64_t kMedium = 512 << 10;
constexpr std::uint64_t kLarge = 16 << 20;

std::vector<Cell> table_row(const std::string& name, std::string_view source,
                            const std::vector<SimulatedCell>& cells,
                            const HeldOut* prediction = nullptr) {
  const ErrorSummary error = summarize(cells);
  const Ranking ranking = rank_codecs(cells);
  const bool ranks = ranking.rows > 0;
  std::set<std::string_view> beyond;
  for (const Predicted& each : prediction ? prediction->predicted : std::vector<Predicted>()) {
    for (const Extrapolation& in : each.beyond) beyond.insert(name_of(in.in.value()));
  }
  return {name,
          source,
          error.cells,
          prediction ? Cell(prediction->constants) : Cell(),
          percent(error.mape_percent),
          percent(error.max_ape_percent),
          error_between(cells, 0, kMedium),
          error_between(cells, kMedium, kLarge),
          error_between(cells, kLarge, UINT64_MAX),
          prediction != nullptr,
          prediction ? percent(share_inside_percent(prediction->predicted)) : Json(nullptr),
          prediction ? percent(mean_width_percent(prediction->predicted)) : Json(nullptr),
          prediction ? Cell(std::vector<std::string>(beyond.begin(), beyond.end())) : Cell(),
          prediction ? Cell(prediction->frozen) : Cell(),
          ranks ? Cell(fmt::format("{}/{}", ranking.right, ranking.rows)) : Cell(),
          error.worst};
}

const std::vector<std::string> kTableColumns = words_in(
    "name source cells constants mape_percent max_ape_percent below_512k_percent "
    "below_16m_percent from_16m_percent held_out in_interval_percent interval_percent extrapolated "
    "frozen best_codec_ok worst");
const std::vector<std::string> kCellColumns = {
    "table", "row",      "column", "topology", "algorithm", "codec",        "library",
    "bytes", "quantity", "source", "value",    "simulated", "error_percent"};

std::vector<Cell> cell_row(const Measurements& measurements, const SimulatedCell& cell) {
  const Measurement& m = cell.measurement;
  const MeasurementTable& table = measurements.tables[m.table];
  return {table.name,
          m.row,
          m.column,
          m.topology,
          m.algorithm,
          m.codec,
          m.library,
          m.bytes,
          name_of(cell.quantity),
          name_of(table.source),
          m.value,
          cell.simulated,
          percent(cell.error_percent)};
}

/// All cells of both, one after the other.
Measurements together(Measurements a, Measurements b) {
  for (Measurement& cell : b.cells) cell.table += a.tables.size();
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  append(a.tables, b.tables);
  append(a.cells, b.cells);
  append(a.fits, b.fits);
  return a;
}

/// Rows of all of these, under `name` where it is not empty.
void add_rows(Table& table, const Measurements& measurements,
              const std::vector<SimulatedCell>& cells, const std::string& name = {}) {
  for (const SimulatedCell& cell : cells) {
    table.rows.push_back(cell_row(measurements, cell));
    if (!name.empty()) table.rows.back().front() = name;
  }
}

/// Whether --file has logs of nccl-tests, for which alone some options are.
bool is_of_logs(const std::vector<std::string>& files, const LogQuestion& log) {
  if (are_nccl_logs(files)) return true;
  const bool names_logs = !log.base.empty() || !log.hints.collective.empty() || log.hints.ranks;
  for (const std::string& file : files) {
    const bool is_table = read_text_file(file, "file").find(',') != std::string::npos;
    if (!is_table)
      fail("{}: neither a log of nccl-tests or rccl-tests nor a CSV of arlab bench", file);
  }
  if (names_logs) fail("--base, --collective and --ranks are for --file with logs of nccl-tests");
  return false;
}

std::vector<BoundField> fields_of_logs(LogQuestion& log) {
  return {field("base", &log.base, "Simulate logs on this machine, a topology or a .toml file",
                "the shipped one with the log's device and ranks"),
          field("collective", &log.hints.collective,
                "Name the collective of logs that do not say it", "as the log says")
              .among({"all_reduce", "all_gather", "reduce_scatter", "alltoall"}),
          field("ranks", &log.hints.ranks, "Set the number of GPUs of logs that do not say it",
                "as the log says")
              .from(2, kMaxTopologyRanks)};
}

struct ValidateRequest {
  std::string against = "published";
  std::string tables;
  std::string plot;
  std::vector<std::string> files;
  bool cells = false;
  bool skip_hold_outs = false;
  LogQuestion log;

  Result answer() const {
    if (is_of_logs(files, log)) {
      if (!plot.empty()) fail("--plot: allowed for tables and CSVs, not for logs of nccl-tests");
      return compare_logs({files, log.base, log.hints});
    }
    if (!plot.empty()) lab::require_output_name("--plot", plot, {".png", ".svg", ".pdf"});
    if (!files.empty() && against != "measured") fail("--file needs --against measured");
    Measurements measurements;
    std::size_t left_out = 0;
    std::vector<std::string> superseded;
    if (!tables.empty()) {
      measurements = read_measurements(tables);
    } else {
      if (against != "measured") measurements = read_measurements(tables_of("published"));
      if (against != "published") {
        BenchFiles bench = read_bench_files(bench_files(files, superseded));
        measurements = together(std::move(measurements), std::move(bench.measurements));
        left_out = bench.left_out;
      }
    }
    const CellSimulator simulator(measurements, measurements.cells);
    const std::vector<SimulatedCell> simulated = simulator.simulate_all(simulator.machines());
    if (cells) {
      Result report{"arlab.validate.cells/1", {}, "cells", {kCellColumns, {}}};
      add_rows(report.rows, measurements, simulated);
      return report;
    }
    const std::vector<HeldOut> held_out =
        skip_hold_outs ? std::vector<HeldOut>() : predict_all(measurements);
    Result report = summary(measurements, simulated, held_out);
    if (!superseded.empty()) {
      report.figures.push_back({"superseded", fmt::format("{}", fmt::join(superseded, ", ")),
                                "of kernels that were other ones: not counted; --file reads one"});
    }
    if (left_out > 0) {
      report.figures.push_back({"left_out", left_out,
                                "rows of emulated GPUs and other libraries, which nothing here "
                                "simulates, and budgets of multiprocessors (simulate --sms)"});
    }
    Table measured{kCellColumns, {}};
    add_rows(measured, measurements, simulated);
    Table predicted{kCellColumns, {}};  // hold-outs, each under a name of its own
    for (const HeldOut& one : held_out) add_rows(predicted, measurements, one.cells(), one.name);
    report.details = {{"measurements", to_json(measured)}, {"predictions", to_json(predicted)}};
    const Table classes = classes_of(held_out);
    report.appendix = {{"classes", to_json(classes)}};
    if (!classes.rows.empty()) {
      report.sections = {
          {"Predictions of cells that fits have not seen, by class", classes, classes.columns}};
    }
    if (!plot.empty()) {
      Json data{{"schema", report.schema}};
      for (const auto* figures : {&report.details, &report.figures}) {
        for (const Figure& each : *figures) data[each.name] = each.value;
      }
      report.picture = {"validation", plot, data, "the errors are printed"};
    }
    return report;
  }

  /// How many numbers were fitted to, or chosen with, the tables of the file.
  static std::size_t constants_of(const Measurements& measurements, const FitDefinition& fit) {
    std::size_t constants = fit.shared.size() + fit.chosen;
    std::set<std::string> machines;
    for (const Measurement& cell : measurements.cells_of(fit)) machines.insert(cell.topology);
    for (const std::string& name : machines) {
      const Topology machine = find_topology(name);
      for (const NamedQuantity& quantity : quantities_of(machine)) {
        constants +=
            static_cast<std::size_t>(std::count(fit.own.begin(), fit.own.end(), quantity.key));
      }
    }
    return constants;
  }

  static Figure widening_figure(const std::vector<HeldOut>& held_out) {
    if (held_out.empty()) return {"widening_percent", nullptr};
    const Widening found = widening_of(held_out);
    Json by_name = Json::object();
    std::string words;
    for (std::size_t k = 0; k < kBeyonds; ++k) {
      const std::string_view name = name_of(static_cast<Beyond>(k));
      by_name[std::string(name)] = percent(found[k]);
      words += fmt::format("{}{} {:.1f} ({:g})", k == 0 ? "" : ", ", name, found[k], kWidening[k]);
    }
    return {"widening_percent", by_name,
            "what intervals beyond a fit have to be wider by, of which 90 % of these cells lie in "
            "theirs (in brackets: what simulate takes, of all tables)",
            words};
  }

  Result summary(const Measurements& measurements, const std::vector<SimulatedCell>& simulated,
                 const std::vector<HeldOut>& held_out) const {
    Result report{"arlab.validate/1", {}, "tables", {kTableColumns, {}}};
    for (std::size_t t = 0; t < measurements.tables.size(); ++t) {
      std::vector<SimulatedCell> of_table;
      for (const SimulatedCell& cell : simulated) {
        if (cell.measurement.table == t) of_table.push_back(cell);
      }
      const MeasurementTable& table = measurements.tables[t];
      report.rows.rows.push_back(table_row(table.name, name_of(table.source), of_table));
    }
    std::vector<Predicted> unseen;
    double inside_by_others = 0;
    for (const HeldOut& one : held_out) {
      const std::size_t table = one.predicted.front().cell.measurement.table;
      report.rows.rows.push_back(
          table_row(one.name, name_of(measurements.tables[table].source), one.cells(), &one));
      unseen.insert(unseen.end(), one.predicted.begin(), one.predicted.end());
      inside_by_others += static_cast<double>(one.predicted.size()) *
                          share_inside_percent(one.predicted, widening_of(held_out, one.fit));
    }
    report.shown = words_in(
        "name cells mape_percent in_interval_percent interval_percent best_codec_ok worst");
    std::size_t constants = 0;
    for (const FitDefinition& fit : measurements.fits) {
      constants += constants_of(measurements, fit);
    }
    const ErrorSummary all = summarize(simulated);
    std::vector<SimulatedCell> cells_unseen;
    std::ranges::transform(unseen, std::back_inserter(cells_unseen), &Predicted::cell);
    const ErrorSummary predicted = summarize(cells_unseen);
    const Ranking ranking = rank_codecs(simulated);
    const bool any = !held_out.empty();
    report.figures = {
        {"cells", all.cells, "numbers in the tables"},
        {"constants", constants, "numbers fitted to them, or chosen with them in view"},
        {"mape_percent", percent(all.mape_percent), "mean absolute error of the latency, fitted"},
        {"max_ape_percent", percent(all.max_ape_percent), all.worst},
        {"held_out_cells", predicted.cells, "predicted by fits that do not see them"},
        {"held_out_mape_percent", any ? Cell(percent(predicted.mape_percent)) : Cell()},
        {"held_out_max_ape_percent", any ? Cell(percent(predicted.max_ape_percent)) : Cell(),
         predicted.worst},
        {"held_out_in_interval_percent", any ? Cell(percent(share_inside_percent(unseen))) : Cell(),
         fmt::format("of them within their interval of {:.0f} %", kIntervalPercent)},
        {"held_out_in_interval_by_others_percent",
         any ? Cell(percent(inside_by_others / static_cast<double>(unseen.size()))) : Cell(),
         "the same, with intervals widened by what the hold-outs of the other fits say"},
        {"held_out_interval_percent", any ? Cell(percent(mean_width_percent(unseen))) : Cell(),
         "mean of half the interval's width"},
        widening_figure(held_out),
        {"best_codec_ok_percent", percent(ranking.right_percent()),
         fmt::format("the codec that the simulator picks is within 5 % of the fastest in {} of {} "
                     "rows",
                     ranking.right, ranking.rows)},
        {"provenance",
         fmt::format("simulated: model {}; beside {} tables", kSimulatorModel, against)}};
    return report;
  }
};

struct CalibrateRequest {
  std::string tables;
  std::vector<std::string> files;
  std::string fit;
  std::vector<std::string> only;
  std::string out;
  LogQuestion log;

  Result answer() const {
    std::error_code error;
    if (!out.empty() && !fs::is_directory(out, error)) {
      fail("--out {}: it is not a folder", quote(out));
    }
    if (is_of_logs(files, log)) return calibrate_to_logs({files, log.base, log.hints}, out);
    Measurements measurements;
    if (files.empty()) {
      measurements = read_measurements(tables.empty() ? tables_of("published") : fs::path(tables));
      if (fit.empty()) fail("--fit is required: name a fit of the description");
    } else {
      std::vector<std::string> superseded;
      measurements = read_bench_files(bench_files(files, superseded)).measurements;
    }
    const FitDefinition definition = with_only(chosen_fit(measurements));
    const CellSimulator simulator(measurements, measurements.cells_of(definition));
    const ErrorSummary before = summarize(simulator.simulate_all(simulator.machines()));
    const FitResult fitted = fit_constants(definition, simulator, all_indices(simulator.size()));
    const std::vector<SimulatedCell> simulated = simulator.simulate_all(fitted.machines);
    const ErrorSummary after = summarize(simulated);
    if (!out.empty()) write_machines(fitted);
    std::vector<std::string> frozen;
    for (const FittedConstant& each : fitted.constants) {
      if (!each.frozen.empty()) frozen.push_back(fmt::format("{} ({})", each.key, each.frozen));
    }

    Result report{"arlab.calibrate/1", {}, "constants"};
    report.figures = {
        {"fit", definition.name},
        {"cells", after.cells},
        {"fitted_constants", fitted.constants.size() - frozen.size()},
        {"frozen", frozen.empty() ? Cell() : Cell(fmt::format("{}", fmt::join(frozen, ", "))),
         "constants that the cells do not determine: left as they are"},
        {"chosen_constants", definition.chosen, "chosen with the same tables in view"},
        {"converged", fitted.converged},
        {"mape_percent_before", percent(before.mape_percent), "with the machine files as they are"},
        {"mape_percent", percent(after.mape_percent), "mean absolute error of the latency"},
        {"max_ape_percent", percent(after.max_ape_percent), after.worst}};
    report.rows.columns = {"constant", "topology", "start", "fitted", "sigma_percent", "frozen"};
    for (const FittedConstant& constant : fitted.constants) {
      const bool known = std::isfinite(constant.sigma_percent);
      report.rows.rows.push_back(
          {constant.key, constant.topology.empty() ? "all" : constant.topology, constant.start,
           constant.value, known ? percent(constant.sigma_percent) : Json(nullptr),
           constant.frozen.empty() ? Cell() : Cell(constant.frozen)});
    }
    Table residuals{{"topology", "row", "column", "error_percent"}, {}};
    for (const SimulatedCell& cell : simulated) {
      residuals.rows.push_back({cell.measurement.topology, cell.measurement.row,
                                cell.measurement.column, percent(cell.error_percent)});
    }
    report.details = {{"residuals", to_json(residuals)}};
    return report;
  }

  /// A file of measured times about one machine needs no name.
  const FitDefinition& chosen_fit(const Measurements& measurements) const {
    if (!fit.empty() || measurements.fits.size() > 1) return measurements.fit(fit);
    return measurements.fits.front();
  }

  /// The other constants stay as the machine files have them.
  FitDefinition with_only(FitDefinition definition) const {
    if (only.empty()) return definition;
    std::vector<std::string> allowed = definition.shared;
    allowed.insert(allowed.end(), definition.own.begin(), definition.own.end());
    const auto is_among = [](const std::vector<std::string>& keys, const std::string& key) {
      return std::find(keys.begin(), keys.end(), key) != keys.end();
    };
    for (const std::string& key : only) {
      if (is_among(allowed, key)) continue;
      fail("--only is {}: fit '{}' has no such constant: {}", quote(key), definition.name,
           instead_of(key, {allowed, "allowed are"}));
    }
    for (std::vector<std::string>* keys : {&definition.shared, &definition.own}) {
      std::erase_if(*keys, [&](const std::string& key) { return !is_among(only, key); });
    }
    return definition;
  }

  /// Returns the machines to write: times of 2 and 4 GPUs hold for 8 of the same machine.
  std::set<std::string> machines_to_write(const FitResult& fitted) const {
    std::set<std::string> names;
    for (const auto& [name, machine] : fitted.machines) {
      names.insert(name);
      if (files.empty()) continue;
      for (const std::string& other : machines_like(name)) names.insert(other);
    }
    return names;
  }

  /// No cell depends on it, or is left to tell it.
  static bool is_untouched(const FittedConstant& constant) {
    return constant.frozen.starts_with("no cell");
  }

  /// Returns a note with the machine's constants that the fit has left alone, and why.
  static std::string note_with_frozen(const std::string& note, const FitResult& fitted,
                                      const std::string& machine) {
    std::vector<std::string> frozen;
    for (const FittedConstant& each : fitted.constants) {
      if (each.frozen.empty() || is_untouched(each)) continue;
      if (!each.topology.empty() && each.topology != machine) continue;
      frozen.push_back(fmt::format("{} ({})", each.key, each.frozen));
    }
    return frozen.empty() ? note : fmt::format("{}; frozen: {}", note, fmt::join(frozen, ", "));
  }

  std::string with_constant(const std::string& text, const std::string& name,
                            const FittedConstant& constant, const std::string& note) const {
    if (files.empty()) return with_quantity(text, name, constant.key, constant.value);
    std::string origin = note;
    if (!constant.frozen.empty()) origin += "; frozen: " + constant.frozen;
    if (std::isfinite(constant.sigma_percent)) {
      origin += fmt::format("; one standard deviation {:.1f} %", constant.sigma_percent);
    }
    return with_quantity(text, name, constant.key,
                         Quantity{constant.value, Source::fitted, std::move(origin)});
  }

  static bool says_what_is_known(const std::string& text) {
    return text.find("\n[uncertainty]\n") != std::string::npos;
  }

  /// The text with what is known of constants now, and of others before.
  std::string with_what_is_known(const std::string& text, const std::string& name,
                                 const Uncertainty& now, const FitResult& fitted) const {
    // The file's own uncertainty counts, not that of its base, a machine like it.
    std::optional<Uncertainty> known =
        says_what_is_known(text) ? find_topology(name).uncertainty : std::nullopt;
    if (known) {
      std::vector<std::string> keys;
      for (const std::string& key : known->constants) {
        const bool is_frozen = std::ranges::any_of(fitted.constants, [&](const auto& each) {
          return each.key == key && !each.frozen.empty() && !is_untouched(each) &&
                 (each.topology.empty() || each.topology == name);
        });
        if (!is_frozen) keys.push_back(key);
      }
      const std::optional<FittedTo> library = known->library;
      known = part_of(*known, keys);
      known->library = library;
    }
    const bool says_more = known && std::ranges::any_of(known->constants, [&](const auto& key) {
                             return std::ranges::count(now.constants, key) == 0;
                           });
    Uncertainty result = says_more ? updated(*known, now, only.empty()) : now;
    result.machines = known ? known->machines : std::vector<std::string>();
    const std::string device = find_topology(name).device.name;
    for (const auto& [each, machine] : fitted.machines) {
      const bool is_new = std::ranges::count(result.machines, machine.name) == 0;
      if (is_new && machine.device.name == device) result.machines.push_back(machine.name);
    }
    return with_uncertainty(text, result);
  }

  /// Returns the part of an uncertainty for these constants.
  static Uncertainty part_of(const Uncertainty& all, const std::vector<std::string>& keys) {
    Uncertainty part;
    part.scatter_percent = all.scatter_percent;
    part.note = all.note;
    part.machines = all.machines;
    part.kernels = all.kernels;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < all.constants.size(); ++i) {
      if (std::ranges::count(keys, all.constants[i]) == 0) continue;
      part.constants.push_back(all.constants[i]);
      part.sigma_percent.push_back(all.sigma_percent[i]);
      std::vector<double>& row = part.correlation.emplace_back();
      for (const std::size_t j : places) row.push_back(all.correlation[i][j]);
      places.push_back(i);
    }
    return part;
  }

  /// All of them or none: what was there comes back where one cannot be written.
  void write_together(const std::map<std::string, std::string>& texts) const {
    std::vector<std::pair<fs::path, std::optional<std::string>>> written;  // and what was there
    std::error_code error;
    try {
      for (const auto& [name, text] : texts) {
        const fs::path path = fs::path(out) / (name + ".toml");
        std::optional<std::string> before;
        if (fs::exists(path, error)) before = read_text_file(path, "machine file");
        write_file(path, text);
        written.emplace_back(path, std::move(before));
      }
    } catch (...) {
      for (const auto& [path, before] : written) {
        if (before) {
          write_file(path, *before);
        } else {
          fs::remove(path, error);
        }
      }
      throw;
    }
  }

  /// All files are made before the first is written.
  void write_machines(const FitResult& fitted) const {
    std::string note;
    for (const std::string& file : files) {
      note += fmt::format("{}{}", note.empty() ? "" : ", ", fs::path(file).filename().string());
    }
    note += fmt::format("{}arlab calibrate {}{}", files.empty() ? "" : ": ",
                        files.empty() ? "--fit " + fit : "--file", only.empty() ? "" : " --only");
    // A number stands where it stood: in the machine's own file, or in one that it builds on.
    std::map<std::string, std::string> texts;                      // by machine
    std::map<std::string, std::vector<std::string>> constants_of;  // likewise: keys
    const std::set<std::string> written = machines_to_write(fitted);
    for (const std::string& name : written) {
      const std::vector<std::string> files_of_it = with_bases(name);
      for (const std::string& file : files_of_it) texts.try_emplace(file, machine_text(file));
      for (const FittedConstant& constant : fitted.constants) {
        if (!constant.topology.empty() && constant.topology != name) continue;
        if (is_untouched(constant)) continue;
        const auto file = std::ranges::find_if(files_of_it, [&](const std::string& each) {
          return has_quantity(texts[each], constant.key);
        });
        const std::string& where = file == files_of_it.end() ? name : *file;
        texts[where] = with_constant(texts[where], where, constant, note);
        constants_of[where].push_back(constant.key);
      }
      const auto own = fitted.machines.find(name);
      const Topology& like =
          own == fitted.machines.end() ? fitted.machines.begin()->second : own->second;
      if (!like.uncertainty) continue;
      Uncertainty uncertainty = *like.uncertainty;
      uncertainty.note = note_with_frozen(note, fitted, name);
      // A constant that all machines of the fit share is written to the one that the others build on.
      const bool is_alike = std::ranges::all_of(
          fitted.constants, [](const FittedConstant& each) { return each.topology.empty(); });
      std::string where = name;
      for (const std::string& file : files_of_it) {
        if (is_alike && written.contains(file)) where = file;
      }
      texts[where] = with_what_is_known(texts[where], where, uncertainty, fitted);
      for (const std::string& file : files_of_it) {
        if (file == where || written.contains(file) || constants_of[file].empty() ||
            !says_what_is_known(texts[file]))
          continue;
        texts[file] =
            with_what_is_known(texts[file], file, part_of(uncertainty, constants_of[file]), fitted);
      }
    }
    write_together(texts);
  }
};

std::vector<BoundField> fields(ValidateRequest& r) {
  return together(
      {field("against", &r.against,
             "Compare with times published by others, or measured by this project")
           .among({"published", "measured", "all"}),
       field(
           "tables", &r.tables,
           "Compare with the tables that this TOML file describes (see sim/calibration/README.md)"),
       field("file", &r.files,
             "Compare with measured times: a CSV of arlab bench, or a log of nccl-tests or "
             "rccl-tests",
             "all in experiments/measured of the current kernels")
           .one_by_one()
           .excludes("tables"),
       field("cells", &r.cells, "Print every cell: table, simulated, error"),
       field("plot", &r.plot,
             "Plot simulated against published or measured times (.png, .svg, .pdf)")
           .excludes("cells"),
       field("skip_hold_outs", &r.skip_hold_outs,
             "Skip the fits that predict cells they do not see (they take a minute)")},
      fields_of_logs(r.log));
}

std::vector<BoundField> fields(CalibrateRequest& r) {
  return together(
      {field("tables", &r.tables, "Read tables and fits from this TOML file", "the published ones"),
       field("file", &r.files,
             "Fit to measured times: a CSV of arlab bench, or a log of nccl-tests or rccl-tests")
           .one_by_one()
           .excludes("tables"),
       field("fit", &r.fit,
             "Run this fit of --tables, or fit this machine of --file, if there are several"),
       field("only", &r.only,
             "Fit only these constants, separated by commas; the others keep their values", "all"),
       field("out", &r.out, "Write machine files with the fitted constants into this folder")},
      fields_of_logs(r.log));
}

}  // namespace

void add_validate(CLI::App& app) {
  add_question(
      app, question<ValidateRequest>(
               "validate", "Compare the simulator with published or measured tables, cell by cell",
               &ValidateRequest::answer));
}

void add_calibrate(CLI::App& app) {
  add_question(app, question<CalibrateRequest>(
                        "calibrate", "Fit constants of machines to tables of measured times",
                        &CalibrateRequest::answer));
}

}  // namespace arlab::cli

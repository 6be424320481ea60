#include "experiments/cli/nccl_logs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>

#include "reference/codecs/registry.h"
#include "reference/error.h"
#include "reference/tensors/file.h"
#include "sim/calibration/bench_file.h"
#include "sim/calibration/fit.h"
#include "sim/calibration/machine_text.h"
#include "sim/library/library_plan.h"
#include "sim/topology/quantities.h"
#include "sim/uncertainty.h"

namespace arlab::cli {
namespace {

namespace fs = std::filesystem;
using lab::Cell;
using lab::Result;
using Json = nlohmann::ordered_json;

/// Whether the log's device has the words by which a model is told from others, those with a number, or else all but the maker:
/// H100 of NVIDIA H100 80GB HBM3. Cards for PCIe (PCIe, NVL) are other models.
bool is_model_of(const std::string& base_device, std::string logged) {
  std::ranges::replace(logged, '-', ' ');
  const std::vector<std::string> words = words_in(logged);
  const std::vector<std::string> of_base = words_in(base_device);
  const auto has_number = [](const std::string& word) {
    return word.find_first_of("0123456789") != std::string::npos && !word.ends_with("0GB");
  };
  const bool is_numbered = std::ranges::any_of(of_base, has_number);
  const auto tells = [&](const std::string& word) {
    return is_numbered ? has_number(word) : &word != &of_base.front();
  };
  const auto is_of_card = [](const std::string& word) {
    return word == "PCIe" || word == "PCIE" || word == "NVL";
  };
  return std::ranges::all_of(of_base,
                             [&](const std::string& word) {
                               return !tells(word) || std::ranges::count(words, word) > 0;
                             }) &&
         std::ranges::any_of(words, is_of_card) == std::ranges::any_of(of_base, is_of_card);
}

/// The machine that ships with this device: of those with enough ranks the smallest.
std::string shipped_for(const LoggedRun& run, const std::string& file) {
  std::map<Rank, std::vector<std::string>> candidates;
  for (const std::string& name : listed_topologies()) {
    const Topology each = find_topology(name);
    const bool has_servers = each.kind == TopologyKind::fat_tree;
    if (!run.device.empty() && is_model_of(each.device.name, run.device) && each.device.library &&
        !is_variant(name) && each.ranks.value >= run.ranks && has_servers == (run.hosts > 1)) {
      candidates[each.ranks.value].push_back(name);
    }
  }
  if (candidates.empty()) candidates[0] = {"one of arlab list topologies"};
  const auto& [ranks, names] = *candidates.begin();
  if (ranks > 0 && names.size() == 1) return names[0];
  fail("{}: --base must name the machine of its {} ranks, hosts: {}, devices '{}': {}", file,
       run.ranks, run.hosts, run.device, fmt::join(names, ", "));
}

/// Throws InvalidInput where the base cannot stand for the log's machine.
void require_base(const LoggedRun& run, const Topology& base, const std::string& file) {
  if (run.ranks > base.ranks.value) {
    fail("{}: the log is of {} ranks, {} has {}: --base must name a larger machine", file,
         run.ranks, base.name, base.ranks.value);
  }
  const bool has_servers = base.kind == TopologyKind::fat_tree;
  constexpr Rank kMostInServer = 8;
  // NVLink joins several hosts of a rack.
  const bool is_of_rack = base.kind == TopologyKind::graph || base.ranks.value > kMostInServer ||
                          base.device.name.find(" GB") != std::string::npos;
  if (run.hosts > 1 && !has_servers && !is_of_rack) {
    fail(
        "{}: the log is of {} hosts, {} is one server: --base must name servers behind a network, "
        "such as p5-2x8",
        file, run.hosts, base.name);
  }
  if (has_servers && run.hosts > 0 &&
      (run.ranks + base.group_size.value - 1) / base.group_size.value != run.hosts) {
    fail("{}: the log has {} ranks on {} hosts, {} has servers of {}", file, run.ranks, run.hosts,
         base.name, base.group_size.value);
  }
}

/// All logs as cells of one machine.
struct LogCells {
  std::string base;
  Measurements measurements;
  std::vector<std::optional<double>> in_place_us;  ///< by cell
  std::set<std::string> remarks;
  LeftOut left_out;
  std::set<std::string> libraries;
  std::set<std::string> files;  ///< their names
};

/// Names the run: the library's choice, or, in a log of arlab, the logged one. False where nothing here is called so.
bool name_what_ran(const LoggedRun& run, Measurement& cell) {
  cell.library = true;
  cell.algorithm = run.collective == Collective::all_reduce ? kOwnChoice : name_of(run.collective);
  cell.codec = name_of(cell.dtype);
  std::vector<std::string> words = words_in(run.experiment);
  const bool is_library = !words.empty() && words[0] == "library";
  if (is_library) words.erase(words.begin());
  if (words.size() < 2) return true;
  cell.library = is_library || words[0] == nvls_algorithm().name;
  cell.algorithm = words[0];
  cell.codec = words[1];
  if (is_library && cell.algorithm == kOwnChoice) return true;
  try {
    return find_codec(cell.codec)->takes(cell.dtype) &&
           !find_simulated_algorithm(cell.algorithm).name.empty();
  } catch (const InvalidInput&) {
    return false;
  }
}

void add_run(LogCells& cells, const LoggedRun& run, const std::string& name) {
  Measurements& all = cells.measurements;
  all.tables.push_back({fmt::format("{}: {}", name, name_of(run.collective)), name,
                        Source::measured, TableQuantity::latency_us});
  for (const LoggedTime& time : run.times) {
    Measurement cell{.table = all.tables.size() - 1, .row = std::to_string(time.bytes)};
    cell.topology = cells.base;
    cell.dtype = time.dtype;
    cell.bytes = time.bytes;
    cell.ranks = run.ranks;
    cell.value = time.out_of_place_us.value_or(time.in_place_us.value_or(0));
    cell.row_number = all.cells.size();
    if (!name_what_ran(run, cell)) {
      ++cells.left_out["of " + run.experiment];
      continue;
    }
    cell.column = cell.algorithm;
    if (!time.out_of_place_us)
      cells.remarks.insert("where a row has no time out of place, the one in place counts");
    cells.in_place_us.push_back(time.in_place_us);
    all.cells.push_back(std::move(cell));
  }
}

LogCells cells_of(const LogQuestion& question) {
  LogCells cells;
  cells.base = question.base;
  std::set<std::string> seen;
  for (const std::string& file : question.files) {
    if (!seen.insert(fs::weakly_canonical(file).string()).second)
      fail("--file {} is there twice: its rows would count twice", quote(file));
    const std::string name = *cells.files.insert(fs::path(file).filename().string()).first;
    const NcclLog log = parse_nccl_log(read_text_file(file, "log"), file, question.hints);
    for (const auto& [reason, rows] : log.left_out) cells.left_out[reason] += rows;
    cells.remarks.insert(log.remarks.begin(), log.remarks.end());
    for (const LoggedRun& run : log.runs) {
      if (cells.base.empty()) cells.base = shipped_for(run, file);
      const Topology base = find_topology(cells.base);
      require_base(run, base, file);
      if (!run.device.empty() && !is_model_of(base.device.name, run.device))
        cells.remarks.insert(fmt::format("the log's device is {}, that of {} {}", run.device,
                                         base.name, base.device.name));
      if (!run.library.empty()) cells.libraries.insert(run.library);
      add_run(cells, run, name);
    }
  }
  if (cells.measurements.cells.empty())
    fail("{}: nothing of it is simulated: {}", question.files.front(), in_words(cells.left_out));
  return cells;
}

Json rounded(double value) { return std::round(value * 1000) / 1000; }

Cell listed(const auto& texts) {
  return texts.empty() ? Cell() : Cell(fmt::format("{}", fmt::join(texts, "; ")));
}

/// The figures that both answers begin with.
std::vector<lab::Figure> figures_of(const LogCells& cells) {
  return {{"base", cells.base, "the machine that stands for the log's"},
          {"library", listed(cells.libraries), "that was measured"},
          {"cells", cells.measurements.cells.size(), "rows of the logs"},
          {"left_out", cells.left_out.empty() ? Cell() : Cell(in_words(cells.left_out)),
           "rows that are not simulated, and why"},
          {"remarks", listed(cells.remarks)}};
}

/// How far rows lie about the fit, one standard deviation: with the base's own scatter, which counts as a few rows more, since few
/// rows tell little, and wider for so few.
double scatter_of(double squares, std::size_t rows, std::size_t constants,
                  const std::optional<Uncertainty>& base) {
  constexpr double kUnknownPercent = 10;
  constexpr std::size_t kRowsOfBase = 4;
  const auto freedom = static_cast<double>(rows - constants + kRowsOfBase);
  const double of_base = (base ? base->scatter_percent : kUnknownPercent) / 100;
  // Student's t for 90 %, from 5 degrees of freedom on to 1 %.
  const double quantile = kIntervalSigmas + 1.6 / (freedom - 0.7);
  return std::sqrt((squares + kRowsOfBase * of_base * of_base) / freedom) * quantile /
         kIntervalSigmas;
}

/// Constants that logs may tell: of links and of the library, but for counts, limits and what it takes for its choice.
std::vector<std::string> candidates_of(const Topology& machine) {
  std::vector<std::string> keys;
  for (const NamedQuantity& each : quantities_of(machine)) {
    const bool is_link = each.key.ends_with(".bandwidth_gb_per_s");
    const bool is_library = each.key.starts_with("library.") || each.key.starts_with("switch.");
    const bool is_fixed = each.key.ends_with("_bytes") || each.key.ends_with(".channels") ||
                          each.key.find("expected_") != std::string::npos;
    const bool is_told =
        each.quantity.source == Source::published || each.quantity.source == Source::datasheet;
    if (each.quantity.value > 0 && !is_fixed && (is_link || (is_library && !is_told)))
      keys.push_back(each.key);
  }
  return keys;
}

/// Texts of files as a basic string of TOML takes them.
std::string without_quotes(std::string text) {
  std::ranges::replace_if(
      text,
      [](char c) {
        return c == '"' || c == '\\' || std::iscntrl(static_cast<unsigned char>(c)) != 0;
      },
      '\'');
  return text;
}

/// Constants that a fit says, and those that it leaves as the base has them.
struct LogFit {
  std::vector<FittedConstant> constants = {};
  std::vector<std::string> kept = {};  ///< with the reason
  Topology machine;
  std::vector<SimulatedCell> simulated;  ///< by the machine, with its own choices of the library
  bool is_settled = false;               ///< they are those that the fit was made with

  double squares() const {
    double sum = 0;
    for (const SimulatedCell& each : simulated)
      sum += std::pow(std::log1p(each.error_percent / 100), 2);
    return sum;
  }
};

/// Returns a fit of those constants that the cells determine; the reasons of the others go into `kept`.
FitResult fit_of_told(FitDefinition fit, const CellSimulator& simulator,
                      std::vector<std::string>& kept) {
  std::vector<std::size_t> all(simulator.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  FitResult fitted{.constants = {}, .machines = simulator.machines()};
  while (!fit.shared.empty()) {
    fitted = fit_constants(fit, simulator, all, false, 1);
    std::erase_if(fitted.constants, [&](const FittedConstant& each) {
      if (each.frozen.empty() && std::isfinite(each.sigma_percent)) return false;
      kept.push_back(
          fmt::format("{} ({})", each.key, each.frozen.empty() ? "a limit" : each.frozen));
      return true;
    });
    if (fitted.constants.size() == fit.shared.size()) {
      // Rows of one collective may fit as well with links that are much faster, and a library that is slower.
      constexpr double kVaguePercent = 20;
      const auto vaguest =
          std::ranges::max_element(fitted.constants, {}, &FittedConstant::sigma_percent);
      if (vaguest->sigma_percent < kVaguePercent) break;
      kept.push_back(fmt::format("{} (the rows tell it to {:.0f} % only)", vaguest->key,
                                 vaguest->sigma_percent));
      fitted.constants.erase(vaguest);
    }
    fit.shared.clear();
    for (const FittedConstant& each : fitted.constants) fit.shared.push_back(each.key);
  }
  return fitted;
}

/// From where the last fit ends, whose other constants stay.
LogFit fit_once(const LogCells& cells, const Topology& base, LogFit last) {
  const std::vector<Measurement>& rows = cells.measurements.cells;
  const CellSimulator simulator(cells.measurements, rows, {{cells.base, last.machine}});
  FitDefinition fit{.name = cells.base, .tables = {}, .shared = {}, .own = {}};
  const std::vector<std::string> candidates = candidates_of(base);
  fit.shared = telling_constants(simulator, candidates, std::max<std::size_t>(1, rows.size() / 3));
  LogFit result{.machine = last.machine, .simulated = {}};
  FitResult fitted = fit_of_told(fit, simulator, result.kept);
  result.constants = std::move(fitted.constants);
  if (!result.constants.empty()) result.machine = fitted.machines.at(cells.base);
  for (const FittedConstant& each : last.constants) {
    const auto again = std::ranges::find(result.constants, each.key, &FittedConstant::key);
    if (again == result.constants.end()) {
      result.constants.push_back(each);
    } else {
      again->start = each.start;
    }
  }
  for (const std::string& key : candidates) {
    const bool is_fitted = std::ranges::count(result.constants, key, &FittedConstant::key) > 0;
    if (!is_fitted && std::ranges::count(fit.shared, key) == 0) result.kept.push_back(key);
  }
  const CellSimulator again(cells.measurements, rows, {{cells.base, result.machine}});
  result.simulated = again.simulate_all(again.machines());
  result.is_settled = std::ranges::equal(result.simulated, simulator.simulate_all(again.machines()),
                                         {}, &SimulatedCell::simulated, &SimulatedCell::simulated);
  return result;
}

/// With other constants the library chooses other algorithms, which tell of other constants: the best of a few rounds.
LogFit fit_of_logs(const LogCells& cells, const Topology& base) {
  constexpr int kRounds = 5;
  LogFit best = fit_once(cells, base, {.machine = base, .simulated = {}});
  LogFit last = best;
  for (int round = 1; round < kRounds && !last.is_settled; ++round) {
    last = fit_once(cells, base, std::move(last));
    if (2 * last.constants.size() > cells.measurements.cells.size()) break;
    if (last.squares() < best.squares()) best = last;
  }
  return best;
}

/// Returns the uncertainties of a fit and its base together, with the larger scatter, since a fitted base's holds for kernels.
Uncertainty merged(const std::optional<Uncertainty>& base, const LogFit& fit,
                   double scatter_percent, const std::string& note) {
  const bool is_told = !fit.constants.empty() && fit.machine.uncertainty;
  Uncertainty logs = is_told ? *fit.machine.uncertainty : base.value_or(Uncertainty{});
  logs.note = note;
  for (const FittedConstant& each : fit.constants) {
    const auto place = std::ranges::find(logs.constants, each.key);
    const auto at = static_cast<std::size_t>(place - logs.constants.begin());
    if (place == logs.constants.end()) {  // found in an earlier round
      logs.correlation.emplace_back(at, 0.0);
      logs.constants.push_back(each.key);
      logs.sigma_percent.push_back(0);
    }
    logs.sigma_percent[at] = std::min(each.sigma_percent, kMostSigmaPercent);
  }
  Uncertainty result = base && is_told ? updated(*base, logs, true) : logs;
  result.scatter_percent = std::max(base ? base->scatter_percent : 0, scatter_percent);
  result.machines.push_back(fit.machine.name);
  return result;
}

/// The row that the fitted machine is farthest from.
std::string farthest_of(const LogCells& cells, const std::vector<SimulatedCell>& simulated) {
  const SimulatedCell& cell = *std::ranges::max_element(simulated, {}, [](const auto& each) {
    return std::abs(std::log1p(each.error_percent / 100));
  });
  const Measurement& row = cell.measurement;
  return fmt::format("{}, {} {} bytes: {:.4g} us measured, {:.4g} simulated",
                     cells.measurements.tables[row.table].name, name_of(row.dtype), row.bytes,
                     row.value, cell.simulated);
}

/// The machine as a file: what differs from its base.
std::string machine_file(const LogCells& cells, const LogFit& fit, const std::string& base,
                         const std::string& note) {
  const Topology& machine = fit.machine;
  std::string text = fmt::format(
      "# {}, with the library's constants of logs: {}.\n# As in {}, since the rows do not tell "
      "them: {}.\n\nbase = \"{}\"\nname = \"{}\"\nsummary = "
      "\"{}\"\n",
      cells.base, note, cells.base, fmt::join(fit.kept, ", "), base, machine.name, machine.summary);
  std::map<std::string, std::string> sections;
  for (const FittedConstant& each : fit.constants) {
    const std::size_t dot = each.key.rfind('.');
    sections[each.key.substr(0, dot)] += fmt::format(
        "{} = {{ value = {:.5g}, source = \"fitted\", note = \"{}; one standard deviation {:.1f} "
        "%\" }}\n",
        each.key.substr(dot + 1), each.value, note, each.sigma_percent);
  }
  for (const auto& [section, lines] : sections) text += fmt::format("\n[{}]\n{}", section, lines);
  return with_uncertainty(text + '\n', *machine.uncertainty);
}

}  // namespace

bool are_nccl_logs(const std::vector<std::string>& files) {
  std::size_t logs = 0;
  std::error_code error;
  for (const std::string& file : files) {
    if (fs::is_regular_file(file, error) && is_nccl_log(read_text_file(file, "log"))) ++logs;
  }
  if (logs > 0 && logs < files.size())
    fail("--file: some are logs of nccl-tests, others are not; one kind at a time");
  return logs > 0;
}

Result compare_logs(const LogQuestion& question) {
  const LogCells cells = cells_of(question);
  const CellSimulator simulator(cells.measurements, cells.measurements.cells);
  const Topology& machine = simulator.machines().at(cells.base);
  Result report{.schema = "arlab.validate.logs/1", .rows_name = "rows"};
  report.rows.columns = {"log",         "dtype",       "bytes",        "ranks",  "implementation",
                         "measured_us", "in_place_us", "simulated_us", "low_us", "high_us",
                         "ratio",       "inside",      "extrapolated"};
  report.shown = {"log",    "dtype",   "bytes", "measured_us", "simulated_us",
                  "low_us", "high_us", "ratio", "inside"};
  double bias = 0;
  std::size_t inside = 0;
  for (std::size_t i = 0; i < simulator.size(); ++i) {
    const Measurement& cell = simulator.cell(i);
    const double us = simulator.latency_us(i, machine);
    const std::vector<Extrapolation> beyond = extrapolations_elsewhere(machine, simulator.run(i));
    const std::vector<std::string> reasons = reasons_of(beyond);
    const auto [low, high] =
        interval_of(machine, simulator.run(i), us, beyond,
                    [&](const Topology& t) { return simulator.latency_us(i, t); });
    const bool is_inside = low <= cell.value && cell.value <= high;
    inside += is_inside ? 1 : 0;
    bias += std::log(us / cell.value) / static_cast<double>(simulator.size());
    report.rows.rows.push_back(
        {cells.measurements.tables[cell.table].name, name_of(cell.dtype), cell.bytes, cell.ranks,
         cell.library ? "library, " + simulator.run(i).algorithm
                      : fmt::format("{} {}", cell.algorithm, cell.codec),
         cell.value, cells.in_place_us[i], rounded(us), rounded(low), rounded(high),
         rounded(us / cell.value), is_inside, listed(reasons)});
  }
  const double off = summarize(simulator.simulate_all(simulator.machines())).mape_percent;
  const double share = 100 * static_cast<double>(inside) / static_cast<double>(simulator.size());
  report.figures = figures_of(cells);
  for (lab::Figure each : std::initializer_list<lab::Figure>{
           {"mape_percent", rounded(off), "mean absolute error of the simulated time"},
           {"bias_percent", rounded(100 * std::expm1(bias)),
            "mean of simulated / measured, less 1: above 0 the simulator is too slow"},
           {"in_interval_percent", rounded(share), "of the rows within their interval of 90 %"},
           {"provenance", "measured: the logs; simulated: arlab"}})
    report.figures.push_back(std::move(each));
  return report;
}

Result calibrate_to_logs(const LogQuestion& question, const std::string& out) {
  LogCells cells = cells_of(question);
  std::vector<Measurement>& rows = cells.measurements.cells;
  const std::size_t kernels =
      std::erase_if(rows, [](const Measurement& each) { return !each.library; });
  if (kernels > 0)
    cells.left_out["of arlab's kernels, which CSVs of arlab bench calibrate"] = kernels;
  if (rows.size() < 2)
    fail("{}: {} rows of the library tell no constant; at least 2 are needed",
         question.files.front(), rows.size());
  const CellSimulator simulator(cells.measurements, rows);
  const Topology& base = simulator.machines().at(cells.base);
  const ErrorSummary before = summarize(simulator.simulate_all(simulator.machines()));
  LogFit fit = fit_of_logs(cells, base);
  const ErrorSummary after = summarize(fit.simulated);
  const double scatter =
      scatter_of(fit.squares(), rows.size(), fit.constants.size(), base.uncertainty);
  // Their fit knows the rows alone.
  const double of_rows =
      fit.machine.uncertainty ? fit.machine.uncertainty->scatter_percent / 100 : scatter;
  for (FittedConstant& each : fit.constants)
    each.sigma_percent *= scatter / std::max(of_rows, 1e-6);

  const std::string files = without_quotes(fmt::format("{}", fmt::join(cells.files, ", ")));
  const std::string note = without_quotes(fmt::format(
      "{}{}{}, {} rows: arlab calibrate --file", files, cells.libraries.empty() ? "" : ", ",
      fmt::join(cells.libraries, ", "), rows.size()));
  fit.machine.name = fs::path(cells.base).stem().string() + "-logs";
  fit.machine.summary = without_quotes(fmt::format("{}, library as in {}", base.summary, files));
  fit.machine.uncertainty = merged(base.uncertainty, fit, 100 * scatter, note);
  std::string written;
  if (!out.empty()) {
    const bool is_file = cells.base.ends_with(".toml");
    const std::string named = is_file ? fs::relative(cells.base, out).string() : cells.base;
    written = (fs::path(out) / (fit.machine.name + ".toml")).string();
    write_file(written, machine_file(cells, fit, named, note));
  }

  Result report{.schema = "arlab.calibrate.logs/1", .rows_name = "constants"};
  report.figures = figures_of(cells);
  for (lab::Figure each : std::initializer_list<lab::Figure>{
           {"fitted_constants", fit.constants.size()},
           {"kept", listed(fit.kept), "constants that the rows do not tell: as in the base"},
           {"mape_percent_before", rounded(before.mape_percent),
            "mean absolute error with the base as it is"},
           {"mape_percent", rounded(after.mape_percent), "with the fitted constants"},
           {"farthest", farthest_of(cells, fit.simulated),
            "the row that the fit is farthest from: where no constant is told, it may be why"},
           {"scatter_percent", rounded(100 * scatter),
            "one standard deviation of the rows about the fit, with what the base says of its own: "
            "in the intervals"},
           {"machine", written.empty() ? Cell() : Cell(written),
            written.empty() ? "--out FOLDER writes it" : "for --topology"}})
    report.figures.push_back(std::move(each));
  report.rows.columns = {"constant", "start", "fitted", "sigma_percent"};
  for (const FittedConstant& each : fit.constants)
    report.rows.rows.push_back({each.key, each.start, each.value, rounded(each.sigma_percent)});
  lab::Table residuals{{"row", "column", "error_percent"}, {}};
  for (const SimulatedCell& each : fit.simulated) {
    residuals.rows.push_back(
        {each.measurement.row, each.measurement.column, rounded(each.error_percent)});
  }
  report.details = {{"residuals", to_json(residuals)}};
  return report;
}

}  // namespace arlab::cli

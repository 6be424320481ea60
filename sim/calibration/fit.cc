#include "sim/calibration/fit.h"

#include <ceres/ceres.h>
#include <ceres/normal_prior.h>
#include <fmt/ranges.h>

#include <Eigen/Core>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include "reference/codecs/registry.h"
#include "reference/collectives/algorithm.h"
#include "sim/library/library.h"
#include "sim/library/library_plan.h"
#include "sim/simulator.h"
#include "sim/topology/quantities.h"

namespace arlab {

// ---------------------------------------------------------------- cells

CellSimulator::CellSimulator(const Measurements& measurements, std::span<const Measurement> cells,
                             Machines machines)
    : cells_(cells.begin(), cells.end()), machines_(std::move(machines)) {
  for (const Measurement& cell : cells_) {
    if (!machines_.contains(cell.topology)) machines_[cell.topology] = find_topology(cell.topology);
    const Topology& machine = machines_.at(cell.topology);
    quantities_.push_back(measurements.tables[cell.table].quantity);
    commits_.push_back(measurements.tables[cell.table].commit);
    flows_.emplace_back();
    if (quantities_.back() == TableQuantity::copies_gb_per_s) {
      flows_.back() = flows_of(cell.row, machine.ranks.value);
      plans_.push_back(nullptr);
      continue;
    }
    const CodecPtr codec = find_codec(cell.codec);
    const ScheduleRequest request{.world_size = cell.ranks > 0 ? cell.ranks : machine.ranks.value,
                                  .elements = cell.bytes / size_of(cell.dtype),
                                  .alignment = codec->info().alignment};
    const Algorithm& algorithm = cell.library && cell.algorithm == kOwnChoice
                                     ? library_algorithm(request, *codec, cell.dtype, machine)
                                     : find_simulated_algorithm(cell.algorithm);
    plans_.push_back(std::make_shared<const Plan>(
        plan_of(algorithm, request, *codec, cell.dtype, machine, {.library = cell.library})));
  }
}

CollectiveRun CellSimulator::run(std::size_t index) const {
  if (plans_[index] == nullptr) {
    CollectiveRun flows;
    flows.ranks = machines_.at(cells_[index].topology).ranks.value;
    return flows;
  }
  const Plan& plan = *plans_[index];
  CollectiveRun run{.library = cells_[index].library,
                    .ranks = plan.world_size,
                    .bytes = cells_[index].bytes,
                    .algorithm = plan.algorithm,
                    .codecs = {plan.codec},
                    .dtype = plan.dtype};
  if (!plan.inner_codec.empty()) run.codecs.push_back(plan.inner_codec);
  return run;
}

double CellSimulator::latency_us(std::size_t index, const Topology& machine) const {
  if (plans_[index] == nullptr) {
    const std::vector<double> rates = flow_rates(machine, flows_[index], Mover::copies);
    const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
    return static_cast<double>(cells_[index].bytes) / (sum * 1e3);
  }
  return simulate({*plans_[index], machine, {.library = cells_[index].library}}).latency_us;
}

SimulatedCell CellSimulator::simulate_cell(std::size_t index, const Topology& machine) const {
  const Measurement& cell = cells_[index];
  const double us = latency_us(index, machine);
  const double bandwidth = static_cast<double>(cell.bytes) / (us * 1e3);
  const bool is_latency = quantities_[index] == TableQuantity::latency_us;
  const double ratio = is_latency ? us / cell.value : cell.value / bandwidth;
  return {cell, quantities_[index], is_latency ? us : bandwidth, 100 * (ratio - 1)};
}

std::vector<SimulatedCell> CellSimulator::simulate_all(const Machines& machines) const {
  std::vector<SimulatedCell> all;
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    all.push_back(simulate_cell(i, machines.at(cells_[i].topology)));
  }
  return all;
}

// ---------------------------------------------------------------- how good

ErrorSummary summarize(std::span<const SimulatedCell> cells) {
  ErrorSummary summary;
  summary.cells = cells.size();
  for (const SimulatedCell& cell : cells) {
    const double error = std::abs(cell.error_percent);
    summary.mape_percent += error / static_cast<double>(cells.size());
    if (error <= summary.max_ape_percent) continue;
    summary.max_ape_percent = error;
    summary.worst = fmt::format("{}, row {}, {}: {:+.1f} %", cell.measurement.topology,
                                cell.measurement.row, cell.measurement.column, cell.error_percent);
  }
  return summary;
}

double Ranking::right_percent() const {
  return rows == 0 ? 100 : 100 * static_cast<double>(right) / static_cast<double>(rows);
}

Ranking rank_codecs(std::span<const SimulatedCell> cells) {
  // The library is no codec, and other algorithms are other questions.
  using Key = std::tuple<std::size_t, std::size_t, std::string>;
  std::map<Key, std::vector<const SimulatedCell*>> rows;
  for (const SimulatedCell& cell : cells) {
    const Measurement& m = cell.measurement;
    if (!m.library) rows[{m.table, m.row_number, m.algorithm}].push_back(&cell);
  }
  Ranking ranking;
  for (const auto& [key, row] : rows) {
    if (row.size() < 2) continue;
    // Times, up to a factor that all of a row share.
    const auto measured = [](const SimulatedCell* c) {
      const double value = c->measurement.value;
      return c->quantity == TableQuantity::latency_us ? value : 1 / value;
    };
    const auto simulated = [&](const SimulatedCell* c) {
      return measured(c) * (1 + c->error_percent / 100);
    };
    const auto less = [](auto time) {
      return [time](const SimulatedCell* a, const SimulatedCell* b) { return time(a) < time(b); };
    };
    const SimulatedCell* fastest = *std::min_element(row.begin(), row.end(), less(measured));
    const SimulatedCell* picked = *std::min_element(row.begin(), row.end(), less(simulated));
    ++ranking.rows;
    if (measured(picked) <= 1.05 * measured(fastest)) ++ranking.right;
    if (picked == fastest) ++ranking.exact;
  }
  return ranking;
}

// ---------------------------------------------------------------- the fit

namespace {

/// Keys of what a codec's instructions take (CodecTimes) begin so, and go on with its name.
constexpr std::string_view kCodecs = "codecs.";

/// A free constant: where it stands in the machines that have it.
struct Free {
  std::string key;
  std::string topology;  ///< empty: of all
  double typical = 0;    ///< where no cell says otherwise; 0: nothing is known
  double start = 0;
  double shipped = 0;  ///< where the machines stand
  double least = kSmallestQuantity;
  double most = kLargestQuantity;
};

/// Ceres steps in proportion to the parameter, so parameters are kept around this value: one is
/// kCentre + log(constant / start).
constexpr double kCentre = 10;

double* find_quantity(Topology& topology, const std::string& wanted) {
  double* found = nullptr;
  for (CodecTimes& codec : topology.device.codecs) {
    if (wanted == fmt::format("{}{}.slots", kCodecs, codec.codec)) return &codec.slots;
    if (wanted == fmt::format("{}{}.cycles", kCodecs, codec.codec)) return &codec.cycles;
  }
  for_each_quantity(topology, [&](const std::string& key, Quantity& quantity) {
    if (key == wanted) found = &quantity.value;
  });
  return found;
}

std::vector<Free> free_constants(const FitDefinition& definition, Machines& machines) {
  std::vector<Free> all;
  const auto add = [&](const std::string& key, const std::string& topology, double start) {
    if (start <= 0) {
      fail("fit '{}': '{}' is 0, which no factor changes; give it a value", definition.name, key);
    }
    Free constant{.key = key, .topology = topology, .start = start, .shipped = start};
    if (key.ends_with("_overlap")) {
      constant.least = 1;
      constant.most = kLargestOverlap;
    }
    if (key.ends_with("efficiency")) constant.most = 1;
    if (key.starts_with(kCodecs)) {
      const std::string of_others =
          fmt::format("{}{}{}", kCodecs, kOperation, key.substr(key.rfind('.')));
      const double* typical = find_quantity(machines.begin()->second, of_others);
      if (typical != nullptr) constant.typical = *typical;
    }
    all.push_back(std::move(constant));
  };
  for (const std::string& key : definition.shared) {
    double* first = nullptr;
    for (auto& [name, machine] : machines) {
      double* quantity = find_quantity(machine, key);
      if (quantity == nullptr) {
        fail("fit '{}': {} has no quantity '{}'", definition.name, name, key);
      }
      if (first == nullptr) first = quantity;
      *quantity = *first;
    }
    if (first != nullptr) add(key, "", *first);
  }
  for (const std::string& key : definition.own) {
    bool any = false;
    for (auto& [name, machine] : machines) {
      const double* quantity = find_quantity(machine, key);
      if (quantity == nullptr) continue;
      any = true;
      add(key, name, *quantity);
    }
    if (!any) fail("fit '{}': no machine has a quantity '{}'", definition.name, key);
  }
  return all;
}

/// Machines whose free constants are set together.
class AdjustableMachines {
 public:
  AdjustableMachines(Machines machines, const std::vector<Free>& free)
      : machines_(std::move(machines)), free_(free) {
    for (const Free& constant : free_) {
      places_.emplace_back();
      for (auto& [name, machine] : machines_) {
        if (!constant.topology.empty() && constant.topology != name) continue;
        places_.back().push_back(find_quantity(machine, constant.key));
      }
    }
  }
  AdjustableMachines(const AdjustableMachines&) = delete;
  AdjustableMachines& operator=(const AdjustableMachines&) = delete;

  void set(const double* parameters) { set(0, free_.size(), parameters); }
  /// Sets `count` constants from the one at `first` on.
  void set(std::size_t first, std::size_t count, const double* parameters) {
    for (std::size_t i = first; i < first + count; ++i) {
      const double value = free_[i].start * std::exp(parameters[i - first] - kCentre);
      for (double* place : places_[i]) *place = std::clamp(value, free_[i].least, free_[i].most);
    }
  }
  const Machines& machines() const { return machines_; }

 private:
  Machines machines_;
  const std::vector<Free>& free_;
  std::vector<std::vector<double*>> places_;
};

/// Those that change any of the cells come first; returns how many they are.
std::size_t idle_last(std::vector<Free>& free, const Machines& machines,
                      const CellSimulator& simulator, std::span<const std::size_t> cells) {
  AdjustableMachines adjustable(machines, free);
  std::vector<double> parameters(free.size(), kCentre);
  const auto simulated = [&] {
    adjustable.set(parameters.data());
    std::vector<double> all;
    for (const std::size_t i : cells) {
      const Topology& machine = adjustable.machines().at(simulator.cell(i).topology);
      all.push_back(simulator.latency_us(i, machine));
    }
    return all;
  };
  const std::vector<double> before = simulated();
  std::vector<Free> needed;
  std::vector<Free> idle;
  for (std::size_t i = 0; i < free.size(); ++i) {
    parameters[i] = kCentre - 0.1;
    const bool lower = simulated() != before;
    parameters[i] = kCentre + 0.1;
    (lower || simulated() != before ? needed : idle).push_back(free[i]);
    parameters[i] = kCentre;
  }
  const std::size_t count = needed.size();
  needed.insert(needed.end(), idle.begin(), idle.end());
  free = std::move(needed);
  return count;
}

/// Returns those that the cells determine best, at most `most`, clearest first.
std::vector<std::size_t> telling(const std::vector<Free>& free, const Machines& machines,
                                 const CellSimulator& simulator, std::span<const std::size_t> cells,
                                 std::size_t most) {
  if (free.empty() || most == 0) return {};
  constexpr double kStep = 0.1;
  AdjustableMachines adjustable(machines, free);
  std::vector<double> parameters(free.size(), kCentre);
  const auto simulated = [&] {
    adjustable.set(parameters.data());
    Eigen::VectorXd logs(static_cast<Eigen::Index>(cells.size()));
    for (Eigen::Index row = 0; row < logs.size(); ++row) {
      const std::size_t i = cells[static_cast<std::size_t>(row)];
      const Topology& machine = adjustable.machines().at(simulator.cell(i).topology);
      logs[row] = std::log(simulator.latency_us(i, machine));
    }
    return logs;
  };
  const Eigen::VectorXd before = simulated();
  Eigen::MatrixXd elasticities(before.size(), static_cast<Eigen::Index>(free.size()));
  for (Eigen::Index i = 0; i < elasticities.cols(); ++i) {
    double& parameter = parameters[static_cast<std::size_t>(i)];
    parameter -= kStep;
    elasticities.col(i) = (before - simulated()) / kStep;
    parameter = kCentre;
  }
  const Eigen::ColPivHouseholderQR<Eigen::MatrixXd> qr(elasticities);
  std::vector<std::size_t> told;
  for (Eigen::Index i = 0; i < std::min(elasticities.rows(), elasticities.cols()); ++i) {
    constexpr double kNothing = 1e-3;
    if (told.size() == most || std::abs(qr.matrixQR()(i, i)) < kNothing) break;
    told.push_back(static_cast<std::size_t>(qr.colsPermutation().indices()[i]));
  }
  return told;
}

// ---- what is taken for a constant that the cells do not determine

/// Returns an estimate without measurements: NCCL's own assumption, a microsecond, a factor of 1, no round number of bytes.
std::optional<double> unmeasured_guess(const std::string& key) {
  static const Library nccl;
  if (key == "library.ll128.fixed_us") return nccl.expected_ll128_us.value;
  if (key.ends_with("_us")) return 1;
  if (key.ends_with("_cost") || key.ends_with("_turns")) return 1;
  if (key.ends_with("_overlap")) return 2;
  if (key.ends_with("_efficiency")) return 0.8;
  return std::nullopt;
}

struct Substitute {
  double value = 0;
  std::string from;
};

Substitute neutral_of(const Free& constant, const Neutral& neutral) {
  if (const auto named = neutral.values.find(constant.key); named != neutral.values.end()) {
    return {named->second, "the description's"};
  }
  std::vector<std::string> machines = neutral.machines;
  machines.emplace_back("full:2");  // the generic device
  for (const std::string& name : machines) {
    Topology machine = find_topology(name);
    const double* quantity = find_quantity(machine, constant.key);
    if (quantity != nullptr && *quantity > 0) return {*quantity, name + "'s"};
  }
  if (constant.typical > 0) return {constant.typical, "of codecs without times"};
  if (const auto guess = unmeasured_guess(constant.key)) return {*guess, "a guess"};
  return {constant.shipped, "as the machine file has it, which may know the held-out cells"};
}

/// Constants that the same cells depend on: those of a machine, or of a codec.
struct Group {
  std::string codec;  ///< empty: of machines
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Those of machines first, as fit_constants() puts them, then codec by codec.
std::vector<Group> groups_of(const std::vector<Free>& free) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < free.size(); ++i) {
    const std::string& key = free[i].key;
    std::string codec;
    if (key.starts_with(kCodecs)) {
      codec = key.substr(kCodecs.size(), key.rfind('.') - kCodecs.size());
      if (codec.ends_with(kInPrograms)) codec.resize(codec.size() - kInPrograms.size());
    }
    if (groups.empty() || groups.back().codec != codec) groups.push_back({codec, i, 0});
    ++groups.back().count;
  }
  return groups;
}

/// log(simulated / measured) of one cell.
class CellResidual {
 public:
  CellResidual(const CellSimulator& simulator, std::size_t index, AdjustableMachines& machines,
               std::vector<Group> groups)
      : simulator_(simulator), index_(index), machines_(machines), groups_(std::move(groups)) {}

  bool operator()(double const* const* parameters, double* residual) const {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      machines_.set(groups_[g].first, groups_[g].count, parameters[g]);
    }
    const Topology& machine = machines_.machines().at(simulator_.cell(index_).topology);
    try {
      residual[0] = std::log1p(simulator_.simulate_cell(index_, machine).error_percent / 100);
    } catch (const InvalidInput&) {
      return false;  // a step into constants with which nothing ends; Ceres takes a shorter one
    }
    return std::isfinite(residual[0]);
  }

 private:
  const CellSimulator& simulator_;
  std::size_t index_;
  AdjustableMachines& machines_;
  std::vector<Group> groups_;
};

constexpr double kLossScale = 0.05;
/// Prior: a codec's instruction costs lie within a factor of e of other codecs', counted like a cell.
constexpr double kPriorWeight = 0.03;

/// A problem of its own for every start, since Ceres owns what it is given.
std::unique_ptr<ceres::Problem> make_problem(const CellSimulator& simulator,
                                             std::span<const std::size_t> cells,
                                             AdjustableMachines& machines,
                                             const std::vector<Free>& free,
                                             std::vector<double>& parameters, bool robust) {
  auto problem = std::make_unique<ceres::Problem>();
  ceres::NumericDiffOptions steps;
  steps.relative_step_size = 1e-4;
  const std::vector<Group> groups = groups_of(free);
  for (const std::size_t index : cells) {
    using Cost = ceres::DynamicNumericDiffCostFunction<CellResidual, ceres::FORWARD>;
    std::vector<Group> concerned;
    std::vector<double*> blocks;
    for (const Group& group : groups) {
      if (!group.codec.empty() && group.codec != simulator.cell(index).codec) continue;
      concerned.push_back(group);
      blocks.push_back(&parameters[group.first]);
    }
    if (blocks.empty()) continue;  // no constant that is fitted changes it
    auto cost = std::make_unique<Cost>(new CellResidual(simulator, index, machines, concerned),
                                       ceres::TAKE_OWNERSHIP, steps);
    for (const Group& group : concerned) cost->AddParameterBlock(static_cast<int>(group.count));
    cost->SetNumResiduals(1);
    problem->AddResidualBlock(cost.release(),
                              robust ? new ceres::SoftLOneLoss(kLossScale) : nullptr, blocks);
  }
  for (const Group& group : groups) {
    double* block = &parameters[group.first];
    ceres::Matrix prior =
        ceres::Matrix::Zero(static_cast<int>(group.count), static_cast<int>(group.count));
    ceres::Vector typical = ceres::Vector::Zero(static_cast<int>(group.count));
    for (std::size_t i = 0; i < group.count; ++i) {
      const Free& constant = free[group.first + i];
      const auto at = static_cast<int>(i);
      problem->SetParameterLowerBound(block, at,
                                      kCentre + std::log(constant.least / constant.start));
      problem->SetParameterUpperBound(block, at,
                                      kCentre + std::log(constant.most / constant.start));
      if (constant.typical <= 0) continue;
      prior(at, at) = kPriorWeight;
      typical[at] = kCentre + std::log(constant.typical / constant.start);
    }
    if (!group.codec.empty()) {
      problem->AddResidualBlock(new ceres::NormalPrior(prior, typical), nullptr, block);
    }
  }
  return problem;
}

/// Spread of the parameters by the curvature at the optimum.
struct Spread {
  Eigen::MatrixXd covariance;  ///< NaN where the cells do not determine them
  double scatter = 0;          ///< standard deviation of the residuals
};

Spread spread_of(ceres::Problem& problem, const std::vector<Group>& groups,
                 std::vector<double>& parameters, std::size_t cells) {
  const std::size_t n = parameters.size();
  const auto size = static_cast<Eigen::Index>(n);
  Spread result{Eigen::MatrixXd::Constant(size, size, std::nan(""))};
  if (cells <= n) return result;
  double cost = 0;
  problem.Evaluate({}, &cost, nullptr, nullptr, nullptr);
  ceres::Covariance::Options options;
  options.algorithm_type = ceres::DENSE_SVD;
  options.null_space_rank = -1;
  ceres::Covariance covariance(options);
  std::vector<std::pair<const double*, const double*>> blocks;
  for (const Group& group : groups) {
    const double* block = &parameters[group.first];
    blocks.emplace_back(block, block);
  }
  if (!covariance.Compute(blocks, &problem)) return result;
  result.covariance.setZero();
  for (const Group& group : groups) {
    const double* block = &parameters[group.first];
    const auto count = static_cast<Eigen::Index>(group.count);
    const auto first = static_cast<Eigen::Index>(group.first);
    ceres::Matrix own(count, count);
    covariance.GetCovarianceBlock(block, block, own.data());
    result.covariance.block(first, first, count, count) = own;
  }
  // Simulated times are whole picoseconds, so that a fit may have no residual at all. A spread of 0 would be that of a
  // constant that no cell depends on.
  constexpr double kLeastVariance = 1e-18;
  const double variance = std::max(kLeastVariance, 2 * cost / static_cast<double>(cells - n));
  result.covariance *= variance;
  result.scatter = std::sqrt(variance);
  return result;
}

struct Solution {
  std::vector<double> parameters;
  double cost = std::numeric_limits<double>::infinity();
  bool converged = false;
};

/// From where the machines stand and from `starts` - 1 points around; the best end.
Solution solve(const CellSimulator& simulator, std::span<const std::size_t> cells,
               AdjustableMachines& machines, const std::vector<Free>& free, unsigned starts) {
  std::mt19937_64 random(1);
  Solution best{.parameters = std::vector<double>(free.size(), kCentre)};
  for (unsigned start = 0; start < std::max(1u, starts); ++start) {
    std::vector<double> parameters(free.size(), kCentre);
    if (start > 0) {
      for (std::size_t i = 0; i < free.size(); ++i) {
        const double away = 0.5 * (static_cast<double>(random() >> 11) * 0x1p-53 - 0.5);
        parameters[i] =
            std::clamp(kCentre + away, kCentre + std::log(free[i].least / free[i].start),
                       kCentre + std::log(free[i].most / free[i].start));
      }
    }
    const auto problem = make_problem(simulator, cells, machines, free, parameters, true);
    ceres::Solver::Options options;
    options.linear_solver_type = ceres::DENSE_QR;
    options.max_num_iterations = 80;
    options.function_tolerance = 1e-5;
    options.logging_type = ceres::SILENT;
    // The cubic default asks for all derivatives at every step, of which each is a simulation.
    options.line_search_interpolation_type = ceres::QUADRATIC;
    ceres::Solver::Summary summary;
    ceres::Solve(options, problem.get(), &summary);
    if (!summary.IsSolutionUsable() || summary.final_cost >= best.cost) continue;
    best = {parameters, summary.final_cost, summary.termination_type == ceres::CONVERGENCE};
  }
  return best;
}

// ---- where the library changes its protocol: a step, of which no derivative says anything

constexpr const char* kThreshold = "library.low_latency_max_bytes";

void set_threshold(Machines& machines, double bytes) {
  for (auto& [name, machine] : machines) *find_quantity(machine, kThreshold) = bytes;
}

/// Returns the measured payload per rank up to which LL explains the library's times best, or the machines' own threshold when
/// none explains them better; the constants of the library and the links are fitted anew for each.
double fitted_threshold(const std::vector<Free>& free, Machines machines,
                        const CellSimulator& simulator, std::span<const std::size_t> cells) {
  std::vector<std::size_t> of_library;
  std::set<double> candidates;
  for (const std::size_t i : cells) {
    const Measurement& cell = simulator.cell(i);
    if (!cell.library) continue;
    of_library.push_back(i);
    candidates.insert(static_cast<double>(cell.bytes) / machines.at(cell.topology).ranks.value);
  }
  std::vector<Free> constants;
  for (const Free& constant : free) {
    if (constant.key.starts_with("library.") || constant.key.ends_with(".bandwidth_gb_per_s")) {
      constants.push_back(constant);
    }
  }
  const auto cost_with = [&](double bytes) {
    set_threshold(machines, bytes);
    std::vector<Free> needed = constants;
    needed.resize(idle_last(needed, machines, simulator, of_library));
    AdjustableMachines adjustable(machines, needed);
    return solve(simulator, of_library, adjustable, needed, 1).cost;
  };
  double best = *find_quantity(machines.begin()->second, kThreshold);
  if (of_library.empty()) return best;
  double best_cost = cost_with(best);
  for (const double bytes : candidates) {
    // Neighbours between which nothing was measured differ by what the solver leaves over; as
    // little as 4 % in one cell says nothing either.
    constexpr double kNothing = 0.04 * 0.04 / 2;
    const double cost = cost_with(bytes);
    if (cost > best_cost - kNothing) continue;
    best_cost = cost;
    best = bytes;
  }
  return best;
}

double sigma_of(const Spread& spread, std::size_t constant) {
  const auto at = static_cast<Eigen::Index>(constant);
  return std::sqrt(spread.covariance(at, at));
}

/// Constants of which the cells say too little, the least known first. Codecs' are held by what is
/// typical of them.
std::vector<std::size_t> undetermined(const std::vector<Free>& free, const Spread& spread) {
  std::vector<std::pair<double, std::size_t>> weak;
  for (std::size_t i = 0; i < free.size(); ++i) {
    if (free[i].key.starts_with(kCodecs)) continue;
    const bool is_at_limit = free[i].start <= free[i].least || free[i].start >= free[i].most;
    double sigma = sigma_of(spread, i);
    if (std::isnan(sigma) && !is_at_limit) continue;  // too few cells to say anything
    // Along directions that no cell sees the inverse of the curvature is taken for 0.
    if (is_at_limit || sigma == 0) sigma = std::numeric_limits<double>::infinity();
    if (100 * sigma > kMostSigmaPercent) weak.emplace_back(-sigma, i);
  }
  std::ranges::sort(weak);
  std::vector<std::size_t> constants;
  for (const auto& [sigma, constant] : weak) constants.push_back(constant);
  return constants;
}

/// Returns the uncertainty of one machine's constants.
std::optional<Uncertainty> uncertainty_of(const std::vector<Free>& free,
                                          const std::vector<std::size_t>& determined,
                                          const Spread& spread, const std::string& machine) {
  if (determined.empty()) return std::nullopt;
  Uncertainty result{.scatter_percent = 100 * spread.scatter,
                     .note = "fit",
                     .constants = {},
                     .sigma_percent = {},
                     .correlation = {}};
  std::vector<Eigen::Index> own;
  for (const std::size_t i : determined) {
    if (!free[i].topology.empty() && free[i].topology != machine) continue;
    own.push_back(static_cast<Eigen::Index>(i));
    result.constants.push_back(free[i].key);
  }
  const Eigen::MatrixXd covariance = spread.covariance(own, own);
  const Eigen::VectorXd sigma = covariance.diagonal().cwiseSqrt();
  for (Eigen::Index i = 0; i < sigma.size(); ++i) {
    result.sigma_percent.push_back(100 * sigma[i]);
    result.correlation.emplace_back();
    for (Eigen::Index j = 0; j < i; ++j) {
      const double correlation = covariance(i, j) / (sigma[i] * sigma[j]);
      result.correlation.back().push_back(std::clamp(correlation, -1.0, 1.0));
    }
  }
  return result;
}

/// A constant that no cell of the fit depends on: a run that does is known no better than it is.
void add_unknown(Uncertainty& known, const std::string& key) {
  if (key.starts_with(kCodecs)) return;
  known.correlation.emplace_back(known.constants.size(), 0.0);
  known.constants.push_back(key);
  known.sigma_percent.push_back(kMostSigmaPercent);
}

/// Names of machines with the device of this one, which is among them.
std::vector<std::string> fitted_machines(const CellSimulator& simulator,
                                         std::span<const std::size_t> cells,
                                         const Topology& machine) {
  std::set<std::string> names = {machine.name};
  for (const std::size_t i : cells) {
    const Topology& other = simulator.machines().at(simulator.cell(i).topology);
    if (other.device.name == machine.device.name) names.insert(other.name);
  }
  return {names.begin(), names.end()};
}

/// Returns the range of the cells of machines with this device.
std::optional<FittedTo> fitted_to(const CellSimulator& simulator,
                                  std::span<const std::size_t> cells, const std::string& device,
                                  bool library) {
  std::optional<FittedTo> seen;
  std::set<Rank> ranks;
  std::set<std::string> algorithms;
  std::set<std::string> codecs;
  std::set<DType> dtypes;
  for (const std::size_t i : cells) {
    const CollectiveRun run = simulator.run(i);
    const Topology& machine = simulator.machines().at(simulator.cell(i).topology);
    if (run.library != library || machine.device.name != device) continue;
    if (!seen) seen = FittedTo{.device = device, .least_bytes = run.bytes};
    ranks.insert(run.ranks);
    algorithms.insert(run.algorithm);
    if (run.dtype) dtypes.insert(*run.dtype);
    if (!library) {
      codecs.insert(run.codecs.begin(), run.codecs.end());
      seen->commit = simulator.commit(i);
    }
    seen->least_bytes = std::min(seen->least_bytes, run.bytes);
    seen->most_bytes = std::max(seen->most_bytes, run.bytes);
  }
  if (!seen) return seen;
  seen->ranks.assign(ranks.begin(), ranks.end());
  seen->algorithms.assign(algorithms.begin(), algorithms.end());
  seen->codecs.assign(codecs.begin(), codecs.end());
  seen->dtypes.assign(dtypes.begin(), dtypes.end());
  return seen;
}

}  // namespace

Uncertainty updated(Uncertainty known, const Uncertainty& of_some, bool of_all) {
  // A fit of a few constants says nothing of what the others were fitted to.
  if (of_some.kernels && (of_all || !known.kernels)) known.kernels = of_some.kernels;
  if (of_some.library && (of_all || !known.library)) known.library = of_some.library;
  std::vector<std::size_t> places;
  for (const std::string& key : of_some.constants) {
    const auto place = std::ranges::find(known.constants, key);
    const std::size_t at = places.emplace_back(place - known.constants.begin());
    if (place != known.constants.end()) continue;
    known.constants.push_back(key);
    known.sigma_percent.push_back(0);
    known.correlation.emplace_back(at, 0.0);
  }
  // How these go with those that were held nothing says.
  for (std::size_t row = 0; row < known.correlation.size(); ++row) {
    for (std::size_t column = 0; column < row; ++column) {
      if (std::ranges::count(places, row) + std::ranges::count(places, column) > 0)
        known.correlation[row][column] = 0;
    }
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    known.sigma_percent[places[i]] = of_some.sigma_percent[i];
    for (std::size_t j = 0; j < i; ++j) {
      const auto [less, more] = std::minmax(places[i], places[j]);
      known.correlation[more][less] = of_some.correlation[i][j];
    }
  }
  const std::string addition =
      fmt::format("; {}: {}", fmt::join(of_some.constants, ", "), of_some.note);
  if (!known.note.ends_with(addition)) known.note += addition;
  return known;
}

std::vector<std::string> telling_constants(const CellSimulator& simulator,
                                           const std::vector<std::string>& keys, std::size_t most) {
  Machines machines = simulator.machines();
  std::vector<Free> free;
  for (const std::string& key : keys) {
    free.push_back({.key = key, .topology = {}});
    free.back().start = *find_quantity(machines.begin()->second, key);
  }
  std::vector<std::size_t> cells(simulator.size());
  std::iota(cells.begin(), cells.end(), 0);
  std::vector<std::string> names;
  for (const std::size_t i : telling(free, machines, simulator, cells, most)) {
    names.push_back(keys[i]);
  }
  return names;
}

FitResult fit_constants(const FitDefinition& definition, const CellSimulator& simulator,
                        std::span<const std::size_t> cells, bool neutral, unsigned starts) {
  Machines machines = simulator.machines();
  std::vector<Free> free = free_constants(definition, machines);
  FitResult result;
  const auto freeze = [&](const Free& constant, double value, const std::string& why) {
    for (auto& [name, machine] : machines) {
      if (!constant.topology.empty() && constant.topology != name) continue;
      *find_quantity(machine, constant.key) = value;
    }
    result.constants.push_back(
        {constant.key, constant.topology, constant.shipped, value, std::nan(""), why});
  };
  const auto threshold = std::ranges::find(free, kThreshold, &Free::key);
  if (threshold != free.end()) {
    const double start = threshold->start;
    if (neutral) set_threshold(machines, neutral_of(*threshold, definition.neutral).value);
    free.erase(threshold);
    const double bytes = fitted_threshold(free, machines, simulator, cells);
    set_threshold(machines, bytes);
    result.constants.push_back({kThreshold, "", start, bytes, std::nan("")});
  }
  std::ranges::stable_partition(free,
                                [](const Free& each) { return !each.key.starts_with(kCodecs); });
  const std::size_t needed = idle_last(free, machines, simulator, cells);
  std::vector<Free> idle;
  const auto leave = [&](std::size_t i, const std::string& why) {
    const Free& each = idle.emplace_back(free[i]);
    const Substitute other =
        neutral ? neutral_of(each, definition.neutral) : Substitute{each.shipped, "left as it was"};
    freeze(each, other.value, fmt::format("{}: {}", why, other.from));
  };
  for (std::size_t i = needed; i < free.size(); ++i) leave(i, "no cell depends on it");
  free.resize(needed);
  // A spread needs one cell more than there are constants, and the same cell again says nothing new.
  std::set<double> different;
  for (const std::size_t i : cells) {
    different.insert(simulator.latency_us(i, machines.at(simulator.cell(i).topology)));
  }
  if (needed > 0 && needed >= different.size()) {
    const auto told = telling(free, machines, simulator, cells, different.size() - 1);
    for (std::size_t i = needed; i-- > 0;) {
      if (std::ranges::count(told, i) > 0) continue;
      leave(i, "no cell is left to tell it");
      free.erase(free.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  Solution best;
  Spread spread;
  for (bool is_first = true;; is_first = false) {
    AdjustableMachines adjustable(machines, free);
    best = solve(simulator, cells, adjustable, free, is_first ? starts : 1);
    const auto problem = make_problem(simulator, cells, adjustable, free, best.parameters, false);
    spread = spread_of(*problem, groups_of(free), best.parameters, cells.size());
    adjustable.set(best.parameters.data());
    machines = adjustable.machines();
    for (std::size_t i = 0; i < free.size(); ++i) {
      free[i].start = std::clamp(free[i].start * std::exp(best.parameters[i] - kCentre),
                                 free[i].least, free[i].most);
    }
    const std::vector<std::size_t> weak = undetermined(free, spread);
    if (weak.empty()) break;
    if (neutral && is_first) {
      // Little moves them away from where they begin, which may not be what held-out cells have said.
      for (const std::size_t i : weak) {
        free[i].start =
            std::clamp(neutral_of(free[i], definition.neutral).value, free[i].least, free[i].most);
      }
      continue;
    }
    const Free constant = free[weak.front()];
    const double sigma = sigma_of(spread, weak.front());
    const bool is_at_limit = constant.start <= constant.least || constant.start >= constant.most;
    free.erase(free.begin() + static_cast<std::ptrdiff_t>(weak.front()));
    freeze(constant, constant.start,
           is_at_limit                         ? "at its bound"
           : sigma > 0 && std::isfinite(sigma) ? fmt::format("sigma {:.0f} %", 100 * sigma)
                                               : "the cells do not tell it");
  }
  result.converged = best.converged && !free.empty();
  std::vector<std::size_t> determined;
  for (std::size_t i = 0; i < free.size(); ++i) {
    const double sigma = sigma_of(spread, i);
    result.constants.push_back(
        {free[i].key, free[i].topology, free[i].shipped, free[i].start, 100 * sigma});
    const bool is_of_a_codec = free[i].key.starts_with(kCodecs);  // in the scatter
    if (sigma > 0 && !is_of_a_codec) determined.push_back(i);
  }
  result.machines = std::move(machines);
  if (cells.empty() && !definition.neutral.machines.empty()) {
    // All that is known of it is known of the other machine.
    const std::string& other = definition.neutral.machines.front();
    for (auto& [name, machine] : result.machines) {
      machine.uncertainty = find_topology(other).uncertainty;
    }
    return result;
  }
  for (auto& [name, machine] : result.machines) {
    machine.uncertainty = uncertainty_of(free, determined, spread, name);
    if (!machine.uncertainty) continue;
    machine.uncertainty->machines = fitted_machines(simulator, cells, machine);
    for (const Free& each : idle) {
      if (each.topology.empty() || each.topology == name)
        add_unknown(*machine.uncertainty, each.key);
    }
    const std::string& device = machine.device.name;
    machine.uncertainty->kernels = fitted_to(simulator, cells, device, false);
    machine.uncertainty->library = fitted_to(simulator, cells, device, true);
  }
  return result;
}

}  // namespace arlab

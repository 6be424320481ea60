// Fits the free constants of machines to tables, and says how good the simulator is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/calibration/measurements.h"
#include "sim/flows.h"
#include "sim/plan.h"
#include "sim/topology/topology.h"
#include "sim/uncertainty.h"

namespace arlab {

/// Machines by name.
using Machines = std::map<std::string, Topology>;

/// A cell beside what the simulator says of it.
struct SimulatedCell {
  Measurement measurement;
  TableQuantity quantity = TableQuantity::latency_us;
  double simulated = 0;  ///< in the quantity of the table
  /// simulated / measured - 1, of the latency, in percent; positive: the simulator is too slow.
  double error_percent = 0;
};

/// Simulates cells again and again on machines whose constants change. Schedules are written and
/// planned once.
class CellSimulator {
 public:
  /// Loads the machines that the cells name (find_topology), but for those that are given.
  CellSimulator(const Measurements& measurements, std::span<const Measurement> cells,
                Machines machines = {});

  const Machines& machines() const { return machines_; }
  std::size_t size() const { return cells_.size(); }
  const Measurement& cell(std::size_t index) const { return cells_[index]; }
  /// As MeasurementTable has it.
  const std::string& commit(std::size_t index) const { return commits_[index]; }
  /// As sim/uncertainty.h asks for it.
  CollectiveRun run(std::size_t index) const;

  /// The latency of a cell on a machine that differs from machines() in quantities only.
  double latency_us(std::size_t index, const Topology& machine) const;
  SimulatedCell simulate_cell(std::size_t index, const Topology& machine) const;
  std::vector<SimulatedCell> simulate_all(const Machines& machines) const;

 private:
  std::vector<Measurement> cells_;
  std::vector<TableQuantity> quantities_;  ///< by cell
  std::vector<std::string> commits_;
  std::vector<std::vector<Flow>> flows_;  ///< flows of cells that measure these
  std::vector<std::shared_ptr<const Plan>> plans_;
  Machines machines_;
};

/// Over some cells.
struct ErrorSummary {
  std::size_t cells = 0;
  double mape_percent = 0;     ///< mean absolute percentage error of the latency
  double max_ape_percent = 0;  ///< largest
  std::string worst;           ///< where, in words
};
ErrorSummary summarize(std::span<const SimulatedCell> cells);

/// Whether the simulator picks codecs right: of all rows with several codecs that run the same
/// algorithm on the same machine, those whose simulated best is within 5 % of the truly fastest.
struct Ranking {
  std::size_t rows = 0;
  std::size_t right = 0;  ///< within 5 %
  std::size_t exact = 0;  ///< the fastest itself
  double right_percent() const;
};
Ranking rank_codecs(std::span<const SimulatedCell> cells);

struct FittedConstant {
  std::string key;
  std::string topology;  ///< empty: of all machines of the fit
  double start = 0;
  double value = 0;
  double sigma_percent = 0;  ///< one standard deviation, from the curvature at the end
  std::string frozen = {};   ///< why it was not fitted; empty where the cells determine it
};

struct FitResult {
  std::vector<FittedConstant> constants;
  Machines
      machines;  ///< with the fitted constants, what is known of them, and what they were fitted to
  bool converged = false;
};

/// Returns a machine file's uncertainty, updated by a fit of only some constants; `of_all`: kernels and library were fitted,
/// too.
Uncertainty updated(Uncertainty known, const Uncertainty& of_some, bool of_all);

/// Returns the constants that the cells determine best, at most `most`, clearest first: a few cells cannot tell many apart. All
/// cells are of one machine.
std::vector<std::string> telling_constants(const CellSimulator& simulator,
                                           const std::vector<std::string>& keys, std::size_t most);

/// Known to no better than this, a constant is frozen: the cells do not determine it.
inline constexpr double kMostSigmaPercent = 50;

/// Least squares of the logarithm of the latency, with a loss that is linear far out (beyond 5 %); deterministic. Starts are
/// the machines' own values and a few points around. `cells` selects cells of `simulator` to fit to. Constants that they do not
/// determine are frozen, the least known first, and the others fitted again. Those that no cell depends on, or that no cell is
/// left to tell, are frozen before the fit. Those at a bound or with a sigma above kMostSigmaPercent are frozen where the fit
/// has left them. With `neutral` both begin at a value from cells that are not held out; else at the machines' values. Throws
/// InvalidInput when a key names no quantity.
FitResult fit_constants(const FitDefinition& definition, const CellSimulator& simulator,
                        std::span<const std::size_t> cells, bool neutral = false,
                        unsigned starts = 3);

}  // namespace arlab

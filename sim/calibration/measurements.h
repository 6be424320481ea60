// Tables of published or measured times, and what their cells mean. The file format is documented
// in sim/calibration/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "reference/codecs/codec.h"
#include "sim/topology/sourced.h"

namespace arlab {

/// Quantity of a table: the time of a collective, or payload bytes / time, or the joint rate of flows between ranks by copy
/// engines (flows.h).
enum class TableQuantity : std::uint8_t { latency_us, algbw_gb_per_s, copies_gb_per_s };
inline constexpr TableQuantity kTableQuantities[] = {
    TableQuantity::latency_us, TableQuantity::algbw_gb_per_s, TableQuantity::copies_gb_per_s};
std::string_view name_of(TableQuantity quantity);

/// Measurement::algorithm where NCCL takes the all-reduce that it chooses.
inline constexpr std::string_view kOwnChoice = "all_reduce";

/// One number of a table and the run that it was taken from.
struct Measurement {
  std::size_t table = 0;       ///< index into Measurements::tables
  std::size_t row_number = 0;  ///< counted from 0
  std::string row = {};        ///< first cell of the row; of flows, which they are
  std::string column = {};
  std::string topology = {};
  std::string algorithm = {};
  std::string codec = {};
  bool library = false;  ///< the vendor's library, not a kernel with a codec
  DType dtype = DType::fp16;
  std::uint64_t bytes = 0;  ///< payload of one rank
  double value = 0;         ///< in the quantity of the table
  Rank ranks = 0;           ///< uses the topology's first so many; 0: all
};

struct MeasurementTable {
  std::string name;
  std::string file;
  Source source = Source::published;
  TableQuantity quantity = TableQuantity::latency_us;
  std::string commit = {};  ///< the measured kernels' commit, where the file says it
};

/// Rows of a table: all, every second (1, 3, ... or 0, 2, ...), or the last or first third, which are
/// the largest and smallest sizes where rows are sizes.
enum class HeldRows : std::uint8_t { all, odd, even, largest_third, smallest_third };

/// Cells that a fit does not see; empty lists take all.
struct HoldOut {
  std::string name;
  std::vector<std::string> tables = {};
  std::vector<std::string> ignored = {};  ///< tables that are neither fitted to nor predicted
  std::vector<std::string> columns = {};
  HeldRows rows = HeldRows::all;
};

/// Value for a constant on which a hold-out's cells say nothing, since the machine's own value was fitted to the cells that are
/// held out.
struct Neutral {
  std::map<std::string, double> values = {};  ///< by key
  std::vector<std::string> machines = {};     ///< else of the first that has it
};

/// Constants of machines that are fitted to tables.
struct FitDefinition {
  std::string name;
  std::vector<std::string> tables;
  std::vector<std::string> shared;  ///< keys with one value for all machines of the tables
  std::vector<std::string> own;     ///< keys with a value for every machine that has them
  std::uint32_t chosen =
      0;  ///< further numbers of the machines that were chosen with these tables in view
  Neutral neutral = {};
  std::vector<HoldOut> hold_outs = {};
};

struct Measurements {
  std::vector<MeasurementTable> tables;
  std::vector<Measurement> cells;
  std::vector<FitDefinition> fits;

  bool holds_out(const HoldOut& hold_out, const Measurement& cell) const;
  bool ignores(const HoldOut& hold_out, const Measurement& cell) const;
  /// Throws InvalidInput with the known names.
  const FitDefinition& fit(const std::string& name) const;
  std::vector<Measurement> cells_of(const FitDefinition& fit) const;
};

/// Reads a description and the CSV files that it names, beside it. Throws InvalidInput with file,
/// key or line, and what is allowed.
Measurements read_measurements(const std::filesystem::path& path);

}  // namespace arlab

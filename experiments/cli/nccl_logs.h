// Times of your own machine, from logs of nccl-tests and rccl-tests, beside the simulator; and a machine file with the library's
// constants fitted to them.
#pragma once

#include <string>
#include <vector>

#include "experiments/lab/result.h"
#include "sim/calibration/nccl_log.h"

namespace arlab::cli {

struct LogQuestion {
  std::vector<std::string> files;
  std::string base;  ///< topology; empty: the one that ships with the log's device and ranks
  LogHints hints;
};

/// Whether the files are logs, not CSVs of arlab bench. Throws InvalidInput where some are.
bool are_nccl_logs(const std::vector<std::string>& files);

/// Every row of the logs: measured, simulated with its interval, the ratio.
lab::Result compare_logs(const LogQuestion& question);

/// Fits what the rows tell of the library and the links, and writes OUT/BASE-logs.toml; with an empty `out`, nothing.
lab::Result calibrate_to_logs(const LogQuestion& question, const std::string& out);

}  // namespace arlab::cli

// Logs of nccl-tests and rccl-tests: the text of all versions, however a launcher has prefixed its lines; the JSON of -J; and
// rccl-tests' own JSON and CSV (-Z json, -Z csv). Facts that a log leaves out (older ones name no collective, cut ones no
// ranks) follow from its columns where only one answer fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "reference/collectives/schedule.h"
#include "reference/dtype.h"

namespace arlab {

struct LoggedTime {
  DType dtype = DType::fp32;
  std::uint64_t bytes = 0;                     ///< tensor of a rank: the column "size"
  std::optional<double> out_of_place_us = {};  ///< nothing where the log has none
  std::optional<double> in_place_us = {};
};

/// One run of a program.
struct LoggedRun {
  Collective collective = Collective::all_reduce;
  Rank ranks = 0;
  std::size_t hosts = 0;     ///< different ones that the log names; 0: it names none
  std::string device = {};   ///< the first rank's; empty: the log does not say
  std::string library = {};  ///< such as "NCCL 2.30.7"
  /// The experiment that arlab has measured or simulated, in arlab's own logs: "two_shot qr-q4".
  std::string experiment = {};
  std::vector<LoggedTime> times = {};
};

using LeftOut = std::map<std::string, std::size_t>;  ///< rows, by the reason
std::string in_words(const LeftOut& left_out);

struct NcclLog {
  std::vector<LoggedRun> runs;
  LeftOut left_out;
  std::set<std::string> remarks;  ///< reasons why times differ from those of single calls
};

/// Facts that a log may leave open.
struct LogHints {
  std::string collective = {};  ///< such as all_reduce
  std::optional<Rank> ranks = {};
};

/// Whether the text is a log, in part at least.
bool is_nccl_log(std::string_view text);

/// Throws InvalidInput with `origin` and the line: for a log without a row that arlab simulates; for columns that contradict
/// each other; where more than one collective or number of ranks fits.
NcclLog parse_nccl_log(std::string_view text, const std::string& origin,
                       const LogHints& hints = {});

}  // namespace arlab

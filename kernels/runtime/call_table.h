// Which algorithm and codec calls take, by collective, dtype and size: a table that a program reads when it starts, so that nobody
// has to change it. `arlab select --table` writes one. As TOML:
//
//     [[rule]]
//     collective = "all_reduce"
//     dtype = "bf16"              # all that the codec takes, where it is left out
//     from_bytes = 1048576        # of a rank's payload, included; 0 where it is left out
//     to_bytes = 67108864         # not included; no end where it is left out
//     algorithm = "two_shot"      # or "library": not ours
//     codec = "qr-q4"             # values travel as they are, where it is left out
//
// and what else is a key is an option of the algorithm (group_size, inner_codec), or a `note`. What no rule takes travels as it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/collectives/algorithm.h"
#include "reference/dtype.h"

namespace arlab::kernels {

/// Instead of an algorithm: the vendor's library makes the call, where there is one; else values travel as they are.
inline constexpr std::string_view kByLibrary = "library";

struct TableRule {
  Collective collective = Collective::all_reduce;
  std::optional<DType> dtype = {};  ///< the payload's; where it is not set all that the codec takes
  std::uint64_t from_bytes = 0;     ///< a rank's payload, included
  std::uint64_t to_bytes = UINT64_MAX;  ///< not included; UINT64_MAX: no end
  std::string algorithm;
  std::string codec = {};  ///< empty: values as they are
  AlgorithmOptions options = {};
  std::string note = {};
  std::string origin = {};  ///< where it stands: "table.toml, line 7"
};

/// Rules that neither overlap nor leave a gap between them.
class CallTable {
 public:
  CallTable() = default;
  /// Throws InvalidInput, which names the rules.
  explicit CallTable(std::vector<TableRule> rules);

  // All throw InvalidInput, in one line that says where in `origin`, or in the file.

  /// TOML.
  static CallTable parse(std::string_view text, std::string_view origin);
  /// Parses all-reduces' rules in words: "16K-1M:one_shot/bf16,1M-:two_shot/qr-q4".
  static CallTable parse_words(std::string_view words, std::string_view origin);
  static CallTable read(const std::string& path);
  /// The file ARLAB_TABLE and the words ARLAB_ALL_REDUCE; empty where neither is set.
  static CallTable from_environment();

  const std::vector<TableRule>& rules() const { return rules_; }

  /// The rule that takes a call; null where none does.
  const TableRule* find(Collective collective, DType dtype, std::uint64_t bytes) const;

  /// Which rule that is, or that there is none, in a line for people.
  std::string explain(Collective collective, DType dtype, std::uint64_t bytes) const;

 private:
  std::vector<TableRule> rules_;
  std::vector<std::vector<bool>> takes_;  ///< by rule, by dtype
};

/// The algorithm of calls that no rule takes.
std::string_view usual_algorithm(Collective collective);

/// As parse() reads it.
std::string to_toml(const CallTable& table);

}  // namespace arlab::kernels

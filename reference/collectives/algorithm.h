// Algorithms by name: functions that write a Schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/collectives/schedule.h"

namespace arlab {

/// How a reducing rank adds its own contribution: through encode and decode like everybody else's
/// (QuickReduce's way), or exactly. With `exact` ranks may reduce differently; see ranks_identical.
/// In collectives that add nothing: how a rank keeps what it has itself, in `all_to_all` and
/// `all_gather` a slot, in `broadcast` rank 0's tensor.
enum class OwnContribution { encoded, exact };

/// What the all-gather of `ring` forwards: the owner's bytes unchanged, or decoded and encoded
/// again.
enum class Forward { unchanged, reencoded };

/// Whether `all_to_all` ends where slots arrive, or encodes them again there and sends them back
/// (Collective::dispatch_combine).
enum class Combine { none, quantized };

/// An option that is not set takes the algorithm's documented default.
struct AlgorithmOptions {
  std::optional<OwnContribution> own = {};
  std::optional<Forward> forward = {};
  std::optional<Combine> combine = {};
  std::optional<Rank> group_size = {};             ///< ranks per group, must divide the world size
  std::optional<std::uint32_t> micro_chunks = {};  ///< 1 to 4096
  /// Name of the codec of messages that stay inside a group, or of what `all_to_all` sends back;
  /// who runs the schedule looks it up. Not set: the codec of all others, and no op is marked.
  std::optional<std::string> inner_codec = {};

  bool operator==(const AlgorithmOptions&) const = default;
};

/// A schedule of more than kMaxOps ops was asked for.
class TooManyOps : public InvalidInput {
 public:
  using InvalidInput::InvalidInput;
};

/// How much a schedule holds.
struct ScheduleSize {
  std::size_t ops = 0;
  std::size_t addends = 0;
  std::size_t outputs = 0;
};

struct ScheduleRequest {
  Rank world_size = 1;
  std::uint64_t elements = 1;   ///< per rank
  std::uint64_t alignment = 1;  ///< of the codecs; see Schedule::alignment
  AlgorithmOptions options = {};
  /// Writes only what concerns this rank: its ops and outputs, and the sends to it, whose operands
  /// are kElsewhere. Such a part can be looked at and timed, not checked or run; that of a rank
  /// among tens of thousands is small where the whole would not fit into memory.
  std::optional<Rank> only_rank = {};
  /// Asks how much the schedule would hold: it is set, and the schedule stays empty. What is too
  /// large is refused then, before there is memory for it.
  ScheduleSize* only_size = nullptr;
  /// What only_size has said, if it was asked for.
  ScheduleSize expected = {};
};

/// Under which shifts of the ranks a schedule looks the same but for the names of chunks and the
/// order of sums, so that all ranks need the same time on a fabric that these shifts do not change.
struct RankSymmetry {
  enum Kind : std::uint8_t {
    none,
    any,      ///< any permutation
    cyclic,   ///< r -> r + k modulo the world size
    grouped,  ///< shifts of the groups, and of the members inside all groups
  };
  Kind kind = none;
  Rank group_size = 1;  ///< grouped
};

struct AlgorithmOption {
  /// As on the command line: own, forward, combine, group-size, micro-chunks,
  /// inner-codec.
  std::string name;
  std::string default_value;  ///< in words
};

struct Algorithm {
  std::string name;
  std::string summary;
  std::string source;
  Collective collective = Collective::all_reduce;  ///< with default options
  std::vector<AlgorithmOption> options;
  std::function<Schedule(const ScheduleRequest&)> write;
  /// Null: none is known. Throws as `write` does.
  std::function<RankSymmetry(const ScheduleRequest&)> symmetry = {};
};

/// Whether a name is the path of a schedule: it ends with .json (schedule.schema.json) or with .xml
/// (of MSCCL, msccl_xml.h).
bool is_schedule_file(std::string_view algorithm);

/// Throws InvalidInput with the known names when there is none of that name. A schedule file without
/// elements is an algorithm for tensors of any size, for its number of ranks. It is read again when
/// it has changed.
const Algorithm& find_algorithm(std::string_view name);

/// All algorithms, in the order of the registry; last those that were registered.
/// They stay where they are for as long as the program runs.
std::vector<std::reference_wrapper<const Algorithm>> all_algorithms();

/// Makes an algorithm known at run time, in place of the one that was made known so under its name.
/// Its schedules are proved by check() before they are used. Throws InvalidInput for the name of an
/// algorithm that is built in, and for one that is no name. Thread-safe; who has found the old one
/// still has it.
void register_algorithm(Algorithm algorithm);

/// The schedule of an algorithm, checked. Throws InvalidInput for a request out of range and for an
/// option that the algorithm does not have (group-size excepted: it also defines volume classes).
Schedule make_schedule(std::string_view algorithm, const ScheduleRequest& request);

/// The role of messages that inner_codec is for.
CodecRole inner_role(const AlgorithmOptions& options);

/// Default of group-size: the fewest groups of equal size, at least two (8 ranks: 2 groups of 4).
Rank default_group_size(Rank world_size);

}  // namespace arlab

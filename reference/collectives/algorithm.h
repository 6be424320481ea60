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
#include "reference/field.h"

namespace arlab {

/// Options of an algorithm that are set, by their names; one that is not takes the algorithm's default.
/// Which there are, the algorithms say (Algorithm::options), and nobody else needs to know, but for two:
struct AlgorithmOptions : FieldValues {
  using FieldValues::FieldValues;

  /// Ranks per group; divides the world size. Machines have groups, too.
  std::optional<Rank> group_size() const;
  /// Name of the codec of messages that stay inside a group, or of what `all_to_all` sends back, or of the messages that
  /// inner_place() says; who runs the schedule looks it up. Not set: the codec of all others, and no op is marked.
  std::optional<std::string> inner_codec() const;
  /// The text before the codec's name and a colon, as in "ag:fp16" (place_inner_codec()); any algorithm has such places.
  std::optional<std::string> inner_place() const;
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
  std::uint64_t alignment = 1;  ///< the codecs' need; see Schedule::alignment
  AlgorithmOptions options = {};
  /// Writes only what concerns this rank: its ops and outputs, and the sends to it, whose operands
  /// are kElsewhere. Such a part can be looked at and timed, not checked or run; that of a rank
  /// among tens of thousands is small where the whole would not fit into memory.
  std::optional<Rank> only_rank = {};
  /// Asks how much the schedule would hold: it is set, and the schedule stays empty. What is too
  /// large is refused then, before there is memory for it.
  ScheduleSize* only_size = nullptr;
  /// The size that only_size has said, if it was asked for.
  ScheduleSize expected = {};
};

/// Shifts of the ranks under which a schedule looks the same but for the names of chunks and the
/// order of sums. All ranks need the same time on a fabric that these shifts do not change.
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

struct Algorithm {
  std::string name;
  std::string summary;
  std::string source;
  Collective collective = Collective::all_reduce;  ///< with default options
  std::vector<Field> options;                      ///< those read with integer_of() and text_of()
  std::function<Schedule(const ScheduleRequest&)> write;
  /// Null: none is known. Throws as `write` does.
  std::function<RankSymmetry(const ScheduleRequest&)> symmetry = {};

  /// nullptr: it has none of this name.
  const Field* option(std::string_view named) const;
};

// Options of several algorithms.

/// How a reducing rank adds its own contribution: through encode and decode like everybody else's
/// (QuickReduce's way), or exactly; then ranks may reduce differently, see ranks_identical. In
/// collectives that add nothing: how a rank keeps what it has itself, in `all_to_all` and
/// `all_gather` a slot, in `broadcast` rank 0's tensor.
Field own_option(std::string_view otherwise);
Field group_size_option();
Field inner_codec_option();

/// The options of all algorithms, each name once, with help that says whose it is and what the defaults are.
std::vector<Field> all_options();

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
/// option that the algorithm does not have (group_size excepted: it also defines volume classes).
Schedule make_schedule(std::string_view algorithm, const ScheduleRequest& request);

/// The role of messages that inner_codec is for.
CodecRole inner_role(const AlgorithmOptions& options);

/// Default of group_size: the fewest groups of equal size, at least two (8 ranks: 2 groups of 4).
Rank default_group_size(Rank world_size);

}  // namespace arlab

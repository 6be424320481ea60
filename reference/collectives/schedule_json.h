// A Schedule as JSON, so that an algorithm can be read by a person and written without C++.
// The format is described by schedule.schema.json beside this file.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/collectives/schedule.h"

namespace arlab {

inline constexpr const char* kScheduleSchema = "arlab.schedule/1";

nlohmann::ordered_json schedule_to_json(const Schedule& schedule);

/// Whether chunks are written as elements, or as fractions of the tensor: for tensors of any size.
enum class ChunksAs { elements, fractions };

/// The text of that, indented by one, with the members of `more` at its end: piece by piece, since
/// as a document millions of ops would take gigabytes.
void write_schedule_json(const Schedule& schedule, const nlohmann::ordered_json& more,
                         const std::function<void(std::string_view)>& write,
                         ChunksAs chunks = ChunksAs::elements);

/// A schedule as a file has it: of one size, or, where its chunks are fractions of the tensor, of
/// any.
class WrittenSchedule {
 public:
  struct Fraction {
    std::uint64_t numerator = 0;
    std::uint64_t denominator = 1;
  };

  WrittenSchedule() = default;
  /// A schedule for tensors of any size: `chunks` take the place of the schedule's, which are
  /// empty, `begins` that of its outputs.
  WrittenSchedule(Schedule schedule, std::vector<std::pair<Fraction, Fraction>> chunks,
                  std::vector<Fraction> begins)
      : schedule_(std::move(schedule)), fractions_(std::move(chunks)), begins_(std::move(begins)) {}

  bool has_size() const { return fractions_.empty(); }
  /// The schedule as the file has it: without chunks, elements and alignment if it has no size.
  const Schedule& as_written() const { return schedule_; }

  /// The schedule for tensors of `elements` per rank. A fraction p/q stands for ceil(units p / q)
  /// units of `alignment` elements, out of those that the tensor has (where it has slots: that the
  /// slot has); chunks without elements are left out, with what is done to them. Throws
  /// InvalidInput when the schedule has another size, or the tensor no equal slots.
  Schedule at(std::uint64_t elements, std::uint64_t alignment) const;

 private:
  friend WrittenSchedule written_schedule_from_json(std::string_view text);

  std::uint64_t boundary(const Fraction& fraction, std::uint64_t elements,
                         std::uint64_t alignment) const;

  Schedule schedule_;
  std::vector<std::pair<Fraction, Fraction>> fractions_;  // chunks'
  std::vector<Fraction> begins_;                          // outputs'
};

/// Reads JSON text, also an execution plan of MSCCL++ (mscclpp_plan.h). Throws InvalidInput that names the place (`ops[3].rank`) and what is allowed
/// there: for text that is not JSON, nests deeper than a schedule does, has a key twice or an
/// unknown one, lacks one, or has a value of another type. Whether the result is correct is for
/// check() to say.
WrittenSchedule written_schedule_from_json(std::string_view text);

/// The same where only a schedule that has a size is allowed.
Schedule schedule_from_json(std::string_view text);

/// Reads a file: JSON, or the XML of an algorithm of MSCCL (msccl_xml.h). Throws InvalidInput with
/// its name, also when it cannot be read.
WrittenSchedule read_schedule(const std::string& path);

}  // namespace arlab

// What is an algorithm's schedule, or what is wrong with somebody's own?

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/lab/bits/collective.h"
#include "experiments/lab/bits/tailed.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/sizes.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/codecs.h"
#include "reference/collectives/executor.h"
#include "reference/collectives/schedule_json.h"

namespace arlab::lab {
namespace {

const std::vector<std::string> kOpColumns = {"value", "step",  "op",  "rank",
                                             "to",    "begin", "end", "from"};
constexpr std::size_t kKindColumn = 2;
constexpr std::size_t kFromColumn = 7;

std::string value_text(ValueId id) { return id == kOwnInput ? "input" : fmt::format("{}", id); }

/// Calls visit(cells) for every op, one after the other: all of a large schedule would take
/// gigabytes.
template <class Visit>
void for_each_row(const Schedule& s, Visit visit) {
  for (ValueId id = 0; id < s.ops.size(); ++id) {
    const Op& op = s.ops[id];
    std::string from;
    for (const ValueId operand : s.operands(op)) {
      if (!from.empty()) from += op.kind == OpKind::reduce ? " + " : " ";
      from += value_text(operand);
    }
    if (op.kind == OpKind::reduce && op.start == Start::zero) from.insert(0, "0 + ");
    std::string kind = op.kind == OpKind::encode ? "encode"
                       : op.kind == OpKind::send ? "send"
                                                 : "reduce";
    if (op.kind == OpKind::encode && op.codec != CodecRole::outer) {
      kind += fmt::format(" {}", name_of(op.codec));
    }
    if (op.kind == OpKind::tail) kind = name_of(op.makes);
    const bool sends = op.kind == OpKind::send;
    visit(std::vector<std::string>{
        std::to_string(id), std::to_string(op.step), kind, std::to_string(op.rank),
        sends ? std::to_string(op.peer) : std::string(), std::to_string(s.chunks[op.chunk].begin),
        std::to_string(s.chunks[op.chunk].end), std::move(from)});
  }
}

void write_csv(const Schedule& s, const Write& write) {
  write(fmt::format("{}\n", fmt::join(kOpColumns, ",")));
  for_each_row(s, [&](const std::vector<std::string>& cells) {
    write(fmt::format("{}\n", fmt::join(cells, ",")));
  });
}

/// As render_text() would, without the rows in memory.
void write_table(const Schedule& s, const Write& write) {
  std::vector<std::size_t> width;
  for (const std::string& column : kOpColumns) width.push_back(column.size());
  for_each_row(s, [&](const std::vector<std::string>& cells) {
    for (std::size_t c = 0; c < cells.size(); ++c) width[c] = std::max(width[c], cells[c].size());
  });
  const auto write_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (c > 0) line += "  ";
      const bool is_number = c != kKindColumn && c != kFromColumn;
      line += is_number ? fmt::format("{:>{}}", cells[c], width[c])
                        : fmt::format("{:<{}}", cells[c], width[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    write(line + '\n');
  };
  write_line(kOpColumns);
  std::vector<std::string> rule;
  for (const std::size_t w : width) rule.emplace_back(w, '-');
  write_line(rule);
  for_each_row(s, [&](std::vector<std::string> cells) {
    if (cells[4].empty()) cells[4] = "-";
    write_line(cells);
  });
}

struct ScheduleRequestOf {
  CollectiveSpec options;
  std::optional<std::uint32_t> ranks;
  std::string elements;
  std::string codec;
  TailPlaceOptions tail;
  std::string alignment;
  bool fractions = false;

  void settle() { codec = split_codecs(codec, options.options); }

  Result answer(Format format) const {
    if (fractions && format != Format::json) fail("--fractions: allowed with --format json");
    if (options.schedule_file.empty() && options.algorithm.empty()) {
      fail("name the --algorithm (see arlab list algorithms) or a --schedule file to check");
    }
    if (options.schedule_file.empty()) {
      if (!ranks) fail("--algorithm needs --ranks, from 1 to {}", kMaxWorldSize);
      if (elements.empty()) fail("--algorithm needs --elements, the count per rank");
      const std::uint64_t count = parse_count(elements, "--elements");
      const ScheduleRequest asked = options.request(*ranks, count, chosen_alignment());
      Schedule made = fractions ? marked_schedule(options.algorithm, asked)
                                : make_schedule(options.algorithm, asked);
      const CodecPtr outer = codec.empty() ? nullptr : find_codec(codec);
      std::vector<Figure> of_tail;
      if (const auto t = tail.parse()) {
        const Schedule alone = std::exchange(made, with_tail(made, *t, tail.placement()));
        if (outer != nullptr) of_tail = bytes_of(alone, made, outer, find_output_codec(*t));
      }
      if (outer != nullptr && outer->info().shares_scales && adds(made.collective)) {
        made.agreement = "one_shot";
      }
      return result_of(std::move(made), of_tail);
    }
    options.require_no_algorithm_options();
    const WrittenSchedule written = read_schedule(options.schedule_file);
    Schedule s = written.as_written();
    if (written.has_size()) {
      if (ranks || !elements.empty() || !codec.empty() || !alignment.empty() || tail.is_set() ||
          !options.inner_codec().empty()) {
        fail(
            "--ranks, --elements, --codec, --inner-codec, --alignment and --tail belong to "
            "--algorithm; {} has its own",
            options.schedule_file);
      }
    } else {
      if (ranks) fail("--ranks belongs to --algorithm; {} has its own", options.schedule_file);
      if (elements.empty()) {
        fail("{} is for tensors of any size: name the --elements", options.schedule_file);
      }
      if (tail.is_set()) fail("--tail belongs to --algorithm");
      s = written.at(parse_count(elements, "--elements"), chosen_alignment());
    }
    if (const CheckReport result = check(s); !result.correct) {
      Result wrong;
      wrong.verdict = fmt::format("{}: not {}: {}", options.schedule_file, words_for(s.collective),
                                  result.violation);
      return wrong;
    }
    return result_of(std::move(s));
  }

  /// Counts 16-bit values, if the codec takes these.
  std::vector<Figure> bytes_of(const Schedule& alone, const Schedule& tailed, const CodecPtr& outer,
                               const CodecPtr& output) const {
    const CodecPtr inner = options.inner(outer);
    const DType dtype = default_dtype(*outer, {inner.get(), output.get()});
    const Codecs codecs(*outer, *inner, output ? *output : *outer);
    const CodecPtr plain = find_codec(name_of(dtype));
    return {
        {"wire_bytes", Cell(wire_volume(tailed, codecs, dtype).bytes), "all sends of all ranks"},
        {"wire_bytes_of_sum", Cell(wire_volume(alone, codecs, dtype).bytes),
         "the same of the all-reduce alone"},
        {"wire_bytes_of_plain", Cell(wire_volume(alone, *plain, dtype).bytes),
         fmt::format("the same as {}, as it is", name_of(dtype))}};
  }

  std::uint64_t chosen_alignment() const {
    const std::optional<Tail> t = tail.parse();
    const std::uint64_t row = t ? t->hidden : 1;
    if (!alignment.empty()) {
      const std::uint64_t asked = parse_count(alignment, "--alignment");
      if (asked % row != 0) fail("--alignment {}: allowed are whole rows of {}", asked, row);
      return asked;
    }
    const CodecPtr outer = codec.empty() ? nullptr : find_codec(codec);
    const CodecPtr inner = options.inner(outer);
    const CodecPtr last = t ? find_output_codec(*t) : nullptr;
    if (!outer && !inner && !last) return row;
    const CodecPtr any = outer ? outer : inner ? inner : last;
    return Codecs(*any, inner ? *inner : *any, last ? *last : *any).alignment(row);
  }

  Result result_of(Schedule of, const std::vector<Figure>& of_tail = {}) const {
    const auto schedule = std::make_shared<const Schedule>(std::move(of));
    const Schedule& s = *schedule;
    const Rank group_size = options.volume_group_size(s.world_size);
    const Volume volume = volume_of(s, group_size);
    const CheckReport checked = check(s);
    const bool alike = ends_alike(s.collective);
    const Json ranks_identical = alike ? Json(checked.ranks_identical) : Json(nullptr);
    Result result{
        "arlab.schedule/1",
        {{"algorithm", s.algorithm},
         {"collective", std::string(name_of(s.collective))},
         {"ranks", s.world_size},
         {"elements", s.elements, "per rank"},
         {"alignment", s.alignment,
          has_slots(s.collective) ? "chunk boundaries are multiples within a slot"
                                  : "chunk boundaries are multiples"},
         {"chunks", s.chunks.size()},
         {"steps", s.ops.empty() ? 0 : std::uint64_t{s.ops.back().step} + 1},
         {"messages", volume.messages},
         {"volume_total", volume.total, "payloads of one rank"},
         {"volume_cross_group", volume.cross_group,
          fmt::format("payloads, one direction, between groups of {}", group_size)},
         {"correct", checked.correct, fmt::format("proved: {}", facts_of(s.collective).proved)},
         {"ranks_identical", ranks_identical,
          !alike                    ? "not applicable: ranks end with different data"
          : checked.ranks_identical ? "proved: all ranks compute the same expression"
                                    : checked.divergence}}};
    if (s.row != 0) {
      result.figures.push_back({"row", s.row, "elements; proved: each is whole, and of all ranks"});
    }
    std::ranges::copy(of_tail, std::back_inserter(result.figures));
    if (!s.agreement.empty()) {
      result.figures.push_back({"agreement", s.agreement,
                                "by which ranks agree on scales that they share, before step 0"});
    }
    const Json more = {{"group_size", group_size},
                       {"volume",
                        {{"total", volume.total},
                         {"cross_group", volume.cross_group},
                         {"total_elements", volume.total_elements},
                         {"cross_group_elements", volume.cross_group_elements},
                         {"messages", volume.messages}}},
                       {"check",
                        {{"correct", checked.correct},
                         {"violation", checked.violation},
                         {"ranks_identical", ranks_identical},
                         {"divergence", checked.divergence}}}};
    Json about = more;
    for (const Figure& each : of_tail) about["volume"][each.name] = each.value;
    result.written = [schedule, about, figures = result, as_fractions = fractions](
                         Format format, const Page& page, const Write& write) {
      if (format == Format::csv) return write_csv(*schedule, write);
      if (format == Format::json) {
        write_schedule_json(*schedule, about, write,
                            as_fractions ? ChunksAs::fractions : ChunksAs::elements);
        return write("\n");
      }
      write(render(figures, format, page) + "\n");
      write_table(*schedule, write);
    };
    return result;
  }
};

std::vector<BoundField> fields(ScheduleRequestOf& c) {
  return together(
      fields(c.options), fields(c.tail),
      {field("ranks", &c.ranks, "Set the world size").from(1, kMaxWorldSize),
       field("elements", &c.elements, "Set the elements per rank (64K, 1M)"),
       field("codec", &c.codec, "Align chunks for this codec", "alignment 1"),
       field("alignment", &c.alignment, "Cut chunks at multiples of N elements", "1")
           .excludes("codec"),
       field("fractions", &c.fractions,
             "Write chunks as fractions of the tensor: JSON for tensors of any size, which every "
             "command takes as --algorithm FILE.json")});
}

}  // namespace

Question schedule_question() {
  Question asked = question<ScheduleRequestOf>(
      "schedule", "Write an algorithm's schedule, or check one from a file",
      &ScheduleRequestOf::answer);
  asked.usual = Format::json;
  return asked;
}

}  // namespace arlab::lab

// arlab schedule: an algorithm's schedule as JSON, or what is wrong with somebody's own.

#include <nlohmann/json.hpp>

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/schedule_json.h"

namespace arlab::cli {
namespace {

using Json = nlohmann::ordered_json;

Json value_text(ValueId id) {
  return id == kOwnInput ? Json("input") : Json(fmt::format("{}", id));
}

Table ops_table(const Schedule& s) {
  Table table{{"value", "step", "op", "rank", "to", "begin", "end", "from"}, {}};
  for (ValueId id = 0; id < s.ops.size(); ++id) {
    const Op& op = s.ops[id];
    std::string from;
    for (const ValueId operand : s.operands(op)) {
      if (!from.empty()) from += op.kind == OpKind::reduce ? " + " : " ";
      from += value_text(operand).get<std::string>();
    }
    if (op.kind == OpKind::reduce && op.start == Start::zero) from.insert(0, "0 + ");
    const char* kind = op.kind == OpKind::encode ? "encode"
                       : op.kind == OpKind::send ? "send"
                                                 : "reduce";
    table.rows.push_back({id, op.step, kind, op.rank,
                          op.kind == OpKind::send ? Json(op.peer) : Json(nullptr),
                          s.chunks[op.chunk].begin, s.chunks[op.chunk].end, from});
  }
  return table;
}

/// What check() proves of a correct schedule, in words.
const char* proof_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "proved: every rank's contribution exactly once, everywhere";
    case Collective::all_to_all:
      return "proved: slot i of rank j is slot j of rank i, everywhere";
    case Collective::dispatch_combine:
      return "proved: every slot comes back from the rank that it is for, encoded again there";
    case Collective::reduce_scatter:
      return "proved: every rank's contribution exactly once in slot i of rank i, else its input";
    case Collective::all_gather:
      return "proved: slot i of rank i, everywhere";
    case Collective::broadcast:
      return "proved: the tensor of rank 0, everywhere";
  }
  return "";
}

struct ScheduleCommand {
  ScheduleOptions options;
  std::optional<std::uint32_t> ranks;
  std::string elements;
  std::string codec;
  std::string alignment;
  Format format = Format::json;

  void run() const {
    if (options.file.empty() && options.algorithm.empty()) {
      fail("name the --algorithm (see arlab list algorithms) or a --schedule file to check");
    }
    Schedule s;
    if (!options.file.empty()) {
      if (ranks || !elements.empty() || !codec.empty() || !alignment.empty()) {
        fail(
            "--ranks, --elements, --codec and --alignment belong to --algorithm; {} says them "
            "itself",
            options.file);
      }
      options.require_no_algorithm_options();
      s = read_schedule(options.file);
      if (const CheckReport result = check(s); !result.correct) {
        throw CheckFailed(
            fmt::format("{}: not {}: {}", options.file, words_for(s.collective), result.violation));
      }
    } else {
      if (!ranks) fail("--algorithm needs --ranks, from 1 to {}", kMaxWorldSize);
      if (elements.empty()) fail("--algorithm needs --elements, the count per rank");
      std::uint64_t align = 1;
      if (!codec.empty()) align = find_codec(codec)->info().alignment;
      if (!alignment.empty()) align = parse_count(alignment, "--alignment");
      s = options.make(*ranks, parse_count(elements, "--elements"), align);
    }
    print_schedule(s);
  }

  void print_schedule(const Schedule& s) const {
    const Rank group_size = options.volume_group_size(s.world_size);
    const Volume volume = volume_of(s, group_size);
    const CheckReport result = check(s);
    const bool alike = ends_alike(s.collective);
    const Json ranks_identical = alike ? Json(result.ranks_identical) : Json(nullptr);
    if (format == Format::json) {
      Json json = schedule_to_json(s);
      json["group_size"] = group_size;
      json["volume"] = {{"total", volume.total},
                        {"cross_group", volume.cross_group},
                        {"total_elements", volume.total_elements},
                        {"cross_group_elements", volume.cross_group_elements},
                        {"messages", volume.messages}};
      json["check"] = {{"correct", result.correct},
                       {"violation", result.violation},
                       {"ranks_identical", ranks_identical},
                       {"divergence", result.divergence}};
      write_stdout(json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n');
      return;
    }
    Report report{"arlab.schedule/1",
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
                   {"correct", result.correct, proof_of(s.collective)},
                   {"ranks_identical", ranks_identical,
                    !alike                   ? "not applicable: ranks end with different data"
                    : result.ranks_identical ? "proved: all ranks compute the same expression"
                                             : result.divergence}},
                  "ops",
                  ops_table(s)};
    print(report, format);
  }
};

}  // namespace

void add_schedule(CLI::App& app) {
  auto command = std::make_shared<ScheduleCommand>();
  CLI::App* sub =
      app.add_subcommand("schedule", "Write an algorithm's schedule, or check one from a file");
  command->options.add_to(*sub);
  add_integer(*sub, "--ranks", command->ranks, 1, kMaxWorldSize, "World size");
  sub->add_option("--elements", command->elements, "Elements per rank (64K, 1M)");
  auto* by_codec =
      sub->add_option("--codec", command->codec, "Align chunks for this codec [alignment 1]");
  sub->add_option("--alignment", command->alignment, "Chunk boundaries are multiples of it [1]")
      ->excludes(by_codec);
  add_format(*sub, command->format, Format::json);
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli

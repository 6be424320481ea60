#include "sim/library/library_plan.h"

#include <algorithm>
#include <span>
#include <vector>

#include "sim/device/library_choice.h"
#include "sim/library/servers.h"

namespace arlab {
namespace {

constexpr std::string_view kNvls = "nvls";

/// Writes the stages and messages of rank 0, which stand for those of all ranks.
class RankPlanner {
 public:
  RankPlanner(const Algorithm& algorithm, const ScheduleRequest& request, const Codecs& codecs,
              DType dtype, bool folded)
      : ranks_(request.world_size), element_bytes_(size_of(dtype)) {
    plan_.collective = algorithm.collective;
    plan_.algorithm = algorithm.name;
    plan_.world_size = ranks_;
    plan_.elements = request.elements;
    plan_.dtype = dtype;
    plan_.codec = codecs.outer().name();
    plan_.cost = codecs.outer().info().cost;
    plan_.wire_bytes_per_element = static_cast<double>(element_bytes_);
    plan_.inner_cost = plan_.cost;
    if (folded) plan_.ranks_per_rank = ranks_;
    plan_.repeats_rank_0 = !folded && ranks_ > 1;
    share_ = (request.elements + ranks_ - 1) / ranks_;
  }

  /// `steps` of a share each, one after the other, then the copies.
  Plan ring(std::uint32_t steps, std::uint32_t passes) {
    for (std::uint32_t step = 0; step < steps; ++step) {
      add_stage(step, step > 0 ? 1 : 0);
      add_message({.to = 1 % ranks_}, share_);
      add_consumer(step + 1);
    }
    add_stage(steps, steps > 0 ? 1 : 0);
    add_passes(share_, passes);
    return std::move(plan_);
  }

  Plan exchange() {
    add_stage(0, 0);
    for (Rank to = 1; to < ranks_; ++to) {
      add_message({.to = to}, share_);
      add_consumer(1);
    }
    add_stage(1, ranks_ - 1);
    add_passes(share_, 2);
    return std::move(plan_);
  }

  /// Stage 2 i has part i of the own share added, stage 2 i + 1 spreads it.
  Plan nvls(std::span<const std::uint64_t> parts) {
    const auto count = static_cast<std::uint32_t>(parts.size());
    for (std::uint32_t i = 0; i < count; ++i) {
      add_stage(i, 0);
      add_message({.reach = Reach::reduction}, parts[i]);
      add_consumer(2 * i + 1);
      add_stage(i + 1, 1);
      add_message({.reach = Reach::multicast}, parts[i]);
      add_consumer(2 * count);
    }
    add_stage(count + 1, count * (ranks_ - 1));
    return std::move(plan_);
  }

  std::uint64_t share() const { return share_; }

 private:
  void add_stage(std::uint32_t step, std::uint32_t awaited) {
    plan_.stages.push_back({.step = step,
                            .first_message = static_cast<std::uint32_t>(plan_.messages.size()),
                            .awaited = awaited});
  }
  void add_message(PlannedMessage message, std::uint64_t elements) {
    message.stage = static_cast<StageId>(plan_.stages.size() - 1);
    message.elements = elements;
    message.bytes = elements * element_bytes_;
    plan_.messages.push_back(message);
    ++plan_.stages.back().messages;
  }
  void add_consumer(StageId stage) {
    PlannedMessage& message = plan_.messages.back();
    message.first_consumer = static_cast<std::uint32_t>(plan_.consumers.size());
    message.consumers = 1;
    plan_.consumers.push_back(stage);
  }
  /// Adds passes over memory: the first is written, the others are read.
  void add_passes(std::uint64_t elements, std::uint32_t passes) {
    plan_.stages.back().written = elements;
    plan_.stages.back().decoded = elements * (passes - 1);
  }

  Plan plan_;
  Rank ranks_;
  std::uint64_t element_bytes_;
  std::uint64_t share_;  ///< elements of a rank's; of all ranks the largest
};

/// Elements of each part of a share: of the library's chunks, and what is left.
std::vector<std::uint64_t> nvls_chunks(std::uint64_t share, DType dtype, const LibraryNvls& nvls) {
  const double elements = nvls.chunk_bytes.value / static_cast<double>(size_of(dtype));
  const auto chunk = static_cast<std::uint64_t>(std::max(1.0, elements));
  std::vector<std::uint64_t> parts(share / chunk, chunk);
  if (share % chunk > 0) parts.push_back(share % chunk);
  return parts;
}

/// The same of a kernel's micro-chunks, which differ by an element.
std::vector<std::uint64_t> nvls_micro_chunks(std::uint64_t share, const FieldValues& options) {
  const std::uint64_t asked = integer_of(nvls_algorithm().options.front(), options);
  std::vector<std::uint64_t> parts(std::clamp<std::uint64_t>(asked, 1, share));
  for (std::uint64_t i = 0; i < parts.size(); ++i) {
    parts[i] = share * (i + 1) / parts.size() - share * i / parts.size();
  }
  return parts;
}

}  // namespace

const Algorithm& nvls_algorithm() {
  static const Algorithm nvls{
      .name = std::string(kNvls),
      .summary = "the switch adds every rank's share and spreads the sum; simulated only",
      .source = "NCCL NVLS (NVLink SHARP)",
      .collective = Collective::all_reduce,
      .options = {{.name = "micro_chunks",
                   .kind = Integer{1, 4096},
                   .otherwise = std::uint64_t{8},
                   .otherwise_words = "8; of NCCL as it cuts the tensor"}},
      .write = [](const ScheduleRequest&) -> Schedule {
        fail(
            "nvls is simulated only; the bits of its sums are those of two_shot with the sum "
            "add=exact (arlab reduce --like nvls)");
      }};
  return nvls;
}

const Algorithm& find_simulated_algorithm(std::string_view name) {
  return name == kNvls ? nvls_algorithm() : find_algorithm(name);
}

bool library_runs(const Algorithm& algorithm) {
  return algorithm.name == "ring" || algorithm.name == kNvls || algorithm.name == "all_gather" ||
         algorithm.name == "reduce_scatter" || algorithm.name == "all_to_all";
}

void require_library(const Topology& topology) {
  if (topology.device.library) return;
  fail(
      "topology '{}' does not say how NCCL or RCCL runs there; allowed are those with a section "
      "[library]{}",
      topology.name,
      topology.kind == TopologyKind::fat_tree
          ? ", which a base gives servers with its links and as many GPUs, or with one"
          : "");
}

const Algorithm& library_all_reduce(const Topology& topology, Rank world_size,
                                    std::uint64_t bytes) {
  require_library(topology);
  if (spans_servers(topology, world_size)) {
    switch (choice_across(topology, Collective::all_reduce, world_size, bytes).algorithm) {
      case LibraryAlgorithm::nvls:
        return nvls_algorithm();
      case LibraryAlgorithm::tree:
        return find_algorithm("tree");
      default:
        return find_algorithm("ring");
    }
  }
  const LibraryChoice choice =
      library_choice(topology.device, Collective::all_reduce, world_size, bytes);
  return choice.algorithm == LibraryAlgorithm::nvls ? nvls_algorithm() : find_algorithm("ring");
}

namespace {

void require_sent_as_is(const std::string& codec, const CodecCost& cost) {
  if (cost.encode_ops_per_element + cost.decode_ops_per_element == 0) return;
  fail(
      "a library sends values as they are: allowed codecs are fp16, bf16 and fp32, not {} (arlab "
      "sweep --library compares kernels of {} with the library)",
      codec, codec);
}

/// Throws InvalidInput for slots that are not equal, and for options that it does not have.
void require_possible(const Algorithm& algorithm, const ScheduleRequest& request, bool library) {
  for (const auto& [name, value] : request.options) {
    const bool has = !library && algorithm.name == kNvls && algorithm.option(name) != nullptr;
    if (has || name == group_size_option().name) continue;
    fail("'{}' has no such option{}", algorithm.name,
         library ? " with --library" : "; allowed is --micro-chunks");
  }
  if (algorithm.name == kNvls) return;
  ScheduleSize size;
  ScheduleRequest question = request;
  question.only_size = &size;
  algorithm.write(question);
}

}  // namespace

Plan library_plan_across(const Algorithm& algorithm, const ScheduleRequest& request,
                         const Codecs& codecs, DType dtype, const Topology& topology) {
  require_library(topology);
  std::optional<LibraryAlgorithm> asked;
  if (algorithm.name == kNvls) asked = LibraryAlgorithm::nvls;
  if (algorithm.name == "ring") asked = LibraryAlgorithm::ring;
  if (algorithm.name == "tree") asked = LibraryAlgorithm::tree;
  if (!asked && !library_runs(algorithm)) {
    fail(
        "the vendor's library has no '{}': with --library on topology '{}' allowed are ring, tree, "
        "{}all_gather, reduce_scatter, all_to_all",
        algorithm.name, topology.name, topology.device.library->nvls ? "nvls, " : "");
  }
  require_possible(algorithm, request, true);
  const LibraryChoice choice = choice_across(topology, algorithm.collective, request.world_size,
                                             request.elements * size_of(dtype), asked);
  return plan_across(topology, choice, algorithm.collective, request, codecs.outer(), dtype);
}

Plan nvls_plan(const ScheduleRequest& request, const Codecs& codecs, DType dtype,
               const Topology& topology, bool folded, bool library) {
  if (!topology.in_switch.multicast || !topology.in_switch.reduction) {
    fail(
        "nvls: the switch of topology '{}' does not add; that takes [switch] with multicast = true "
        "and reduction = true",
        topology.name);
  }
  for (const Codec* codec : {&codecs.outer(), &codecs.inner()}) {
    const CodecCost& cost = codec->info().cost;
    if (library) require_sent_as_is(codec->name(), cost);
    if (cost.encode_ops_per_element + cost.decode_ops_per_element == 0) continue;
    fail(
        "nvls: a switch adds numbers, not what {} makes of them; allowed codecs are fp16, bf16 and "
        "fp32, or another algorithm with --multicast, for what goes to all",
        codec->name());
  }
  require_possible(nvls_algorithm(), request, library);
  RankPlanner planner(nvls_algorithm(), request, codecs, dtype, folded);
  return planner.nvls(library ? nvls_chunks(planner.share(), dtype, *topology.device.library->nvls)
                              : nvls_micro_chunks(planner.share(), request.options));
}

void require_plain(const Plan& plan) {
  require_sent_as_is(plan.codec, plan.cost);
  require_sent_as_is(plan.inner_codec, plan.inner_cost);
}

void run_as_program(Plan& plan, const Topology& topology) {
  require_plain(plan);
  require_library(topology);
  plan.library = library_choice(topology.device, plan.collective, plan.world_size,
                                plan.elements * size_of(plan.dtype), LibraryAlgorithm::program);
}

Plan library_plan(const Algorithm& algorithm, const ScheduleRequest& request, const Codecs& codecs,
                  DType dtype, const Topology& topology, bool folded) {
  require_possible(algorithm, request, true);
  RankPlanner planner(algorithm, request, codecs, dtype, folded);
  const Rank n = request.world_size;
  const bool nvls = algorithm.name == kNvls;
  // Throws where the library has none.
  const LibraryChoice choice =
      library_choice(topology.device, algorithm.collective, n, request.elements * size_of(dtype),
                     nvls ? LibraryAlgorithm::nvls : LibraryAlgorithm::ring);
  Plan plan;
  if (nvls) {
    plan = nvls_plan(request, codecs, dtype, topology, folded, true);
  } else if (algorithm.name == "ring") {
    plan = planner.ring(2 * (n - 1), 2);
  } else if (algorithm.collective == Collective::reduce_scatter) {
    plan = planner.ring(n - 1, 3);
  } else if (algorithm.collective == Collective::all_gather) {
    plan = planner.ring(n - 1, 4);
  } else {
    plan = planner.exchange();
  }
  plan.library = choice;
  return plan;
}

}  // namespace arlab

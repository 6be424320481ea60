#include "sim/machine_plan.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <ranges>
#include <utility>

#include "sim/device/kernel_model.h"
#include "sim/library/channels.h"
#include "sim/library/library_plan.h"
#include "sim/library/servers.h"

namespace arlab {

void require_room(Rank world_size, std::string_view algorithm, const Topology& topology) {
  if (world_size > topology.ranks.value) {
    fail("schedule '{}' has {} ranks, but topology '{}' has only {}", algorithm, world_size,
         topology.name, topology.ranks.value);
  }
}

void require_multicast(const Topology& topology, const SimulateOptions& options, bool is_nvls) {
  if (!options.multicast || is_nvls) return;
  if (topology.kind == TopologyKind::switched && topology.in_switch.multicast) return;
  fail(
      "--multicast: topology '{}' has no switch that spreads messages, [switch] with multicast = "
      "true",
      topology.name);
}

namespace {

/// Returns why a plan cannot be folded, in words.
std::string why_all_ranks(const Algorithm& algorithm, const ScheduleRequest& request,
                          const Topology& topology, const SimulateOptions& options) {
  if (options.trace != nullptr) return "the timeline shows all";
  const FabricShifts shifts = shifts_of(topology);
  if (!shifts.any && shifts.extents.empty()) {
    return fmt::format("topology '{}' does not look the same from all of them", topology.name);
  }
  if (!shifts.any && request.world_size != topology.ranks.value) {
    return fmt::format("topology '{}' has {}", topology.name, topology.ranks.value);
  }
  if (!algorithm.symmetry) return fmt::format("ranks do different things in {}", algorithm.name);
  if (request.options.inner_place()) return "codecs by place are found in the whole schedule";
  const RankSymmetry symmetry = algorithm.symmetry(request);
  if (symmetry.kind == RankSymmetry::none) {
    return fmt::format(
        "{} elements do not make equal chunks of multiples of {}; allowed are sizes "
        "that do",
        request.elements, request.alignment);
  }
  if (symmetry.kind == RankSymmetry::grouped) {
    return fmt::format(
        "groups of {} do not lie in '{}' like each other; allowed are group sizes "
        "that do",
        symmetry.group_size, topology.name);
  }
  return fmt::format("'{}' looks different when all move up by one", topology.name);
}

struct EqualChunks {
  ScheduleRequest request;
  bool some_are_empty = false;  ///< among the requested ones
};

/// With as many elements as make all chunks as large as the largest; nothing where ranks are alike with as
/// many as there are, or with no number of them. Chunks are shares of a group, or of all ranks.
std::optional<EqualChunks> with_equal_chunks(const Algorithm& algorithm,
                                             const ScheduleRequest& request) {
  if (!algorithm.symmetry || algorithm.symmetry(request).kind != RankSymmetry::none) return {};
  Rank parts = request.world_size;
  if (algorithm.option("group_size") != nullptr) {
    parts = request.options.group_size().value_or(default_group_size(parts));
  }
  const std::uint64_t tiles = (request.elements + request.alignment - 1) / request.alignment;
  EqualChunks equal{request};
  equal.request.elements = (tiles + parts - 1) / parts * parts * request.alignment;
  if (algorithm.symmetry(equal.request).kind == RankSymmetry::none) return {};
  const Field* micro = algorithm.option("micro_chunks");
  const std::uint64_t pieces = micro == nullptr ? 1 : integer_of(*micro, request.options);
  equal.some_are_empty = tiles / parts < pieces;
  return equal;
}

Plan plan_of_one_copy(const Algorithm& algorithm, const ScheduleRequest& request,
                      const Codecs& codecs, DType dtype, const Topology& topology,
                      const SimulateOptions& options);

/// Whatever takes its place in it, it is as many collectives of the size asked for, of other ranks each, one
/// after the other at worst.
Plan plan_of_equal_chunks(const Algorithm& algorithm, const ScheduleRequest& request,
                          const EqualChunks& equal, const Codecs& codecs, DType dtype,
                          const Topology& topology, const SimulateOptions& options) {
  Plan plan = plan_of_one_copy(algorithm, equal.request, codecs, dtype, topology, options);
  plan.elements = request.elements;
  plan.equal_chunks_factor =
      static_cast<double>(equal.request.elements) / static_cast<double>(request.elements);
  // A rank that sends nothing in a step polls a flag for its messages.
  for (Stage& stage : plan.stages) {
    if (equal.some_are_empty && stage.awaited > 0) ++stage.extra_flags;
  }
  return plan;
}

Plan plan_of_one_copy(const Algorithm& algorithm, const ScheduleRequest& request,
                      const Codecs& codecs, DType dtype, const Topology& topology,
                      const SimulateOptions& options) {
  const std::optional<EqualChunks> equal = with_equal_chunks(algorithm, request);
  if (equal && request.world_size > kMostRanksWithUnequalChunks && options.trace == nullptr) {
    Plan plan = plan_of_equal_chunks(algorithm, request, *equal, codecs, dtype, topology, options);
    if (plan.lists_one_rank()) return plan;
  }
  if (options.trace == nullptr) {
    const FabricShifts shifts = shifts_of(topology);
    std::optional<Plan> folded =
        folded_plan_of(algorithm, request, codecs, dtype, shifts.extents, shifts.any);
    if (folded) return std::move(*folded);
  }
  if (topology.device_overrides.empty()) {
    std::optional<Plan> repeated = repeated_plan_of(algorithm, request, codecs, dtype);
    if (repeated) return std::move(*repeated);
  }
  try {
    return plan_of(make_schedule(algorithm.name, request), codecs, dtype);
  } catch (const TooManyOps& error) {
    if (equal) {
      return plan_of_equal_chunks(algorithm, request, *equal, codecs, dtype, topology, options);
    }
    fail("{}; one rank cannot stand for all, since {}", error.what(),
         why_all_ranks(algorithm, request, topology, options));
  }
}

}  // namespace

double equal_chunks_error_us(const SimulationResult& result) {
  if (result.equal_chunks_factor <= 1) return 0;
  return result.latency_us * std::max(1 - 1 / result.equal_chunks_factor, 0.01);
}

namespace {

/// Whether one rank may stand for all where each does what the one before it does.
bool may_fold(const ScheduleRequest& request, const Topology& topology,
              const SimulateOptions& options) {
  if (options.trace != nullptr) return false;
  const FabricShifts shifts = shifts_of(topology);
  if (shifts.any) return request.world_size > 1;
  const auto extents = std::count_if(shifts.extents.begin(), shifts.extents.end(),
                                     [](Rank extent) { return extent > 1; });
  return request.world_size == topology.ranks.value && extents == 1;
}

/// As many copies as the library has channels, at most one per order.
Plan plan_in_channels(const Algorithm& algorithm, const ScheduleRequest& request,
                      const Codecs& codecs, DType dtype, const Topology& topology,
                      std::vector<RankOrder> orders) {
  const auto channels = static_cast<std::uint64_t>(topology.device.library->channels.value);
  const std::uint64_t most = std::min(channels, request.elements / request.alignment);
  if (orders.size() > most) orders.resize(std::max<std::uint64_t>(1, most));
  std::vector<Plan> copies;
  std::uint64_t begin = 0;
  for (std::uint64_t i = 1; i <= orders.size(); ++i) {
    ScheduleRequest share = request;
    const std::uint64_t end = request.elements * i / orders.size();
    share.elements = end - begin;
    begin = end;
    // Most shares are equal.
    if (!copies.empty() && copies.back().elements == share.elements) {
      copies.push_back(copies.back());
    } else {
      copies.push_back(plan_of(make_schedule(algorithm.name, share), codecs, dtype));
    }
  }
  return in_channels(copies, orders);
}

/// Returns the plan of the library inside a server: a plan of its own; where ranks are linked directly, the algorithm's, which
/// `one_copy` makes, in as many orders as use all links; else that as a program.
Plan plan_inside(const Algorithm& algorithm, const ScheduleRequest& request, const Codecs& codecs,
                 DType dtype, const Topology& topology, bool folds,
                 const std::function<Plan()>& one_copy) {
  require_library(topology);
  const bool runs = library_runs(algorithm);
  const bool in_rings =
      runs && &algorithm != &nvls_algorithm() && algorithm.collective != Collective::all_to_all;
  // The order of ranks counts for a single channel, too: so at least two are requested.
  const auto most = std::max<double>(2, topology.device.library->channels.value);
  std::vector<RankOrder> orders =
      channel_orders(topology, request.world_size, static_cast<std::uint64_t>(most));
  if (runs && (orders.size() == 1 || !in_rings)) {
    Plan plan = library_plan(algorithm, request, codecs, dtype, topology, folds);
    const bool alike = topology.device_overrides.empty() || !in_rings;
    return alike || !plan.repeats_rank_0 ? std::move(plan) : with_all_ranks(plan);
  }
  Plan plan = one_copy();
  if (orders.size() > 1 && !sends_to_all(plan)) {
    plan = plan_in_channels(algorithm, request, codecs, dtype, topology, std::move(orders));
  }
  if (!runs) {
    run_as_program(plan, topology);
  } else {
    plan.library = library_choice(topology.device, algorithm.collective, request.world_size,
                                  request.elements * size_of(dtype), LibraryAlgorithm::ring);
  }
  return plan;
}

/// Choice of the library for other sizes than a plan's: by itself, among all it has, where it would have chosen the plan's
/// algorithm; else among that one's.
class ChoiceBySize {
 public:
  ChoiceBySize(const Plan& plan, const Topology& topology)
      : plan_(plan), topology_(topology), asked_(plan.library->algorithm) {
    if (asked_ == LibraryAlgorithm::program || !topology.device_overrides.empty()) return;
    const std::optional<LibraryAlgorithm> asked = std::exchange(asked_, std::nullopt);
    if (of(plan.elements) != *plan.library) asked_ = asked;
  }

  LibraryChoice of(std::uint64_t elements) const {
    const std::uint64_t bytes = elements * size_of(plan_.dtype);
    return plan_.longest_way
               ? choice_across(topology_, plan_.collective, plan_.world_size, bytes, asked_)
               : library_choice(topology_.device, plan_.collective, plan_.world_size, bytes,
                                asked_);
  }

  /// Numbers of elements, beyond those of the plan, from which on the library chooses something else.
  std::vector<std::uint64_t> changes() const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
    std::vector<std::uint64_t> all;
    std::uint64_t at = plan_.elements;
    for (LibraryChoice choice = *plan_.library; at < kMost && choice != of(kMost);) {
      const auto is_same = [&](std::uint64_t elements) { return of(elements) == choice; };
      at = *std::ranges::partition_point(std::views::iota(at, kMost), is_same);
      choice = of(at);
      all.push_back(at);
    }
    return all;
  }

 private:
  const Plan& plan_;
  const Topology& topology_;
  std::optional<LibraryAlgorithm> asked_;
};

/// The all-reduce that the library goes over to, where it chooses another one.
const Algorithm& algorithm_of(const LibraryChoice& choice, const Algorithm& otherwise) {
  if (otherwise.collective != Collective::all_reduce) return otherwise;
  switch (choice.algorithm) {
    case LibraryAlgorithm::nvls:
      return nvls_algorithm();
    case LibraryAlgorithm::ring:
      return find_algorithm("ring");
    case LibraryAlgorithm::tree:
      return find_algorithm("tree");
    case LibraryAlgorithm::exchange:
    case LibraryAlgorithm::program:
      return otherwise;
  }
  return otherwise;
}

Plan plan_of_size(const Algorithm& algorithm, const ScheduleRequest& request, const Codecs& codecs,
                  DType dtype, const Topology& topology, const SimulateOptions& options) {
  require_valid(topology, topology.name);
  require_room(request.world_size, algorithm.name, topology);
  const bool folds = may_fold(request, topology, options);
  const bool is_nvls = &algorithm == &nvls_algorithm();
  require_multicast(topology, options, is_nvls);
  if (options.library && spans_servers(topology, request.world_size)) {
    return library_plan_across(algorithm, request, codecs, dtype, topology);
  }
  const auto one_copy = [&] {
    return plan_of_one_copy(algorithm, request, codecs, dtype, topology, options);
  };
  if (options.library) {
    return plan_inside(algorithm, request, codecs, dtype, topology, folds, one_copy);
  }
  if (is_nvls) return nvls_plan(request, codecs, dtype, topology, folds, false);
  return options.multicast ? with_multicast(one_copy()) : one_copy();
}

}  // namespace

Plan plan_of(const Algorithm& algorithm, const ScheduleRequest& request, const Codecs& codecs,
             DType dtype, const Topology& topology, const SimulateOptions& options) {
  Plan plan = plan_of_size(algorithm, request, codecs, dtype, topology, options);
  if (!plan.library) return plan;
  const ChoiceBySize choice(plan, topology);
  ScheduleRequest more = request;
  for (const std::uint64_t elements : choice.changes()) {
    // Collectives of slots have a multiple of the ranks.
    more.elements = (elements + plan.world_size - 1) / plan.world_size * plan.world_size;
    const Algorithm& other = algorithm_of(choice.of(elements), algorithm);
    plan.of_more.push_back(plan_of_size(other, more, codecs, dtype, topology, options));
  }
  return plan;
}

Plan placeable_plan_of(const Algorithm& algorithm, const ScheduleRequest& request,
                       const Codecs& codecs, DType dtype, const Topology& topology,
                       std::span<const Rank> ranks, bool library) {
  if (library && topology.kind == TopologyKind::fat_tree) {
    const Topology part = library_part(topology, ranks);
    if (&algorithm == &nvls_algorithm() || spans_servers(part, request.world_size)) {
      return library_plan_across(algorithm, request, codecs, dtype, part);
    }
  }
  if (&algorithm == &nvls_algorithm()) {
    fail("nvls of some ranks of '{}' is not simulated; allowed are other algorithms",
         topology.name);
  }
  const auto one_copy = [&] {
    return plan_of(make_schedule(algorithm.name, request), codecs, dtype);
  };
  if (!library) return one_copy();
  Topology part = topology;
  if (topology.kind == TopologyKind::full_mesh) part.ranks.value = request.world_size;
  const Plan plan = plan_inside(algorithm, request, codecs, dtype, part, false, one_copy);
  return plan.repeats_rank_0 ? with_all_ranks(plan) : plan;
}

}  // namespace arlab

#include "reference/collectives/call.h"

#include "reference/codecs/registry.h"
#include "reference/collectives/check.h"
#include "reference/collectives/executor.h"
#include "reference/error.h"

namespace arlab {
namespace {

/// One rank does what the schedule has for the other.
void swap_ranks(Schedule& schedule, Rank one, Rank other) {
  const auto swapped = [=](Rank& rank) { rank = rank == one ? other : rank == other ? one : rank; };
  for (Op& op : schedule.ops) {
    swapped(op.rank);
    swapped(op.peer);
  }
  for (Output& output : schedule.outputs) swapped(output.rank);
}

Schedule written_schedule(const CollectiveRequest& request, const Codecs& codecs, Rank ranks) {
  // With a tail, chunks end between rows.
  const std::uint64_t row = request.tail ? request.tail->hidden : 1;
  Schedule made = make_schedule(request.algorithm, {.world_size = ranks,
                                                    .elements = request.elements,
                                                    .alignment = codecs.alignment(row),
                                                    .options = request.options});
  if (request.root == 0) return made;
  const bool is_rank = request.root > 0 && static_cast<Rank>(request.root) < ranks;
  if (!facts_of(made.collective).has_root || !is_rank) {
    fail("root {}: allowed are the ranks 0 to {}, of a broadcast", request.root, ranks - 1);
  }
  swap_ranks(made, 0, static_cast<Rank>(request.root));
  return made;
}

Schedule given_schedule(const CollectiveRequest& request, const Codecs& codecs, Rank ranks) {
  Schedule schedule = *request.schedule;
  if (schedule.world_size != ranks || schedule.elements != request.elements) {
    fail("schedule '{}' is for {} ranks and {} elements per rank, not for {} and {}",
         schedule.algorithm, schedule.world_size, schedule.elements, ranks, request.elements);
  }
  require_correct(schedule);
  require_whole_blocks(schedule, codecs);
  place_codecs(schedule, request.options);
  return schedule;
}

}  // namespace

std::string ResolvedCollective::codecs_and_sum() const {
  std::string words = request.codec;
  if (request.options.inner_codec()) {
    words += fmt::format("+{}", words_of(request.options.get("inner_codec")));
  }
  if (request.sum != Sum{}) words += fmt::format(", sum {}", name_of(request.sum));
  return words;
}

ResolvedCollective resolve(const CollectiveRequest& asked, Rank ranks) {
  ResolvedCollective call{.request = asked, .outer = {}, .inner = {}, .schedule = {}};
  call.request.codec = split_codecs(asked.codec, call.request.options);
  call.outer = find_codec(call.request.codec);
  call.inner = find_inner_codec(call.request.options, call.outer);
  for (const CodecPtr& codec : {call.outer, call.inner}) {
    (void)codec->wire_bytes(asked.dtype, asked.elements);  // throws for other dtypes
  }
  call.schedule = asked.schedule ? given_schedule(call.request, call.codecs(), ranks)
                                 : written_schedule(call.request, call.codecs(), ranks);
  require_sums(call.schedule, asked.sum);
  return call;
}

}  // namespace arlab

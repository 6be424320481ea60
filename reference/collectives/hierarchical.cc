// hierarchical: reduce inside each group first, so that little crosses between groups.
//
//   step 0   inside each group: encode every chunk, send it to its owner in the group; the owner
//            sums in ascending rank order from +0                     (partial reduce-scatter)
//   step 1   owners of the same chunk in different groups: encode the partial sum, send it to each
//            other; each sums in ascending group order from +0        (exchange across groups)
//   step 2   inside each group: the owner encodes the result once, sends it to all (all-gather)
//
// Steps 0 and 2 encode with the inner codec, step 1 with the outer one, if the options name one:
// links inside a group are mostly faster, so that they can carry more bits.
//
// Every group's owner decodes the same partial sums in the same order, so all groups reduce to
// identical bits. Source: Flash Communication V2, "Pipeline Parallelism in Hierarchical
// Communication", figures 6 and 7, table 5 (14 M in total, M across NUMA for 2 groups of 4).

#include "reference/collectives/hierarchical.h"

namespace arlab {

Rank checked_group_size(const ScheduleRequest& request) {
  const Rank group_size =
      request.options.group_size().value_or(default_group_size(request.world_size));
  if (group_size < 1 || request.world_size % group_size != 0) {
    fail("group size {} does not divide the world size {}", group_size, request.world_size);
  }
  return group_size;
}

const std::vector<Field>& hierarchical_options() {
  static const std::vector<Field> options = {own_option("encoded"), group_size_option(),
                                             inner_codec_option()};
  return options;
}

RankSymmetry hierarchical_symmetry(const ScheduleRequest& request) {
  const Rank group_size = checked_group_size(request);
  if (!splits_evenly(request, group_size)) return {RankSymmetry::none};
  return {RankSymmetry::grouped, group_size};
}

std::vector<Value> sums_of_groups(ScheduleBuilder& s, ChunkId chunk, Rank owner, Rank group_size,
                                  const AlgorithmOptions& options, std::uint32_t first_step) {
  const bool own_exact = text_of(hierarchical_options().front(), options) == "exact";
  std::vector<Value> sums;
  for (Rank group = 0; group < s.world_size() / group_size; ++group) {
    const Rank group_owner = group * group_size + owner;
    s.at_step(first_step);
    std::vector<Value> contributions;
    for (const Rank member : s.partners_of(group_owner, group * group_size, group_size)) {
      const Value input = s.input(group * group_size + member, chunk);
      const bool exact = member == owner && own_exact;
      contributions.push_back(exact ? input
                                    : s.send(s.encode(input, inner_role(options)), group_owner));
    }
    s.at_step(first_step + 1);
    sums.push_back(sum_of(s, group_owner, chunk, contributions));
  }
  return sums;
}

Value sum_of(ScheduleBuilder& s, Rank rank, ChunkId chunk, const std::vector<Value>& addends) {
  return addends.empty() ? s.elsewhere(rank, chunk, false) : s.reduce(addends, Start::zero);
}

void write_hierarchical_chunk(ScheduleBuilder& s, Chunk range, Rank owner, Rank group_size,
                              const AlgorithmOptions& options, std::uint32_t first_step) {
  const bool own_exact = text_of(hierarchical_options().front(), options) == "exact";
  const CodecRole inside = inner_role(options);
  const ChunkId chunk = s.add_chunk(range);
  const Rank groups = s.world_size() / group_size;
  const std::vector<Value> partials =
      sums_of_groups(s, chunk, owner, group_size, options, first_step);

  if (groups == 1) {  // nothing to exchange: two_shot inside the only group
    s.at_step(first_step + 1);
    const Value result = s.encode(partials.front(), inside);
    for (const Rank member : s.partners_of(owner, 0, group_size)) s.output(s.send(result, member));
    return;
  }

  std::vector<Value> encoded_partials;
  encoded_partials.reserve(partials.size());
  for (const Value& partial : partials) encoded_partials.push_back(s.encode(partial));
  for (Rank group = 0; group < groups; ++group) {
    const Rank group_owner = group * group_size + owner;
    s.at_step(first_step + 1);
    std::vector<Value> contributions;
    for (const Rank from : s.partners_of(group_owner, owner, groups, group_size)) {
      const bool exact = from == group && own_exact;
      contributions.push_back(exact ? partials[from] : s.send(encoded_partials[from], group_owner));
    }
    s.at_step(first_step + 2);
    const Value result = s.encode(sum_of(s, group_owner, chunk, contributions), inside);
    for (const Rank member : s.partners_of(group_owner, group * group_size, group_size)) {
      s.output(s.send(result, group * group_size + member));
    }
  }
}

namespace {

Schedule hierarchical(const ScheduleRequest& request) {
  ScheduleBuilder s("hierarchical", request);
  const Rank group_size = checked_group_size(request);
  const std::vector<Chunk> ranges = s.split(group_size);
  for (Rank owner = 0; owner < group_size; ++owner) {
    if (ranges[owner].size() == 0) continue;
    write_hierarchical_chunk(s, ranges[owner], owner, group_size, request.options, 0);
  }
  return s.finish();
}

}  // namespace

Algorithm hierarchical_algorithm() {
  return {.name = "hierarchical",
          .summary = "reduce-scatter in the group, exchange across groups, all-gather in the group",
          .source = "Flash Communication V2, figures 6 and 7",
          .options = hierarchical_options(),
          .write = hierarchical,
          .symmetry = hierarchical_symmetry};
}

}  // namespace arlab

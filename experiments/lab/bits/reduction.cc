#include "experiments/lab/bits/reduction.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "reference/codecs/payload_values.h"
#include "reference/codecs/registry.h"

namespace arlab::lab {
namespace {

/// Slot i of rank i, for all i.
std::vector<std::byte> gathered(std::span<const std::byte> tensors, std::size_t ranks) {
  const std::size_t slot = tensors.size() / ranks / ranks;
  std::vector<std::byte> slots(ranks * slot);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::copy_n(tensors.begin() + static_cast<std::ptrdiff_t>(rank * (ranks + 1) * slot), slot,
                slots.begin() + static_cast<std::ptrdiff_t>(rank * slot));
  }
  return slots;
}

/// The same values for every rank.
std::vector<double> repeated(std::span<const double> values, std::size_t ranks) {
  std::vector<double> result;
  result.reserve(values.size() * ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    result.insert(result.end(), values.begin(), values.end());
  }
  return result;
}

/// Slot i of rank j is slot j of rank i.
std::vector<double> exchanged(const std::vector<double>& inputs, std::size_t ranks) {
  const std::size_t slot = inputs.size() / ranks / ranks;
  std::vector<double> outputs(inputs.size());
  for (std::size_t to = 0; to < ranks; ++to) {
    for (std::size_t from = 0; from < ranks; ++from) {
      std::copy_n(&inputs[(from * ranks + to) * slot], slot, &outputs[(to * ranks + from) * slot]);
    }
  }
  return outputs;
}

/// Returns the same schedule's result with plain values.
std::vector<double> uncompressed_result(const Schedule& schedule, const RankPayloads& inputs,
                                        ExecuteOptions options) {
  options.count = false;
  options.state = nullptr;
  // Plain values have no scale, are rounded when they are sent, and need no decoding.
  options.sum.casts_to_fp16 = false;
  options.sum.rounds = true;
  options.sum.owner_keeps_sum = false;
  if (options.sum.add == Accumulate::fma) options.sum.add = Accumulate::fp32;
  const std::size_t ranks = inputs.ranks.size();
  std::vector<std::byte> outputs(ranks * inputs.ranks.front().size());
  execute(schedule, *find_codec(name_of(inputs.dtype)), inputs, outputs, options);
  std::vector<std::byte> room;
  return to_double(inputs.dtype, compared(schedule.collective, outputs, ranks, room));
}

/// Whether a codec carries values times 2^exponent.
bool carries(const Codec& codec, DType dtype, std::span<const std::byte> x, int exponent) {
  const std::size_t elements = x.size() / size_of(dtype);
  std::vector<std::byte> values(x.size());
  for (std::size_t i = 0; i < elements; ++i) {
    store_value(dtype, std::ldexp(load_value(dtype, x, i), exponent), values, i);
  }
  const std::vector<double> target = to_double(dtype, values);
  std::vector<std::byte> wire(codec.wire_bytes(dtype, elements));
  codec.encode(dtype, values, wire);
  codec.decode(dtype, wire, values);
  const ErrorMetrics error = compare(target, dtype, values, 1);
  return error.non_finite_target == 0 && is_half_there(error);
}

/// See Reduction::out_of_range.
std::string out_of_range(const Reduction& r, const Codecs& codecs, const RankPayloads& inputs) {
  constexpr std::size_t kMostBytes = 1 << 18;
  if (!r.error.sqnr_db || is_half_there(r.error)) return {};
  const bool clamps = 2 * r.counts.clamped > r.counts.encoded;
  const std::uint64_t count = clamps ? r.counts.clamped : r.counts.flushed;
  if (2 * count <= r.counts.encoded) return {};
  const auto x = inputs.ranks[0].first(std::min(inputs.ranks[0].size(), kMostBytes));
  const bool is_inner = carries(codecs.outer(), inputs.dtype, x, 0);
  const Codec& codec = is_inner ? codecs.inner() : codecs.outer();
  int exponent = 0;
  while (std::abs(exponent) < 160 && !carries(codec, inputs.dtype, x, exponent)) {
    exponent += clamps ? -1 : 1;
  }
  return fmt::format("{} % of the encoded elements {} of {} {} for them by a factor of {:g}",
                     std::min<std::uint64_t>(100 * count / r.counts.encoded, 100),
                     clamps ? "are clamped: the range" : "become zero: steps", codec.name(),
                     clamps ? "is too small" : "are too large",
                     std::ldexp(1.0, std::abs(exponent)));
}

}  // namespace

Json decibels(const std::optional<double>& value) {
  if (!value || std::isnan(*value)) return nullptr;
  if (std::isinf(*value)) return *value > 0 ? "inf" : "-inf";
  return *value;
}

Json sqnr_of(const ErrorMetrics& error) {
  if (error.sqnr_db || error.elements == 0) return decibels(error.sqnr_db);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return decibels(error.exact ? infinity : -infinity);
}

std::uint64_t reduction_bytes(DType dtype, std::uint64_t ranks, std::uint64_t elements_per_rank,
                              Collective collective) {
  const std::uint64_t results = adds(collective) ? 1 : ranks;
  const std::uint64_t per_element = 2 * ranks * size_of(dtype) + results * 2 * sizeof(double);
  return elements_per_rank > UINT64_MAX / per_element ? UINT64_MAX
                                                      : elements_per_rank * per_element;
}

std::span<const std::byte> compared(Collective collective, std::span<const std::byte> outputs,
                                    std::size_t ranks, std::vector<std::byte>& room) {
  if (collective == Collective::all_reduce) return outputs.first(outputs.size() / ranks);
  if (collective != Collective::reduce_scatter) return outputs;
  room = gathered(outputs, ranks);
  return room;
}

ExactResult exact_result(Collective collective, const RankPayloads& inputs, unsigned threads) {
  if (adds(collective)) {
    ExactSum sum = exact_sum(inputs, threads);
    return {collective, std::move(sum.values), sum.inexact};
  }
  const std::size_t ranks = inputs.ranks.size();
  if (collective == Collective::broadcast) {
    return {collective, repeated(to_double(inputs.dtype, inputs.ranks[0]), ranks), 0};
  }
  const std::size_t slot = inputs.ranks[0].size() / ranks;
  std::vector<double> values;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const bool own = collective == Collective::all_gather;
    const auto part = own ? inputs.ranks[rank].subspan(rank * slot, slot) : inputs.ranks[rank];
    const std::vector<double> more = to_double(inputs.dtype, part);
    values.insert(values.end(), more.begin(), more.end());
  }
  if (collective == Collective::all_gather) values = repeated(values, ranks);
  if (collective == Collective::all_to_all) values = exchanged(values, ranks);
  return {collective, std::move(values), 0};
}

std::size_t channels_of(std::span<const std::size_t> shape) {
  return shape.size() < 3 || shape.back() < 2 ? 0 : shape.back();
}

bool has_tokens(Collective collective, std::size_t ranks, std::size_t elements,
                std::size_t channels) {
  return channels != 0 && (has_slots(collective) ? elements / ranks : elements) % channels == 0;
}

Reduction run_compressed(const Schedule& schedule, const Codecs& codecs, const RankPayloads& inputs,
                         std::size_t channels, const ExactResult& exact,
                         const ExecuteOptions& options) {
  const std::size_t ranks = inputs.ranks.size();
  Reduction reduction;
  reduction.wire = wire_volume(schedule, codecs, inputs.dtype);
  reduction.adds_codes = codecs.outer().info().adds_codes || codecs.inner().info().adds_codes;
  reduction.wire_varies =
      codecs.outer().info().has_variable_wire || codecs.inner().info().has_variable_wire;
  reduction.outputs.resize(ranks * inputs.ranks.front().size());
  reduction.counts = execute(schedule, codecs, inputs, reduction.outputs, options);
  std::vector<std::byte> room;
  const auto result = compared(schedule.collective, reduction.outputs, ranks, room);
  reduction.error = compare(exact.values, inputs.dtype, result, options.threads);
  if (has_tokens(schedule.collective, ranks, schedule.elements, channels)) {
    reduction.tokens = compare_rows(exact.values, inputs.dtype, result, channels, options.threads);
  }
  reduction.out_of_range = out_of_range(reduction, codecs, inputs);
  return reduction;
}

Reduction run_reduction(const Schedule& schedule, const Codecs& codecs, const RankPayloads& inputs,
                        std::size_t channels, const ExactResult& exact,
                        const ExecuteOptions& options) {
  // The uncompressed run first, so that its outputs are gone before there are others.
  const std::vector<double> uncompressed = uncompressed_result(schedule, inputs, options);
  Reduction reduction = run_compressed(schedule, codecs, inputs, channels, exact, options);
  std::vector<std::byte> room;
  const auto result = compared(schedule.collective, reduction.outputs, inputs.ranks.size(), room);
  reduction.versus_uncompressed = compare(uncompressed, inputs.dtype, result, options.threads);
  if (ends_alike(schedule.collective)) {
    reduction.difference =
        first_rank_difference(inputs.dtype, inputs.ranks.size(), reduction.outputs);
  }
  return reduction;
}

std::vector<Figure> reduction_fields(const Reduction& r, const ExactResult& exact) {
  const bool lost = r.error.lost > 0;
  const bool sums = adds(exact.collective);
  const bool alike = ends_alike(exact.collective);
  const std::string target = sums ? "the exact sum" : "the exact result of all ranks";
  // The sent bytes count, which are fewer than the most where data decide.
  const bool varies = r.wire_varies && r.wire.bytes != 0;
  const double sent = varies ? r.wire.bits_per_element * static_cast<double>(r.counts.sent_bytes) /
                                   static_cast<double>(r.wire.bytes)
                             : r.wire.bits_per_element;
  std::vector<Figure> all = {
      {"sqnr_db", sqnr_of(r.error),
       r.error.exact ? "dB; no error at all: every element equals " + target
       : lost        ? "dB; finite values became non-finite"
                     : "dB, against " + target},
      {"finite_sqnr_db", r.error.finite_sqnr_db, "dB, finite elements only"},
      {"token_sqnr_db", decibels(r.tokens.median_row_db),
       "dB, of the median token: rows of the last axis, each by itself"},
      {"token_sqnr_p1_db", decibels(r.tokens.percentile_row_db), "dB; 1 % of the tokens are worse"},
      {"channel_sqnr_db", decibels(r.tokens.median_column_db), "dB, of the median channel"},
      {"channel_sqnr_p1_db", decibels(r.tokens.percentile_column_db),
       "dB; 1 % of the channels are worse"}};
  for (const ErrorFigure& each : kErrorFigures) {
    all.push_back(
        {std::string(each.name), r.error.*each.value, fmt::format("{} {}", each.against, target)});
  }
  const std::vector<Figure> more = {
      {"exact", r.error.exact, "every element equals " + target},
      {"sqnr_vs_uncompressed_db", sqnr_of(r.versus_uncompressed),
       r.versus_uncompressed.exact ? "dB; no difference"
                                   : "dB, against the same algorithm uncompressed"},
      {"max_abs_error_vs_uncompressed", r.versus_uncompressed.max_abs_error, ""},
      {"rmse_vs_uncompressed", r.versus_uncompressed.rmse, ""},
      {"ranks_identical", alike ? Json(!r.difference.has_value()) : Json(nullptr),
       !alike         ? "not applicable: ranks end with different data"
       : r.difference ? fmt::format("rank {} differs from rank 0 first at element {}",
                                    r.difference->rank, r.difference->element)
                      : "all ranks hold the same bits"},
      {"wire_bits_per_element", sent,
       varies ? "as sent, average over all sends" : "average over all sends"},
      {"wire_bytes", Cell(varies ? r.counts.sent_bytes : r.wire.bytes), "all sends of all ranks"},
      {"encoded", r.counts.encoded, "elements encoded, all ranks and steps"},
      {"clamped", r.counts.clamped,
       r.adds_codes ? "of these and of sums of codes, beyond the code range"
                    : "of these, beyond the code range"},
      {"flushed", r.counts.flushed, "of these, not zero before and zero after"},
      {"non_finite", r.error.non_finite_result, "elements of the result that are NaN or infinite"},
      {"lost", r.error.lost, "of these, finite in " + target},
      {"non_finite_exact", r.error.non_finite_target, "elements of " + target + " that are"},
      {"float64_sum_exact", exact.inexact == 0,
       !sums ? "nothing is summed"
       : exact.inexact == 0
           ? "the float64 sum of the inputs is exact"
           : fmt::format("the float64 sum of {} elements was rounded", exact.inexact)},
  };
  all.insert(all.end(), more.begin(), more.end());
  if (!r.out_of_range.empty()) all.push_back({"out_of_range", r.out_of_range});
  if (varies) {
    all.push_back(
        {"max_wire_bits_per_element", r.wire.bits_per_element, "that slots must have room for"});
    return all;
  }
  // Where steps have different codecs.
  const std::vector<double>& bits = r.wire.bits_of_step;
  if (std::ranges::adjacent_find(bits, std::ranges::not_equal_to()) != bits.end()) {
    for (std::size_t step = 0; step < bits.size(); ++step) {
      all.push_back({fmt::format("wire_bits_per_element_of_step_{}", step), bits[step],
                     "average over the sends with so many encodings behind them"});
    }
  }
  return all;
}

bool is_half_there(const ErrorMetrics& error) {
  constexpr double kHalfOfThePower = 3;  // dB
  return error.exact || (error.lost == 0 && error.sqnr_db.value_or(0) > kHalfOfThePower);
}

std::vector<std::string> main_figures(const Reduction& r) {
  std::vector<std::string> names = {"sqnr_db", "max_abs_error", "ranks_identical",
                                    "wire_bits_per_element"};
  if (r.tokens.median_row_db) names.emplace_back("token_sqnr_db");
  if (r.counts.clamped > 0) names.emplace_back("clamped");
  if (!r.out_of_range.empty()) names.emplace_back("out_of_range");
  if (r.error.non_finite_result > 0) names.emplace_back("non_finite");
  return names;
}

std::vector<BoundField> fields(SumOptions& o) {
  return {
      field("accumulate", &o.accumulate, "Add in the payload's dtype, or in fp32 and round once")
          .among({"native", "fp32"}),
      field("sum", &o.sum,
            "Set the arithmetic of sums by any of "
            "decode=fp32,add=fma,order=own,round=none,own=exact,result=sum,cast=fp16",
            "native")};
}

Sum SumOptions::parse() const {
  if (accumulate != "native" && accumulate != "fp32") {
    fail("accumulate is {}: allowed are native, fp32", quote(accumulate));
  }
  if (!sum.empty() && accumulate != "native") {
    fail("sum {} and accumulate {}: give one of them; in sum it is add={}", quote(sum),
         quote(accumulate), accumulate);
  }
  return parse_sum(sum.empty() ? accumulate : sum);
}

std::vector<BoundField> fields(ExecutionOptions& o) {
  return together(
      fields(static_cast<SumOptions&>(o)),
      {field("threads", &o.threads, "Run N threads, 0 for all cores; results do not depend on it",
             "0")
           .from(0, 1024),
       field("rounding_seed", &o.rounding_seed, "Seed the random numbers that codecs draw", "0")
           .from(0, UINT32_MAX),
       field("call", &o.call, "Draw the random numbers of the N-th call, counted from 0", "0")
           .from(0, UINT32_MAX)});
}

ExecuteOptions ExecutionOptions::make() const {
  ExecuteOptions options;
  options.sum = parse();
  options.threads = threads.value_or(0);
  options.seed = rounding_seed.value_or(0);
  options.call = call.value_or(0);
  options.count = true;
  return options;
}

std::vector<Figure> ExecutionOptions::figures() const {
  std::vector<Figure> figures = {{"accumulate", name_of(parse())}};
  if (rounding_seed) figures.push_back({"rounding_seed", *rounding_seed});
  if (call) figures.push_back({"call", *call});
  return figures;
}

void give_own(const Sum& sum, CollectiveSpec& spec) {
  if (sum.own.empty()) return;
  if (spec.has_schedule()) {
    fail("sum: own={}, but a schedule says itself what is encoded; leave it out", sum.own);
  }
  const std::string given = words_of(spec.options.get("own"));
  if (!given.empty() && given != sum.own) {
    fail("sum: own={}, but the algorithm's own is {}: give one of them", sum.own, given);
  }
  spec.options.set("own", sum.own);
}

std::vector<BoundField> fields(LikeOptions& o) {
  std::vector<std::string> names;
  for (const NamedAllReduce& each : named_all_reduces()) names.push_back(each.name);
  return {field("like", &o.like,
                fmt::format("Reproduce another project's all-reduce, bit for bit: {}",
                            fmt::join(names, ", ")))
              .excludes("algorithm schedule sum"),
          field("block", &o.block, "Share a scale among N elements, with --like", "its default")
              .from(1, 1U << 24)
              .needs("like")};
}

NamedParts LikeOptions::apply(NamedRequest request, CollectiveSpec& spec, std::string& codec,
                              ExecutionOptions& execution) const {
  const NamedAllReduce& named = find_named_all_reduce(like);
  if (spec.is_named() || !execution.sum.empty() || execution.accumulate != "native") {
    fail("like {}: it has its own algorithm and sum; leave both out", quote(like));
  }
  if (!codec.empty() && !named.has_codecs) {
    fail("like {}: it has its own codec; leave out {}", quote(like), quote(codec));
  }
  if (block && !named.has_block) fail("like {}: it has no block to choose", quote(like));
  // A kernel takes no other option of the algorithm.
  for (const auto& [name, value] : spec.options) {
    if (name != "stripe" || !named.has_stripe) {
      fail("like {}: it has its own {}; leave it out", quote(like), name);
    }
    request.stripe = std::get<std::uint64_t>(value);
  }
  request.codec = codec;
  request.block = block.value_or(0);
  NamedParts parts = named.parts_of(request);
  spec.algorithm = parts.algorithm;
  spec.options = parts.options;
  codec = parts.codec;
  execution.sum = name_of(parts.sum);
  return parts;
}

}  // namespace arlab::lab

#include "experiments/cli/reduction.h"

#include <algorithm>
#include <utility>

#include "reference/codecs/registry.h"

namespace arlab::cli {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

/// Slot i of rank i, for all i.
template <class Value>
std::vector<Value> gathered(std::span<const Value> tensors, std::size_t ranks) {
  const std::size_t slot = tensors.size() / ranks / ranks;
  std::vector<Value> slots(ranks * slot);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::copy_n(&tensors[rank * (ranks + 1) * slot], slot, &slots[rank * slot]);
  }
  return slots;
}

/// The part of the outputs that error figures are about; in `room`, if it does not lie together.
std::span<const std::byte> compared(Collective collective, const Tensor& outputs,
                                    std::vector<std::byte>& room) {
  if (collective == Collective::all_reduce) return outputs.rank_bytes(0);
  if (collective != Collective::reduce_scatter) return outputs.bytes();
  room = gathered(outputs.bytes(), outputs.ranks());
  return room;
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

}  // namespace

std::uint64_t reduction_bytes(DType dtype, std::uint64_t ranks, std::uint64_t elements_per_rank,
                              Collective collective) {
  const std::uint64_t results = adds(collective) ? 1 : ranks;
  const std::uint64_t per_element = 2 * ranks * size_of(dtype) + results * 2 * sizeof(double);
  return elements_per_rank > UINT64_MAX / per_element ? UINT64_MAX
                                                      : elements_per_rank * per_element;
}

ExactResult exact_result(Collective collective, const Tensor& inputs, unsigned threads) {
  if (adds(collective)) {
    ExactSum sum = exact_sum(inputs.dtype, inputs.ranks(), inputs.bytes(), threads);
    return {collective, std::move(sum.values), sum.inexact};
  }
  const std::size_t ranks = inputs.ranks();
  if (collective == Collective::broadcast) {
    return {collective, repeated(to_double(inputs.dtype, inputs.rank_bytes(0)), ranks), 0};
  }
  std::vector<double> values = to_double(inputs.dtype, inputs.bytes());
  if (collective == Collective::all_gather) {
    values = repeated(gathered(std::span<const double>(values), ranks), ranks);
  }
  if (collective == Collective::all_to_all) values = exchanged(values, ranks);
  return {collective, std::move(values), 0};
}

Reduction run_reduction(const Schedule& schedule, const Codecs& codecs, const Tensor& inputs,
                        const ExactResult& exact, const ExecuteOptions& options) {
  Reduction reduction;
  reduction.wire = wire_volume(schedule, codecs, inputs.dtype);
  reduction.outputs = make_tensor(inputs.dtype, inputs.shape);

  // The uncompressed run first, so that its outputs can make room for the real ones.
  const CodecPtr plain = find_codec(name_of(inputs.dtype));
  execute(schedule, *plain, inputs.dtype, inputs.bytes(), reduction.outputs.bytes(), options);
  std::vector<std::byte> room;
  const std::vector<double> uncompressed =
      to_double(inputs.dtype, compared(schedule.collective, reduction.outputs, room));

  reduction.counts =
      execute(schedule, codecs, inputs.dtype, inputs.bytes(), reduction.outputs.bytes(), options);
  const auto result = compared(schedule.collective, reduction.outputs, room);
  reduction.error = compare(exact.values, inputs.dtype, result, options.threads);
  reduction.versus_uncompressed = compare(uncompressed, inputs.dtype, result, options.threads);
  if (ends_alike(schedule.collective)) {
    reduction.difference =
        first_rank_difference(inputs.dtype, schedule.world_size, reduction.outputs.bytes());
  }
  return reduction;
}

std::vector<Field> reduction_fields(const Reduction& r, const ExactResult& exact) {
  const bool lost = r.error.lost > 0;
  const bool sums = adds(exact.collective);
  const bool alike = ends_alike(exact.collective);
  const std::string target = sums ? "the exact sum" : "the exact result of all ranks";
  return {
      {"sqnr_db", json_of(r.error.sqnr_db),
       r.error.exact ? "dB; no error at all: every element equals " + target
       : lost        ? "dB; none: finite values became non-finite"
                     : "dB, against " + target},
      {"finite_sqnr_db", json_of(r.error.finite_sqnr_db), "dB, finite elements only"},
      {"max_abs_error", json_of(r.error.max_abs_error), "against " + target},
      {"rmse", json_of(r.error.rmse), "against " + target},
      {"cosine", json_of(r.error.cosine), "with " + target},
      {"exact", r.error.exact, "every element equals " + target},
      {"sqnr_vs_uncompressed_db", json_of(r.versus_uncompressed.sqnr_db),
       r.versus_uncompressed.exact ? "dB; no difference"
                                   : "dB, against the same algorithm uncompressed"},
      {"max_abs_error_vs_uncompressed", json_of(r.versus_uncompressed.max_abs_error), ""},
      {"rmse_vs_uncompressed", json_of(r.versus_uncompressed.rmse), ""},
      {"ranks_identical", alike ? Json(!r.difference.has_value()) : Json(nullptr),
       !alike         ? "not applicable: ranks end with different data"
       : r.difference ? fmt::format("rank {} differs from rank 0 first at element {}",
                                    r.difference->rank, r.difference->element)
                      : "all ranks hold the same bits"},
      {"wire_bits_per_element", r.wire.bits_per_element, "average over all sends"},
      {"wire_bytes", count_json(r.wire.bytes), "all sends of all ranks"},
      {"encoded", r.counts.encoded, "elements encoded, all ranks and steps"},
      {"clamped", r.counts.clamped, "of these, beyond the code range"},
      {"flushed", r.counts.flushed, "of these, not zero before and zero after"},
      {"non_finite", r.error.non_finite_result, "elements of the result that are NaN or infinite"},
      {"non_finite_exact", r.error.non_finite_target, "elements of " + target + " that are"},
      {"float64_sum_exact", exact.inexact == 0,
       !sums ? "nothing is summed"
       : exact.inexact == 0
           ? "the float64 sum of the inputs is exact"
           : fmt::format("the float64 sum of {} elements was rounded", exact.inexact)},
  };
}

}  // namespace arlab::cli

#include "experiments/cli/reduction.h"

#include "reference/codecs/registry.h"

namespace arlab::cli {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

Reduction run_reduction(const Schedule& schedule, const Codec& codec, const Tensor& inputs,
                        const ExactSum& exact, const ExecuteOptions& options) {
  Reduction reduction;
  reduction.wire = wire_volume(schedule, codec, inputs.dtype);
  reduction.outputs = make_tensor(inputs.dtype, inputs.shape);

  // The uncompressed run first, so that its outputs can make room for the real ones.
  const CodecPtr plain = find_codec(name_of(inputs.dtype));
  execute(schedule, *plain, inputs.dtype, inputs.bytes(), reduction.outputs.bytes(), options);
  const std::vector<double> uncompressed = to_double(inputs.dtype, reduction.outputs.rank_bytes(0));

  reduction.counts =
      execute(schedule, codec, inputs.dtype, inputs.bytes(), reduction.outputs.bytes(), options);
  const auto result = reduction.outputs.rank_bytes(0);
  reduction.error = compare(exact.values, inputs.dtype, result, options.threads);
  reduction.versus_uncompressed = compare(uncompressed, inputs.dtype, result, options.threads);
  reduction.difference =
      first_rank_difference(inputs.dtype, schedule.world_size, reduction.outputs.bytes());
  return reduction;
}

std::vector<Field> reduction_fields(const Reduction& r, const ExactSum& exact) {
  const bool lost = r.error.lost > 0;
  return {
      {"sqnr_db", json_of(r.error.sqnr_db),
       r.error.exact ? "dB; no error at all: every element equals the exact sum"
       : lost        ? "dB; none: finite sums became non-finite"
                     : "dB, against the exact sum"},
      {"finite_sqnr_db", json_of(r.error.finite_sqnr_db), "dB, finite elements only"},
      {"max_abs_error", json_of(r.error.max_abs_error), "against the exact sum"},
      {"rmse", json_of(r.error.rmse), "against the exact sum"},
      {"cosine", json_of(r.error.cosine), "with the exact sum"},
      {"exact", r.error.exact, "every element equals the exact sum"},
      {"sqnr_vs_uncompressed_db", json_of(r.versus_uncompressed.sqnr_db),
       r.versus_uncompressed.exact ? "dB; no difference"
                                   : "dB, against the same algorithm uncompressed"},
      {"max_abs_error_vs_uncompressed", json_of(r.versus_uncompressed.max_abs_error), ""},
      {"rmse_vs_uncompressed", json_of(r.versus_uncompressed.rmse), ""},
      {"ranks_identical", !r.difference.has_value(),
       r.difference ? fmt::format("rank {} differs from rank 0 first at element {}",
                                  r.difference->rank, r.difference->element)
                    : "all ranks hold the same bits"},
      {"wire_bits_per_element", r.wire.bits_per_element, "average over all sends"},
      {"wire_bytes", r.wire.bytes, "all sends of all ranks"},
      {"encoded", r.counts.encoded, "elements encoded, all ranks and steps"},
      {"clamped", r.counts.clamped, "of these, beyond the code range"},
      {"flushed", r.counts.flushed, "of these, not zero before and zero after"},
      {"non_finite", r.error.non_finite_result, "elements of the result that are NaN or infinite"},
      {"non_finite_exact", r.error.non_finite_target, "elements of the exact sum that are"},
      {"float64_sum_exact", exact.inexact == 0,
       exact.inexact == 0
           ? "the float64 sum of the inputs is exact"
           : fmt::format("the float64 sum of {} elements was rounded", exact.inexact)},
  };
}

}  // namespace arlab::cli

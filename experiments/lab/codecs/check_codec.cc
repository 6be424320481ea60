// Does what holds of every codec hold of this one? Then its kernels.

#include <fmt/ranges.h>

#include <map>

#include "experiments/lab/bits/collective.h"
#include "experiments/lab/bits/reduction.h"
#include "experiments/lab/gpus/conform.h"
#include "experiments/lab/questions.h"
#include "reference/codecs/properties.h"
#include "reference/codecs/registry.h"
#include "reference/tensors/synthetic.h"

namespace arlab::lab {
namespace {

struct CheckCodecRequest {
  std::string name;
  std::string platform;
  std::string kernel_folder;

  /// Less than conform does: world sizes and lengths at which kernels change what they do.
  static kernels::ConformanceRequest request_of(const Codec& codec) {
    kernels::ConformanceRequest request{
        .codecs = {codec.name()}, .ranks = {2, 3}, .lengths = kernels::lengths_up_to(5003)};
    for (const Algorithm& algorithm : all_algorithms()) {
      request.algorithms.push_back(algorithm.name);
    }
    return request;
  }

  /// Says what is lost of standard normal values, which a scale that is part of the name need not fit.
  static std::string out_of_gaussian_range(const Codec& codec) {
    std::map<std::string, std::vector<std::string_view>> lost;  // dtypes by what is lost
    for (const DType dtype : codec.info().dtypes) {
      const Tensor tensor = make_synthetic("gaussian", dtype, 2, 1 << 14);
      const RankPayloads inputs = tensor;
      const Codecs codecs(codec);
      const Schedule schedule = CollectiveSpec{.algorithm = "broadcast"}.make(
          2, tensor.elements_per_rank(), codecs.alignment());
      const Reduction r = run_compressed(
          schedule, codecs, inputs, 0, exact_result(schedule.collective, inputs), {.count = true});
      const std::string others =
          fmt::format("{} of {} elements become NaN or infinite, others have {:.1f} dB",
                      r.error.lost, r.error.elements, r.error.finite_sqnr_db.value_or(0));
      if (is_half_there(r.error)) continue;
      lost[r.out_of_range.empty() ? others : r.out_of_range].push_back(name_of(dtype));
    }
    std::string text;
    for (const auto& [what, dtypes] : lost) {
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", fmt::join(dtypes, ", "), what);
    }
    return text;
  }

  Result answer() const {
    const CodecPtr codec = find_codec(name);
    const kernels::Platform* on =
        platform.empty() ? nullptr : &platform_of(platform, kernel_folder);
    if (on != nullptr && !on->has_codec(codec->name())) {
      fail("platform {} has no kernels for codec {}", platform, codec->name());
    }
    Result report{"arlab.check.codec/1"};
    report.rows_name = "checks";
    report.rows.columns = {"property", "dtype", "verdict", "cases", "detail"};
    std::uint64_t violations = 0;
    std::string verdict;
    const auto add = [&](const std::string& property, DType dtype, const PropertyResult& result,
                         std::string_view rule = "the reference's bits") {
      report.rows.rows.push_back(
          {property, name_of(dtype), name_of(result.verdict), result.cases, result.detail});
      if (result.verdict != Verdict::violated || violations++ != 0) return;
      verdict = fmt::format("codec {} violates {} in {}: {}; allowed: {}", codec->name(), property,
                            name_of(dtype), result.detail, rule);
    };
    for (const CodecProperty& property : codec_properties()) {
      for (const DType dtype : codec->info().dtypes) {
        add(std::string(property.name), dtype, check_property(property.name, *codec, dtype),
            property.summary);
      }
    }
    ConformanceSummary summary;
    if (on != nullptr) summary.run(*on, request_of(*codec));
    for (const ConformanceSummary::Check& check : summary.checks()) {
      const kernels::ConformanceRow& row = check.total;
      PropertyResult result{.cases = row.compared_elements};
      if (row.mismatches != 0) {
        const std::string text = mismatches_text(row);
        result.verdict = Verdict::violated;
        result.detail =
            fmt::format("{} mismatches; {}", row.mismatches, text.substr(0, text.find('\n')));
      }
      add(fmt::format("{} on {}", row.subject, platform), row.dtype, result);
    }

    report.figures = {{"codec", codec->name()},
                      {"platform", platform.empty() ? Cell() : Cell(platform),
                       "whose kernels are compared with the reference"},
                      {"violations", violations}};
    const std::string lost = violations == 0 ? out_of_gaussian_range(*codec) : "";
    if (!lost.empty())
      report.figures.push_back({"out_of_range", lost, "of standard normal values"});
    summary.add_mismatches_to(report);
    report.verdict = verdict;
    return report;
  }
};

std::vector<BoundField> fields(CheckCodecRequest& r) {
  return {field("codec", &r.name, "Check this codec (see arlab list codecs)").by_place("codec"),
          field("platform", &r.platform,
                "Compare the codec's kernels, too: host (emulated GPUs), or cuda or rocm if built"),
          kernel_folder_field(r.kernel_folder)};
}

/// Returns the properties' texts for --help.
std::string explanation() {
  std::string text = "Properties\n";
  for (const CodecProperty& property : codec_properties()) {
    text += fmt::format("  {:<14} {}\n", property.name, property.summary);
  }
  return text +
         "  With --platform also, bit for bit: encode, decode, decode_add, and every algorithm.\n";
}

}  // namespace

Question check_codec_question() {
  return question<CheckCodecRequest>(
      "check-codec", "Check the rules of all codecs on one: NaNs, tails, foreign bytes, ...",
      &CheckCodecRequest::answer, explanation());
}

}  // namespace arlab::lab

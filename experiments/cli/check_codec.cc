// arlab check-codec: what holds of every codec, checked on one; then its kernels.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/cli/commands.h"
#include "experiments/cli/conform.h"
#include "experiments/cli/options.h"
#include "reference/codecs/properties.h"
#include "reference/codecs/registry.h"

namespace arlab::cli {
namespace {

struct CheckCodecCommand {
  std::string name;
  std::string platform;
  Format format = Format::table;

  /// The platform, which has kernels for the codec.
  const kernels::Platform& find_kernels(const Codec& codec) const {
    const auto found = kernels::find_platform(platform);
    if (!found.ok()) fail("--platform: {}", found.status().message());
    const auto devices = found.value()->devices();
    if (!devices.ok()) fail("platform {}: {}", platform, devices.status().message());
    if (!found.value()->has_codec(codec.name())) {
      fail("platform {} has no kernels for codec {}", platform, codec.name());
    }
    return *found.value();
  }

  /// Less than conform does: world sizes and lengths at which kernels change what they do.
  static kernels::ConformanceRequest request_of(const Codec& codec) {
    kernels::ConformanceRequest request{
        .codecs = {codec.name()}, .ranks = {2, 3}, .lengths = kernels::lengths_up_to(5003)};
    for (const Algorithm& algorithm : all_algorithms()) {
      request.algorithms.push_back(algorithm.name);
    }
    return request;
  }

  void run() const {
    const CodecPtr codec = find_codec(name);
    const kernels::Platform* on = platform.empty() ? nullptr : &find_kernels(*codec);

    Result report{"arlab.check.codec/1"};
    report.rows_name = "checks";
    report.rows.columns = {"property", "dtype", "verdict", "cases", "detail"};
    std::uint64_t violations = 0;
    std::string first;
    const auto add = [&](const std::string& property, DType dtype, const PropertyResult& result) {
      const std::string in(name_of(dtype));
      report.rows.rows.push_back(
          {property, in, std::string(name_of(result.verdict)), result.cases, result.detail});
      if (result.verdict != Verdict::violated || violations++ != 0) return;
      first =
          fmt::format("codec {} violates {} in {}: {}", codec->name(), property, in, result.detail);
    };
    for (const CodecProperty& property : codec_properties()) {
      for (const DType dtype : codec->info().dtypes) {
        add(std::string(property.name), dtype, check_property(property.name, *codec, dtype));
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

    report.figures = {
        {"codec", codec->name()},
        {"platform", platform.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(platform),
         "whose kernels are compared with the reference"},
        {"violations", violations}};
    if (format == Format::json) {
      report.figures.push_back({"first_mismatches", summary.first_mismatches_json()});
    }
    print(report, format);
    if (violations == 0) return;
    if (format == Format::table && summary.mismatches() != 0) {
      write_stdout("\n" + summary.first_mismatches_text());
    }
    throw CheckFailed(first);
  }
};

/// What the properties say, for --help.
std::string explanation() {
  std::string text = "Properties\n";
  for (const CodecProperty& property : codec_properties()) {
    text += fmt::format("  {:<14} {}\n", property.name, property.summary);
  }
  return text +
         "  With --platform also, bit for bit: encode, decode, decode_add, and every algorithm.\n";
}

}  // namespace

void add_check_codec(CLI::App& app) {
  auto command = std::make_shared<CheckCodecCommand>();
  CLI::App* sub = app.add_subcommand(
      "check-codec", "Check what must hold of every codec on one: NaNs, tails, foreign bytes, ...");
  sub->add_option("codec", command->name, "Codec, see arlab list codecs")->required();
  sub->add_option("--platform", command->platform,
                  "Then compare its kernels: host (emulated GPUs), or cuda or rocm where built");
  sub->footer(explanation());
  add_format(*sub, command->format);
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli

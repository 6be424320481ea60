// arlab model perplexity: how well a network predicts a text when its all-reduces are compressed, and
// how far it is from itself uncompressed.

#include <cstdlib>
#include <filesystem>

#include "experiments/cli/hashes.h"
#include "experiments/cli/model.h"
#include "experiments/cli/model_run.h"
#include "experiments/cli/progress.h"
#include "reference/tensors/file.h"

namespace arlab::cli {
namespace {

using Json = nlohmann::ordered_json;

/// One combination of what may be named several times.
struct PerplexityPoint {
  ModelFormats::Pair formats;
  std::string algorithm;
  std::string codec;
  std::string dtype;
  Rank ranks = 0;
};

struct PerplexityCommand {
  ModelText text;
  ModelCollective collective;
  ModelFormats formats;
  std::vector<std::string> algorithms;
  std::vector<std::string> codecs;
  std::vector<std::string> dtypes;
  std::vector<std::string> ranks;
  std::string layers;
  std::vector<std::string> layer_codecs;
  std::string cache;
  Format format = Format::table;

  std::vector<PerplexityPoint> points() const {
    std::vector<PerplexityPoint> all;
    const std::vector<std::string> unnamed = {""};
    for (const ModelFormats::Pair& pair : formats.pairs()) {
      for (const std::string& count : ranks) {
        const Rank world_size = parse_ranks(count);
        for (const std::string& algorithm : algorithms.empty() ? unnamed : algorithms) {
          for (const std::string& dtype : dtypes.empty() ? unnamed : dtypes) {
            for (const std::string& codec : codecs) {
              all.push_back({pair, algorithm, codec, dtype, world_size});
            }
          }
        }
      }
    }
    return all;
  }

  /// How each layer's sums travel: --codec, unless --layer-codec says otherwise; null for layers
  /// that --layers leaves out.
  std::vector<ModelCollective::Wire> wires_of(const PerplexityPoint& point) const {
    ModelCollective with = collective;
    with.schedule.algorithm = point.algorithm;
    const std::size_t count = text.network().shape.layers;
    const ModelCollective::Wire common = with.wire(point.codec, point.dtype, point.ranks, text);
    std::vector<ModelCollective::Wire> wires(count, common);
    for (const std::string& entry : layer_codecs) {
      const std::size_t equals = entry.find('=');
      if (equals == std::string::npos) {
        fail("--layer-codec {}: allowed is LAYERS=CODEC, as 0,3-5=qr-q8", quote(entry));
      }
      const auto chosen = layers_named(entry.substr(0, equals), count);
      const auto wire = with.wire(entry.substr(equals + 1), std::string(name_of(common.dtype)),
                                  point.ranks, text);
      for (std::size_t layer = 0; layer < count; ++layer) {
        if (chosen[layer]) wires[layer] = wire;
      }
    }
    const std::vector<bool> compressed = layers_named(layers, count);
    for (std::size_t layer = 0; layer < count; ++layer) {
      if (!compressed[layer]) wires[layer].run = nullptr;
    }
    return wires;
  }

  std::vector<Field> run_point(const PerplexityPoint& point,
                               const std::vector<std::vector<float>>& baseline,
                               models::LinearLayers* linears) const {
    const auto wires = wires_of(point);
    std::vector<std::shared_ptr<const models::RunCollective>> of_layer;
    double bits = 0;
    double split_layers = 0;
    for (const auto& wire : wires) {
      of_layer.push_back(wire.run);
      if (wire.run == nullptr) continue;
      bits += wire.bits_per_element;
      ++split_layers;
    }
    models::CompressedAllReduce split(point.ranks, text.network().shape.hidden, wires[0].dtype,
                                      of_layer, collective.threads());
    const auto summary = run_text(text, baseline, split, collective.threads(), linears);
    std::vector<Field> fields = {
        {"ranks", point.ranks},
        {"algorithm", point.algorithm.empty() ? collective.schedule.file : point.algorithm},
        {"codec", point.codec},
        {"dtype", std::string(name_of(wires[0].dtype))},
        {"weights", point.formats.weights.name()},
        {"activations", point.formats.activations.name()}};
    if (!collective.schedule.inner_codec.empty()) {
      fields.push_back({"inner_codec", collective.schedule.inner_codec});
    }
    const auto figures = run_fields(summary, split, bits / split_layers);
    fields.insert(fields.end(), figures.begin(), figures.end());
    return fields;
  }

  /// What the result of a point depends on: also this program.
  std::string key_of(const PerplexityPoint& point, const std::string& inputs) const {
    const ScheduleOptions& s = collective.schedule;
    std::string all = fmt::format(
        "{} {} {} {} {} {} file={} own={} forward={} combine={} group={} micro={} inner={} "
        "accumulate={} platform={} layers={} weights={} activations={} calibration={}",
        quick_hash_of_file(program_file()), inputs, point.algorithm, point.codec, point.dtype,
        point.ranks, s.file.empty() ? "" : quick_hash_of_file(s.file), s.own, s.forward, s.combine,
        s.group_size.value_or(0), s.micro_chunks.value_or(0), s.inner_codec,
        collective.execution.accumulate, collective.platform, layers, point.formats.weights.name(),
        point.formats.activations.name(), point.formats.activations.given ? formats.hash() : "");
    if (is_schedule_file(point.algorithm)) all += " " + quick_hash_of_file(point.algorithm);
    for (const std::string& entry : layer_codecs) all += " " + entry;
    return fmt::format("{:016x}", quick_hash(all));
  }

  /// Results that are there, by a hash of all that they depend on.
  std::optional<std::vector<Field>> read_cached(const std::filesystem::path& path) const {
    if (!std::filesystem::exists(path)) return std::nullopt;
    InputFile file(path);
    const Json json = Json::parse(file.read_rest(), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) fail("{}: not a result that was kept here; remove it", path.string());
    std::vector<Field> fields;
    for (const auto& [name, value] : json.items()) fields.push_back({name, value});
    return fields;
  }

  void run() {
    if (!cache.empty() && !std::filesystem::is_directory(cache)) {
      fail("--cache {}: there is no such folder", cache);
    }
    const std::vector<PerplexityPoint> all = points();
    text.load();
    for (const PerplexityPoint& point : all) wires_of(point);  // what cannot be is said at once
    const std::string inputs = cache.empty() ? "" : text.hash();

    std::optional<std::vector<std::vector<float>>> baseline;
    // Of the last point; those with the same formats follow each other.
    std::unique_ptr<models::QuantizedLayers> linears;
    std::string linears_are;
    std::vector<std::vector<Field>> results;
    Progress progress(all.size());
    for (const PerplexityPoint& point : all) {
      const auto path = std::filesystem::path(cache) / (key_of(point, inputs) + ".json");
      std::optional<std::vector<Field>> found;
      if (!cache.empty()) found = read_cached(path);
      if (!found) {
        if (!baseline) baseline = baseline_of(text, collective.threads());
        const std::string formats_are =
            point.formats.weights.name() + " " + point.formats.activations.name();
        if (formats_are != linears_are) {
          linears.reset();  // before there are others
          linears = formats.layers(point.formats, text, collective.threads());
          linears_are = formats_are;
        }
        found = run_point(point, *baseline, linears.get());
        if (!cache.empty()) {
          Json json;
          for (const Field& field : *found) json[field.name] = field.value;
          const std::string line = json_line(json) + "\n";
          write_file(path, {std::as_bytes(std::span(line))});
        }
      }
      results.push_back(std::move(*found));
      if (all.size() > 1) progress.show(results.size());
    }

    Report report{"arlab.model.perplexity/1"};
    report.fields = text.fields();
    if (!layers.empty()) report.fields.push_back({"layers", layers, "that are compressed"});
    if (!collective.platform.empty()) report.fields.push_back({"platform", collective.platform});
    if (results.size() == 1) {
      report.fields.insert(report.fields.end(), results[0].begin(), results[0].end());
    } else {
      report.rows_name = "runs";
      for (const Field& field : results[0]) {
        if (field.name == "baseline_perplexity") report.fields.push_back(field);
      }
      for (const Field& field : results[0]) report.rows.columns.push_back(field.name);
      for (const auto& result : results) {
        report.rows.rows.emplace_back();
        for (const Field& field : result) report.rows.rows.back().push_back(field.value);
      }
      report.shown = {"ranks",
                      "algorithm",
                      "codec",
                      "dtype",
                      "perplexity",
                      "perplexity_ratio",
                      "perplexity_ratio_standard_error",
                      "mean_kl",
                      "top1_agreement_percent",
                      "token_sqnr_db"};
      if (!formats.weights.empty() || !formats.activations.empty()) {
        report.shown.insert(report.shown.begin(), {"weights", "activations"});
      }
    }
    report.fields.push_back({"provenance", "exact", "computed by this network from this text"});
    print(report, format);
  }
};

}  // namespace

void add_model_perplexity(CLI::App& model) {
  auto command = std::make_shared<PerplexityCommand>();
  CLI::App* sub = model.add_subcommand(
      "perplexity", "Perplexity of a text, and KL divergence from the uncompressed network");
  command->text.add_to(*sub);
  command->collective.add_to(*sub);
  sub->remove_option(sub->get_option("--algorithm"));
  auto* by_name = sub->add_option("--algorithm", command->algorithms,
                                  "Algorithms, separated by commas (see arlab list algorithms)")
                      ->delimiter(',');
  by_name->excludes(sub->get_option("--schedule"));
  sub->add_option("--codec", command->codecs, "Codecs, separated by commas (see arlab list codecs)")
      ->delimiter(',')
      ->required();
  sub->add_option("--ranks", command->ranks, "World sizes, separated by commas")
      ->delimiter(',')
      ->required();
  sub->add_option("--dtype", command->dtypes,
                  "fp16, bf16 or fp32, of what is reduced; separated by commas [fp16]")
      ->delimiter(',');
  command->formats.add_to(*sub);
  sub->add_option("--layers", command->layers,
                  "Only these are compressed, as 0,3-5; the others are not split [all]");
  sub->add_option("--layer-codec", command->layer_codecs,
                  "LAYERS=CODEC: another codec for these layers; may be given several times");
  sub->add_option(
      "--cache", command->cache,
      "Folder in which results are kept, and from which those that are there are taken");
  add_format(*sub, command->format);
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli

// How well does a network predict a text when its all-reduces are compressed, and
// how far is it from itself uncompressed?

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "experiments/lab/files.h"
#include "experiments/lab/gpus/conform.h"
#include "experiments/lab/grids/grid.h"
#include "experiments/lab/grids/results_file.h"
#include "experiments/lab/hashes.h"
#include "experiments/lab/models/model_run.h"
#include "experiments/lab/points.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/questions.h"
#include "experiments/lab/request.h"
#include "experiments/lab/sizes.h"
#include "reference/codecs/abstract.h"
#include "reference/csv.h"
#include "reference/json.h"
#include "reference/tensors/file.h"

namespace arlab::lab {
namespace {

namespace fs = std::filesystem;

/// One combination of what may be named several times.
struct PerplexityPoint {
  ModelFormats::Pair formats;
  std::string algorithm;
  std::string codec;
  std::string dtype;
  Rank ranks = 0;
};

struct PerplexityRequest {
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

  /// What is asked; not where results are kept.
  std::vector<BoundField> request() {
    std::vector<BoundField> wire = fields(collective);
    wire.front() = field("algorithm", &algorithms,
                         "Algorithms, separated by commas (see arlab list algorithms)");
    return together(
        fields(text), wire, fields(formats),
        {field("codec", &codecs, "Codecs, separated by commas (see arlab list codecs)").required(),
         field("ranks", &ranks, "World sizes, separated by commas, and FIRST-LAST").required(),
         field("dtype", &dtypes, "fp16, bf16 or fp32, of what is reduced; separated by commas",
               "fp16"),
         field("layers", &layers, "Only these are compressed, as 0,3-5; the others are not split",
               "all"),
         field("layer_codec", &layer_codecs,
               "LAYERS=CODEC: another codec for these layers; may be given several times")
             .one_by_one()});
  }

  std::vector<PerplexityPoint> points() const {
    std::vector<PerplexityPoint> all;
    const std::vector<std::string> unnamed = {""};
    std::vector<std::string> named = codecs;
    join_codecs(named);
    for (const auto& [pair, world_size, algorithm, dtype, codec] : points_of(
             formats.pairs(), integers_in(words_of(ranks), "--ranks", 2, kMaxWorldSize),
             algorithms.empty() ? unnamed : algorithms, dtypes.empty() ? unnamed : dtypes, named)) {
      all.push_back({pair, algorithm, codec, dtype, world_size});
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

  std::vector<Figure> run_point(const PerplexityPoint& point,
                                const std::vector<std::vector<float>>& baseline,
                                models::LinearLayers* linears) const {
    const auto wires = wires_of(point);
    std::vector<std::shared_ptr<const models::RunCollective>> of_layer;
    for (const auto& wire : wires) of_layer.push_back(wire.run);
    models::CompressedAllReduce split(point.ranks, text.network().shape.hidden, wires[0].dtype,
                                      of_layer, collective.threads());
    const auto summary = run_text(text, baseline, split, collective.threads(), linears);
    double bits = 0;
    double split_layers = 0;
    for (const auto& wire : wires) {
      if (wire.run == nullptr) continue;
      bits += wire.sent_bits_per_element();
      ++split_layers;
    }
    std::vector<Figure> fields = {
        {"ranks", point.ranks},
        {"algorithm",
         point.algorithm.empty() ? collective.schedule.schedule_file : point.algorithm},
        {"codec", point.codec},
        {"dtype", name_of(wires[0].dtype)},
        {"weights", point.formats.weights.name()},
        {"activations", point.formats.activations.name()}};
    if (!collective.schedule.inner_codec().empty()) {
      fields.push_back({"inner_codec", collective.schedule.inner_codec()});
    }
    const auto figures = run_fields(summary, split, bits / split_layers);
    fields.insert(fields.end(), figures.begin(), figures.end());
    return fields;
  }

  /// All that the result of a point depends on: the request, where it names several the point's; the bytes
  /// of the files that it names; this program.
  static Json request_of(const PerplexityPoint& point, const Json& common) {
    Json request = common;
    request["ranks"] = point.ranks;
    request["algorithm"] = point.algorithm;
    request["codec"] = point.codec;
    request["dtype"] = point.dtype;
    request["weights"] = point.formats.weights.name();
    request["activations"] = point.formats.activations.name();
    if (is_schedule_file(point.algorithm)) {
      request["file of algorithm"] = quick_hash_of_file(point.algorithm);
    }
    return request;
  }

  /// What is the same for all points.
  Json common_request() {
    Json common = canonical_json(request(), {"threads", "kernel_folder"});
    common["program"] = quick_hash_of_file(program_file());
    if (!collective.platform.empty()) {
      const kernels::Platform& on = platform_of(collective.platform, collective.kernel_folder);
      if (!on.kernels_hash().empty()) common["kernels"] = on.kernels_hash();
    }
    common["file of model"] = text.hash_of_model();
    common["file of text"] = text.hash_of_text();
    if (const std::string& file = collective.schedule.schedule_file; !file.empty()) {
      common["file of schedule"] = quick_hash_of_file(file);
    }
    if (!formats.calibration.empty()) {
      common["file of calibration"] = quick_hash_of_file(formats.calibration);
    }
    std::vector<std::string> names = {collective.schedule.inner_codec()};
    for (const auto* more : {&algorithms, &codecs, &layer_codecs}) {
      names.insert(names.end(), more->begin(), more->end());
    }
    const Json own = own_definitions(names);
    require_told(own, "--cache");
    common.update(own);
    return common;
  }

  /// A result that is kept here, with the request that it is of and a check of both; believed only if
  /// it is of this request. Numbers that JSON does not have are texts in it.
  static std::optional<std::vector<Figure>> read_cached(const fs::path& path, const Json& request) {
    std::error_code error;
    if (fs::status(path, error).type() == fs::file_type::not_found) return std::nullopt;
    const Json json = parse_json<Json>(InputFile(path).read_rest());
    std::vector<Figure> fields;
    std::string differing;
    try {
      if (json != kept(json.at("request"), json.at("result"))) throw std::invalid_argument("check");
      if (json.at("request") != request) {
        differing = differences(json_line(json.at("request")), json_line(request));
      }
      for (const Json& field : json.at("result")) {
        const Json& value = field.at(1);
        fields.push_back({field.at(0),
                          field.at(3) ? Cell(number_of(value.get<std::string>())) : Cell(value),
                          field.at(2)});
      }
    } catch (const std::exception&) {  // JSON's, for what is not there or of another kind
      fail("{}: not a result as it was kept here; remove it", path.string());
    }
    if (!differing.empty()) {
      fail("{}: the result of another request (it differs in: {}); remove it", path.string(),
           differing);
    }
    return fields;
  }

  static void keep(const fs::path& path, const Json& request, const std::vector<Figure>& fields) {
    Json result = Json::array();
    for (const Figure& field : fields) {
      const Json& given = field.value;
      const bool as_text = given.is_number_float() && !std::isfinite(given.get<double>());
      const Json value = as_text ? Json(fmt::format("{}", given.get<double>())) : given;
      result.push_back({field.name, value, field.note, as_text});
    }
    write_file(path, json_line(kept(request, result)) + "\n");
  }

  static Json kept(const Json& request, const Json& result) {
    const std::uint64_t check = quick_hash(json_line(Json::array({request, result})));
    return {{"request", request}, {"result", result}, {"check", fmt::format("{:016x}", check)}};
  }

  Result answer() {
    std::error_code error;
    if (!cache.empty() && fs::exists(cache, error) && !fs::is_directory(cache, error)) {
      fail("--cache {}: it is not a folder", cache);
    }
    const std::vector<PerplexityPoint> all = points();
    text.load();
    for (const PerplexityPoint& point : all) wires_of(point);  // what cannot be is said at once
    if (!cache.empty() && fs::create_directories(cache, error)) {
      // Results in it are believed: nobody else writes there.
      fs::permissions(cache, fs::perms::owner_all, error);
    }
    if (error) fail("--cache {}: {}", cache, error.message());
    const Json common = cache.empty() ? Json() : common_request();

    std::optional<std::vector<std::vector<float>>> baseline;
    // Of the last point; those with the same formats follow each other.
    std::unique_ptr<models::QuantizedLayers> linears;
    std::string linears_are;
    std::vector<std::vector<Figure>> results;
    Progress progress(all.size());
    for (const PerplexityPoint& point : all) {
      fs::path path;
      Json request;
      std::optional<std::vector<Figure>> found;
      if (!cache.empty()) {
        request = request_of(point, common);
        path = fs::path(cache) / fmt::format("{:016x}.json", quick_hash(json_line(request)));
        found = read_cached(path, request);
      }
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
        if (!cache.empty()) keep(path, request, *found);
      }
      results.push_back(std::move(*found));
      if (all.size() > 1) progress.show(results.size());
    }

    Result report{"arlab.model.perplexity/1"};
    report.figures = text.figures();
    if (!layers.empty()) report.figures.push_back({"layers", layers, "that are compressed"});
    if (!collective.platform.empty()) report.figures.push_back({"platform", collective.platform});
    if (results.size() == 1) {
      report.figures.insert(report.figures.end(), results[0].begin(), results[0].end());
    } else {
      report.rows_name = "runs";
      for (const Figure& field : results[0]) {
        if (field.name == "baseline_perplexity") report.figures.push_back(field);
      }
      report.rows = table_of(results);
      report.shown = words_in(
          "ranks algorithm codec dtype perplexity perplexity_ratio "
          "perplexity_ratio_standard_error mean_kl top1_agreement_percent token_sqnr_db "
          "wire_bits_per_element");
      if (!formats.weights.empty() || !formats.activations.empty()) {
        report.shown.insert(report.shown.begin(), {"weights", "activations"});
      }
    }
    report.figures.push_back({"provenance", "exact", "computed by this network from this text"});
    return report;
  }
};

std::vector<BoundField> fields(PerplexityRequest& r) {
  return together(
      r.request(),
      {field(
          "cache", &r.cache,
          "Folder in which results are kept, and from which those that are there are taken; it is "
          "made where there is none")});
}

}  // namespace

Question model_perplexity_question() {
  return question<PerplexityRequest>(
      "model perplexity", "Perplexity of a text, and KL divergence from the uncompressed network",
      &PerplexityRequest::answer);
}

}  // namespace arlab::lab

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
  std::string tail;
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
  std::vector<std::string> tails;
  std::string cache;

  /// Returns the request without the place where results are kept.
  std::vector<BoundField> request() {
    std::vector<BoundField> wire = fields(collective);
    wire.front() = field("algorithm", &algorithms,
                         "Use these algorithms, separated by commas (see arlab list algorithms)");
    return together(
        fields(text), wire, fields(formats),
        {field("codec", &codecs, "Use these codecs, separated by commas (see arlab list codecs)")
             .required(),
         field("ranks", &ranks, "Set the world sizes, separated by commas, and FIRST-LAST")
             .required(),
         field("dtype", &dtypes,
               "Reduce values of these types, separated by commas: fp16, bf16 or fp32", "fp16"),
         field("layers", &layers,
               "Compress only these layers, such as 0,3-5; the others are not split", "all"),
         field("layer_codec", &layer_codecs,
               "Use another codec for some layers, LAYERS=CODEC; may be given several times")
             .one_by_one(),
         field("tail", &tails,
               "Add and normalize sums as a fused kernel does, with the state in the dtype: "
               "rounding=NAME,out=CODEC and others (see the specification of tails); may be given "
               "several times",
               "none: in fp32")
             .one_by_one()});
  }

  std::vector<PerplexityPoint> points() const {
    std::vector<PerplexityPoint> all;
    const std::vector<std::string> unnamed = {""};
    std::vector<std::string> named = codecs;
    join_codecs(named);
    for (const auto& [pair, world_size, algorithm, dtype, codec, tail] :
         points_of(formats.pairs(), integers_in(words_of(ranks), "--ranks", 2, kMaxWorldSize),
                   algorithms.empty() ? unnamed : algorithms, dtypes.empty() ? unnamed : dtypes,
                   named, tails.empty() ? unnamed : tails)) {
      all.push_back({pair, algorithm, codec, dtype, tail, world_size});
    }
    return all;
  }

  /// How each layer's sums travel: --codec, unless --layer-codec says otherwise; null for layers
  /// that --layers leaves out.
  std::vector<ModelCollective::Wire> wires_of(const PerplexityPoint& point) const {
    ModelCollective with = collective;
    with.schedule.algorithm = point.algorithm;
    const std::size_t count = text.network().shape.layers;
    const auto tail = tail_of(point);
    const bool keeps_sum = tail && tail->tail.rounding.keeps_sum;
    const ModelCollective::Wire common =
        keeps_sum ? with.wire("fp32", "fp32", point.ranks, text)
                  : with.wire(point.codec, point.dtype, point.ranks, text);
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

  /// The point's tail, with the rows and the eps of this network.
  std::optional<NetworkTail> tail_of(const PerplexityPoint& point) const {
    if (point.tail.empty()) return std::nullopt;
    const models::LlamaShape& shape = text.network().shape;
    Tail tail = parse_tail("residual=add,norm=rms," + point.tail);
    if (tail.hidden != 0 && tail.hidden != shape.hidden) {
      fail("--tail {}: rows of this network have {} elements", point.tail, shape.hidden);
    }
    tail.hidden = static_cast<std::uint32_t>(shape.hidden);
    if (point.tail.find("eps=") == std::string::npos) {
      tail.eps = static_cast<float>(shape.norm_epsilon);
    }
    const std::string dtype = point.dtype.empty() ? "fp16" : point.dtype;
    if (tail.rounding.keeps_sum && point.codec != dtype) {
      fail(
          "--tail {}: the sum of codec {} is rounded before the tail: allowed with sum=fp32 is "
          "codec {}",
          point.tail, point.codec, dtype);
    }
    return NetworkTail{tail, parse_dtype(dtype)};
  }

  models::CompressedAllReduce split_of(const PerplexityPoint& point,
                                       const std::vector<ModelCollective::Wire>& wires,
                                       const std::optional<NetworkTail>& tail) const {
    std::vector<std::shared_ptr<const models::RunCollective>> of_layer;
    for (const auto& wire : wires) of_layer.push_back(wire.run);
    return {point.ranks,          text.network().shape.hidden,
            wires[0].dtype,       of_layer,
            collective.threads(), tail ? std::optional(tail->dtype) : std::nullopt};
  }

  /// How far the point is from one whose tail rounds as separate kernels do; nothing for such a tail itself.
  std::vector<Figure> beside_unfused(const PerplexityPoint& point,
                                     const std::optional<NetworkTail>& tail,
                                     const std::vector<std::vector<float>>& states,
                                     models::LinearLayers* linears) const {
    if (!tail || tail->tail.rounding == TailRounding{}) return {};
    NetworkTail unfused = *tail;
    unfused.tail.rounding = {};
    PerplexityPoint plain = point;
    plain.tail = {};
    const auto wires = wires_of(plain);
    models::CompressedAllReduce split = split_of(plain, wires, unfused);
    const auto others = states_of(text, split, collective.threads(), linears, unfused);
    const auto summary = summary_of(text, others, states, collective.threads());
    return {
        {"kl_from_unfused", summary.mean_divergence, "nats; from the same with rounding=unfused"},
        {"kl_from_unfused_standard_error", summary.divergence_standard_error,
         fmt::format("by blocks of {} tokens", models::kErrorBlock)}};
  }

  std::vector<Figure> run_point(const PerplexityPoint& point,
                                const std::vector<std::vector<float>>& baseline,
                                models::LinearLayers* linears) const {
    const auto wires = wires_of(point);
    const std::optional<NetworkTail> tail = tail_of(point);
    models::CompressedAllReduce split = split_of(point, wires, tail);
    const auto states = states_of(text, split, collective.threads(), linears, tail);
    const auto summary = summary_of(text, baseline, states, collective.threads());
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
        {"dtype", name_of(tail ? tail->dtype : wires[0].dtype)},
        {"weights", point.formats.weights.name()},
        {"activations", point.formats.activations.name()}};
    if (!collective.schedule.inner_codec().empty()) {
      fields.push_back({"inner_codec", collective.schedule.inner_codec()});
    }
    if (tail) fields.push_back({"tail", name_of(tail->tail)});
    // Sums that stay fp32 are made of values that travel in the dtype.
    if (tail && tail->tail.rounding.keeps_sum) {
      bits = split_layers * 8 * static_cast<double>(size_of(tail->dtype));
    }
    const auto figures = run_fields(summary, split, bits / split_layers);
    fields.insert(fields.end(), figures.begin(), figures.end());
    const auto more = beside_unfused(point, tail, states, linears);
    fields.insert(fields.end(), more.begin(), more.end());
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
    if (!point.tail.empty()) request["tail"] = point.tail;
    if (is_schedule_file(point.algorithm)) {
      request["file of algorithm"] = quick_hash_of_file(point.algorithm);
    }
    return request;
  }

  /// Returns the part of the request that all points share.
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
    for (const PerplexityPoint& point : all) wires_of(point);  // impossible ones fail at once
    if (!cache.empty() && fs::create_directories(cache, error)) {
      // Results in it are trusted: only this user can write there.
      fs::permissions(cache, fs::perms::owner_all, error);
    }
    if (error) fail("--cache {}: {}", cache, error.message());
    const Json common = cache.empty() ? Json() : common_request();

    std::optional<std::vector<std::vector<float>>> baseline;
    // The last point's; points with the same formats follow each other.
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
    if (!layer_codecs.empty()) {
      report.figures.push_back({"layer_codec", fmt::format("{}", fmt::join(layer_codecs, " "))});
    }
    std::ranges::move(collective.figures(), std::back_inserter(report.figures));
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
      if (!tails.empty()) {
        report.shown.insert(report.shown.begin() + 4, "tail");
        report.shown.emplace_back("kl_from_unfused");
      }
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
      {field("cache", &r.cache,
             "Keep results in this folder, and reuse those in it; it is created if missing")});
}

}  // namespace

Question model_perplexity_question() {
  return question<PerplexityRequest>(
      "model perplexity",
      "Measure the perplexity of a text, and the KL divergence from the uncompressed network",
      &PerplexityRequest::answer);
}

}  // namespace arlab::lab

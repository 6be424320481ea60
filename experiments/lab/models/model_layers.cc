// Which layers does compression hurt, and how does its error grow from layer to layer? Which codec can each layer do with?

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/lab/bits/reduction.h"
#include "experiments/lab/models/model_run.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/questions.h"
#include "experiments/models/layers.h"

namespace arlab::lab {
namespace {

/// All layers' sums travel alike.
models::CompressedAllReduce uniform(const ModelText& text, const ModelCollective& collective,
                                    const ModelCollective::Wire& wire, Rank ranks) {
  const models::LlamaShape& shape = text.network().shape;
  return {ranks, shape.hidden, wire.dtype,
          std::vector<std::shared_ptr<const models::RunCollective>>(shape.layers, wire.run),
          collective.threads()};
}

struct LayersRequest {
  ModelText text;
  ModelCollective collective;
  std::string codec;
  std::string dtype;
  std::string ranks;

  Result answer() {
    const Rank world_size = parse_ranks(ranks);
    text.load();
    const auto wire = collective.wire(codec, dtype, world_size, text);
    const models::Llama& network = text.network();
    const std::size_t layers = network.shape.layers;

    models::CompressedAllReduce whole = uniform(text, collective, wire, world_size);
    const auto growth = models::error_growth(network, text.chunks(), whole, collective.threads());
    models::CompressedAllReduce single = uniform(text, collective, wire, world_size);
    Progress progress(layers * text.chunks().size());
    std::size_t done = 0;
    const auto alone = models::one_layer_at_a_time(
        network, text.chunks(), single, collective.threads(), [&] { progress.show(++done); });

    Result report{"arlab.model.layers/1"};
    report.figures = text.figures();
    const std::vector<Figure> more = {
        {"ranks", world_size},
        {"algorithm", collective.schedule.name()},
        {"codec", codec},
        {"dtype", name_of(wire.dtype)},
        {"provenance", "exact", "computed by this network from this text"}};
    report.figures.insert(report.figures.end(), more.begin(), more.end());
    std::ranges::move(collective.figures(), std::back_inserter(report.figures));
    report.rows_name = "layers";
    report.rows.columns = words_in(
        "layer attention_output_token_sqnr_db ffn_down_token_sqnr_db state_sqnr_db "
        "state_token_sqnr_db alone_mean_kl alone_p99_kl alone_perplexity "
        "alone_top1_agreement_percent");
    report.shown = {"layer", "attention_output_token_sqnr_db", "ffn_down_token_sqnr_db",
                    "state_token_sqnr_db", "alone_mean_kl"};
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const auto summary = models::summary_of(alone[layer]);
      const auto sqnr = [&](models::Projection projection) {
        return decibels(
            models::median_token_sqnr_db(whole.figures(layer, projection).token_sqnr_db));
      };
      report.rows.rows.push_back(
          {layer, sqnr(models::Projection::attention_output), sqnr(models::Projection::ffn_down),
           decibels(10 * std::log10(growth[layer].signal / growth[layer].error)),
           decibels(models::median_token_sqnr_db(growth[layer].token_sqnr_db)),
           summary.mean_divergence, summary.p99_divergence, summary.perplexity,
           summary.agreement_percent});
    }
    return report;
  }
};

// ---------------------------------------------------------------- assign

struct AssignRequest {
  ModelText text;
  ModelCollective collective;
  std::vector<std::string> codecs;
  std::string dtype;
  std::string ranks;
  std::optional<double> most_divergence;
  std::optional<std::uint32_t> points;

  /// Finished runs: by the codecs of the layers.
  std::map<std::vector<std::size_t>, models::PerplexitySummary> measured;

  /// "0-3,7=qr-q8 4-6=qr-q6", as --layer-codec takes them.
  std::string text_of(const std::vector<std::size_t>& codec_of_layer) const {
    std::string all;
    for (std::size_t codec = 0; codec < codecs.size(); ++codec) {
      std::string list;
      for (std::size_t first = 0; first < codec_of_layer.size(); ++first) {
        if (codec_of_layer[first] != codec) continue;
        std::size_t last = first;
        while (last + 1 < codec_of_layer.size() && codec_of_layer[last + 1] == codec) ++last;
        list += (list.empty() ? "" : ",") + std::to_string(first);
        if (last > first) list += "-" + std::to_string(last);
        first = last;
      }
      if (!list.empty()) all += fmt::format("{}{}={}", all.empty() ? "" : " ", list, codecs[codec]);
    }
    return all;
  }

  Result answer() {
    if (!(*most_divergence > 0)) fail("--max-kl {}: allowed is more than 0", *most_divergence);
    if (codecs.size() < 2) fail("--codec: name two or more, to choose from");
    const Rank world_size = parse_ranks(ranks);
    text.load();
    const models::Llama& network = text.network();
    const std::size_t layers = network.shape.layers;
    std::vector<ModelCollective::Wire> wires;
    std::vector<double> bits;
    for (const std::string& codec : codecs) {
      wires.push_back(collective.wire(codec, dtype, world_size, text));
      bits.push_back(wires.back().bits_per_element);
      if (wires.back().dtype != wires[0].dtype) {
        fail("{} and {} take no common dtype by themselves: name the --dtype", codecs[0], codec);
      }
    }
    Progress progress(codecs.size() * layers * text.chunks().size());
    std::size_t done = 0;
    std::vector<std::vector<double>> alone(layers);
    for (const auto& wire : wires) {
      models::CompressedAllReduce single = uniform(text, collective, wire, world_size);
      const auto figures = models::one_layer_at_a_time(
          network, text.chunks(), single, collective.threads(), [&] { progress.show(++done); });
      for (std::size_t layer = 0; layer < layers; ++layer) {
        alone[layer].push_back(models::summary_of(figures[layer]).mean_divergence.value_or(NAN));
      }
    }
    const auto path = models::greedy_assignments(alone, bits);

    const auto baseline = baseline_of(text, collective.threads());
    const auto measure = [&](const std::vector<std::size_t>& codec_of_layer) {
      const auto found = measured.find(codec_of_layer);
      if (found != measured.end()) return found->second;
      std::vector<std::shared_ptr<const models::RunCollective>> of_layer;
      for (const std::size_t codec : codec_of_layer) of_layer.push_back(wires[codec].run);
      models::CompressedAllReduce split(world_size, network.shape.hidden, wires[0].dtype, of_layer,
                                        collective.threads());
      const auto states = states_of(text, split, collective.threads());
      const auto summary = summary_of(text, baseline, states, collective.threads());
      measured.emplace(codec_of_layer, summary);
      return summary;
    };
    const auto fits = [&](const std::vector<std::size_t>& codec_of_layer) {
      const auto divergence = measure(codec_of_layer).mean_divergence;
      return divergence && *divergence <= *most_divergence;
    };
    // Every codec by itself, some of the path, and its cheapest that keeps the budget. The layers' joint effect is not quite
    // the sum of their single ones: so the budget is held by measurements, and found by halving.
    for (std::size_t codec = 0; codec < codecs.size(); ++codec) {
      measure(std::vector<std::size_t>(layers, codec));
    }
    const std::size_t wanted = points.value_or(5);
    for (std::size_t i = 0; i < wanted; ++i) {
      const std::size_t at = wanted == 1 ? 0 : i * (path.size() - 1) / (wanted - 1);
      measure(path[at].codec_of_layer);
    }
    std::optional<std::size_t> chosen;
    if (fits(path.front().codec_of_layer)) {
      std::size_t keeps = 0;
      std::size_t breaks = path.size();
      while (breaks - keeps > 1) {
        const std::size_t middle = keeps + (breaks - keeps) / 2;
        (fits(path[middle].codec_of_layer) ? keeps : breaks) = middle;
      }
      chosen = keeps;
    }
    return report(path, bits, alone, chosen, world_size, wires[0].dtype);
  }

  Result report(const std::vector<models::Assignment>& path, const std::vector<double>& bits,
                const std::vector<std::vector<double>>& alone, std::optional<std::size_t> chosen,
                Rank world_size, DType type) const {
    struct Row {
      double bits = 0;
      double predicted = 0;
      const std::vector<std::size_t>* codecs = nullptr;
      const models::PerplexitySummary* summary = nullptr;
    };
    std::vector<Row> rows;
    for (const auto& [codec_of_layer, summary] : measured) {
      Row row{0, 0, &codec_of_layer, &summary};
      for (std::size_t layer = 0; layer < codec_of_layer.size(); ++layer) {
        row.bits += bits[codec_of_layer[layer]] / static_cast<double>(codec_of_layer.size());
        row.predicted += alone[layer][codec_of_layer[layer]];
      }
      rows.push_back(row);
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.bits < b.bits; });
    const auto divergence = [](const Row& row) {
      return row.summary->mean_divergence.value_or(HUGE_VAL);
    };
    Result report{"arlab.model.assign/1"};
    report.figures = text.figures();
    const std::vector<Figure> more = {{"ranks", world_size},
                                      {"algorithm", collective.schedule.name()},
                                      {"dtype", name_of(type)},
                                      {"max_kl", most_divergence, "nats"}};
    report.figures.insert(report.figures.end(), more.begin(), more.end());
    std::ranges::move(collective.figures(), std::back_inserter(report.figures));
    if (chosen) {
      const auto& codec_of_layer = path[*chosen].codec_of_layer;
      report.figures.push_back({"assignment", text_of(codec_of_layer),
                                "the cheapest of the greedy path within the budget, by layers"});
      report.figures.push_back({"wire_bits_per_element", path[*chosen].wire_bits});
      report.figures.push_back(
          {"mean_kl", measured.at(codec_of_layer).mean_divergence, "measured"});
    } else {
      report.figures.push_back({"assignment", nullptr, "none of these codecs keeps the budget"});
    }
    report.figures.push_back({"provenance", "exact", "computed by this network from this text"});
    report.rows_name = "assignments";
    report.rows.columns = {
        "wire_bits_per_element",  "mean_kl",   "predicted_kl", "perplexity", "on_front",
        "top1_agreement_percent", "assignment"};
    for (const Row& row : rows) {
      const bool beaten = std::any_of(rows.begin(), rows.end(), [&](const Row& other) {
        return other.bits <= row.bits && divergence(other) <= divergence(row) &&
               (other.bits < row.bits || divergence(other) < divergence(row));
      });
      report.rows.rows.push_back({row.bits, row.summary->mean_divergence,
                                  std::isnan(row.predicted) ? Json(nullptr) : Json(row.predicted),
                                  row.summary->perplexity, !beaten, row.summary->agreement_percent,
                                  text_of(*row.codecs)});
    }
    return report;
  }
};

const char* const kDtypeHelp = "Reduce values of this type: fp16, bf16 or fp32";

std::vector<BoundField> fields(LayersRequest& r) {
  return together(fields(r.text), fields(r.collective),
                  {field("codec", &r.codec, "Use this codec (see arlab list codecs)").required(),
                   field("ranks", &r.ranks, "Set the world size").required(),
                   field("dtype", &r.dtype, kDtypeHelp, "fp16")});
}

std::vector<BoundField> fields(AssignRequest& r) {
  return together(
      fields(r.text), fields(r.collective),
      {field("codec", &r.codecs, "Choose from these codecs, separated by commas").required(),
       field("max_kl", &r.most_divergence, "Limit the mean KL divergence, in nats per token")
           .required(),
       field("ranks", &r.ranks, "Set the world size").required(),
       field("dtype", &r.dtype, kDtypeHelp, "fp16"),
       field("points", &r.points, "Run N assignments of the greedy path, for the Pareto front", "5")
           .from(1, 1000)});
}

}  // namespace

Question model_layers_question() {
  return question<LayersRequest>(
      "model layers",
      "Measure layer by layer how the error grows, and what compressing only that layer costs",
      &LayersRequest::answer);
}

Question model_assign_question() {
  return question<AssignRequest>(
      "model assign",
      "Choose a codec per layer: the fewest bits within a budget of KL divergence, greedily",
      &AssignRequest::answer);
}

}  // namespace arlab::lab

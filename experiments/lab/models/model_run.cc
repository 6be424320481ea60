#include "experiments/lab/models/model_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/lab/bits/reduction.h"
#include "experiments/lab/bits/tensor_source.h"
#include "experiments/lab/gpus/conform.h"
#include "experiments/lab/hashes.h"
#include "experiments/lab/points.h"
#include "experiments/lab/progress.h"
#include "experiments/lab/sizes.h"
#include "experiments/models/tailed.h"
#include "kernels/runtime/platforms.h"
#include "reference/codecs/anybit.h"
#include "reference/codecs/registry.h"
#include "reference/memory.h"
#include "reference/tensors/file.h"

namespace arlab::lab {
namespace {

/// A platform's kernels; its group and the calls it is given.
models::RunCollective on_platform(const kernels::Platform& on, const std::string& codec,
                                  DType dtype, const CollectiveSpec& schedule, const Sum& sum,
                                  Rank ranks, models::MakeSchedule make) {
  const std::string name(on.name());
  const kernels::CommunicatorOptions options;
  const int world_size = static_cast<int>(ranks);
  require_memory(on.team_bytes(on.devices_of_group(world_size), options),
                 fmt::format("a team of {}", ranks));
  auto made = on.make_group(world_size, options);
  if (!made.ok()) fail("platform {}: {}", name, made.status().message());
  const std::shared_ptr<kernels::Group> group = std::move(made.value());
  auto schedules = std::make_shared<std::map<std::uint64_t, std::shared_ptr<const Schedule>>>();
  return [=, make = std::move(make)](std::uint64_t elements, std::span<const std::byte> inputs,
                                     std::span<std::byte> outputs) {
    kernels::CollectiveRequest request{schedule.algorithm, codec, dtype, elements, {}};
    request.sum = sum;
    if (schedule.schedule_file.empty()) {
      request.options = schedule.request(ranks, elements, 1).options;
    } else {
      auto& kept = (*schedules)[elements];
      if (!kept) kept = std::make_shared<const Schedule>(make(elements));
      request.schedule = kept;
      request.options.set("inner_codec", schedule.options.get("inner_codec"));
    }
    const auto status = group->run({.collective = request}, inputs, outputs);
    if (!status.ok()) fail("platform {}: {}", name, status.message());
  };
}

}  // namespace

std::vector<BoundField> fields(ModelText& t) {
  return {
      field("model", &t.model,
            "Load smollm2, a .gguf file, or a folder with config.json and .safetensors, of the "
            "Llama type")
          .required(),
      field("text", &t.text, "Read this text in UTF-8").required(),
      field("context", &t.context,
            "Cut the text into chunks of N tokens; the network sees nothing before a chunk",
            "1024, or what it was made for")
          .from(2, 1U << 20),
      field("tokens", &t.most_tokens, "Use at most the first N tokens", "all").from(2, UINT32_MAX)};
}

void ModelText::load() {
  InputFile file(text);  // before the model, which takes longer
  text_bytes_ = file.read_rest();
  if (!loaded_) load_network();
  chunks_ = chunks_in(text_bytes_, text, most_tokens);
}

void ModelText::load_network() {
  loaded_ = models::load_model(model);
  if (!loaded_->tokenizer) fail("{}: it has no tokenizer.json", loaded_->weights.string());
  const std::size_t most = network().shape.context;
  if (most < 2) {
    fail("{}: it was made for a context of {} token: needed are 2, to predict one from another",
         model, most);
  }
  if (context_tokens() > most) {
    fail("--context {}: {} was made for at most {} tokens", context_tokens(), model, most);
  }
}

std::vector<std::vector<models::TokenId>> ModelText::chunks_in(
    const std::string& bytes, const std::string& path, std::optional<std::uint32_t> most) const {
  std::vector<models::TokenId> ids = loaded_->tokenizer->encode(bytes, path);
  if (most && *most < ids.size()) ids.resize(*most);
  auto chunks = models::chunks_of(ids, context_tokens());
  if (chunks.empty()) {
    fail("{}: {} tokens are too few: needed are {}", path, ids.size(),
         std::min(context_tokens(), models::kShortestRest));
  }
  return chunks;
}

std::vector<std::vector<models::TokenId>> ModelText::chunks_of_file(const std::string& path) const {
  InputFile file(path);
  return chunks_in(file.read_rest(), path, std::nullopt);
}

std::size_t ModelText::context_tokens() const {
  return context.value_or(std::min<std::size_t>(1024, network().shape.context));
}

std::size_t ModelText::tokens() const {
  std::size_t count = 0;
  for (const auto& chunk : chunks_) count += chunk.size();
  return count;
}

std::string ModelText::hash_of_model() const {
  namespace fs = std::filesystem;
  const fs::path& weights = loaded_->weights;
  std::error_code error;
  std::vector<fs::path> files = {weights};
  if (fs::is_directory(weights, error)) {
    files.clear();
    for (const fs::path& path : paths_in(weights, error)) {
      if (fs::is_regular_file(path, error)) files.push_back(path);
    }
  }
  if (error) fail("cannot read {}: {}", weights.string(), error.message());
  std::string all = loaded_->name;
  for (const fs::path& file : files) {
    all += fmt::format(" {} {}", file.filename().string(), quick_hash_of_file(file));
  }
  return fmt::format("{:016x}", quick_hash(all));
}

std::string ModelText::hash_of_text() const {
  return fmt::format("{:016x}", quick_hash(text_bytes_));
}

std::vector<Figure> ModelText::figures() const {
  const models::LlamaShape& s = network().shape;
  return {{"model", model, fmt::format("{} layers, width {}, FFN {}", s.layers, s.hidden, s.ffn)},
          {"text", text},
          {"context", context_tokens(), "tokens of a chunk"},
          {"tokens", tokens(), fmt::format("in {} chunks", chunks_.size())},
          {"scored_tokens", tokens() - chunks_.size(), "all but the first of each chunk"}};
}

std::vector<Figure> ModelCollective::figures() const {
  std::vector<Figure> figures = execution.figures();
  std::ranges::move(option_figures(schedule.options), std::back_inserter(figures));
  return figures;
}

std::vector<BoundField> fields(ModelCollective& c) {
  return together(fields(c.schedule),
                  {field("platform", &c.platform,
                         "Run kernels instead of the reference: host (emulated GPUs), or cuda or "
                         "rocm if built; same bits"),
                   kernel_folder_field(c.kernel_folder)},
                  fields(c.execution));
}

ModelCollective::Wire ModelCollective::wire(const std::string& codec, const std::string& dtype,
                                            Rank ranks, const ModelText& text) const {
  std::vector<std::size_t> tokens;
  for (const auto& chunk : text.chunks()) tokens.push_back(chunk.size());
  return wire(codec, dtype, ranks, text.network(), tokens);
}

ModelCollective::Wire ModelCollective::wire(const std::string& codec, const std::string& dtype,
                                            Rank ranks, const models::Llama& network,
                                            std::span<const std::size_t> tokens) const {
  const models::LlamaShape& shape = network.shape;
  network.require_splits(ranks);
  CollectiveSpec options = schedule;
  const std::string outer_name = split_codecs(codec, options.options);
  const CodecPtr outer = find_codec(with_row_length(outer_name, shape.hidden));
  const CodecPtr inner = options.inner_codec().empty()
                             ? outer
                             : find_codec(with_row_length(options.inner_codec(), shape.hidden));
  Wire wire;
  wire.codec = outer_name == codec ? outer->name() : codec;
  wire.dtype = dtype.empty() ? default_dtype(*outer) : parse_dtype(dtype);
  require_takes(*outer, wire.dtype, "--dtype");
  require_takes(*inner, wire.dtype, "--dtype");
  ExecuteOptions execute_options = execution.make();
  execute_options.count = false;
  give_own(execute_options.sum, options);
  const models::MakeSchedule make = [options, outer, inner, ranks](std::uint64_t elements) {
    Schedule made = options.make(ranks, elements, Codecs(*outer, *inner).alignment());
    if (made.collective != Collective::all_reduce) {
      fail("{}: a network needs an all-reduce", made.algorithm);
    }
    return made;
  };
  // All sizes, so that long work does not end in an error.
  for (const std::size_t count : tokens) {
    const Schedule made = make(count * shape.hidden);
    if (wire.bits_per_element == 0) {
      wire.bits_per_element =
          wire_volume(made, Codecs(*outer, *inner), wire.dtype).bits_per_element;
    }
    require_whole_blocks(made, Codecs(*outer, *inner));
  }
  std::shared_ptr<models::SentBytes> bytes;
  if (outer->info().has_variable_wire || inner->info().has_variable_wire) {
    wire.bytes = bytes = std::make_shared<models::SentBytes>();
  }
  wire.run = std::make_shared<const models::RunCollective>(
      platform.empty()
          ? models::in_reference(make, outer, inner, wire.dtype, execute_options, bytes)
          : on_platform(platform_of(platform, kernel_folder), outer->name(), wire.dtype, options,
                        execute_options.sum, ranks, make));
  return wire;
}

double ModelCollective::Wire::sent_bits_per_element() const {
  if (bytes == nullptr || bytes->most == 0) return bits_per_element;
  return bits_per_element * static_cast<double>(bytes->sent) / static_cast<double>(bytes->most);
}

std::vector<BoundField> fields(ModelFormats& f) {
  return {field("weights", &f.weights,
                "Quantize the layers' weights to these formats: none, int8[-tensor][-asym], "
                "fp8[-tensor], int4-g<G>[-asym]; separated by commas",
                "none"),
          field("activations", &f.activations,
                "Quantize activations to these formats: none, fp16, bf16, int8[-asym], "
                "int8-tensor[-asym][-static], fp8, fp8-tensor[-static]; separated by commas",
                "none"),
          field("calibration", &f.calibration,
                "Calibrate the scales of -static activations on this text")};
}

std::vector<ModelFormats::Pair> ModelFormats::pairs() const {
  const std::vector<std::string> unnamed = {"none"};
  std::vector<Pair> all;
  for (const auto& [w, x] : points_of(weights.empty() ? unnamed : weights,
                                      activations.empty() ? unnamed : activations)) {
    all.push_back({parse_operand(Operand::weights, w), parse_operand(Operand::activations, x)});
    if (all.back().activations.given && calibration.empty()) {
      fail("--activations {}: name the --calibration text that its scales come from", x);
    }
  }
  if (!calibration.empty() && std::none_of(all.begin(), all.end(), [](const Pair& pair) {
        return pair.activations.given;
      })) {
    fail("--calibration {}: only for --activations that end in -static", calibration);
  }
  return all;
}

std::unique_ptr<models::QuantizedLayers> ModelFormats::layers(const Pair& pair,
                                                              const ModelText& text,
                                                              unsigned threads) const {
  std::vector<std::vector<models::TokenId>> chunks;
  if (pair.activations.given) chunks = text.chunks_of_file(calibration);
  return quantized_layers(text.network(), pair, chunks, threads);
}

std::unique_ptr<models::QuantizedLayers> quantized_layers(
    const models::Llama& network, const ModelFormats::Pair& pair,
    const std::vector<std::vector<models::TokenId>>& calibration, unsigned threads) {
  if (pair.weights == OperandFormat() && pair.activations == OperandFormat()) return nullptr;
  std::vector<Extremes> extremes;
  if (pair.activations.given) {
    extremes = models::input_extremes(network, calibration, threads, [] { write_progress(""); });
  }
  return std::make_unique<models::QuantizedLayers>(network, pair.weights, pair.activations,
                                                   extremes, threads);
}

Rank parse_ranks(const std::string& text) {
  const std::uint64_t ranks = parse_count(text, "--ranks");
  if (ranks < 2 || ranks > kMaxWorldSize) {
    fail("--ranks {}: allowed are 2 to {}", ranks, kMaxWorldSize);
  }
  return static_cast<Rank>(ranks);
}

std::vector<bool> layers_named(const std::string& list, std::size_t layers) {
  if (list.empty()) return std::vector<bool>(layers, true);
  std::vector<bool> named(layers, false);
  const auto last = static_cast<std::uint32_t>(layers - 1);
  for (const std::uint32_t layer : integers_in(list, "layers", 0, last)) named[layer] = true;
  return named;
}

std::vector<std::vector<float>> baseline_of(const ModelText& text, unsigned threads) {
  std::vector<std::vector<float>> all;
  for (const auto& chunk : text.chunks()) {
    all.push_back(text.network().run(chunk, nullptr, threads));
    write_progress("");  // the listener may want to stop
  }
  return all;
}

std::vector<std::vector<float>> states_of(const ModelText& text, models::CompressedAllReduce& split,
                                          unsigned threads, models::LinearLayers* linears,
                                          const std::optional<NetworkTail>& tail) {
  std::vector<std::vector<float>> states;
  for (const auto& chunk : text.chunks()) {
    std::optional<models::TailedState> tailed;
    if (tail) tailed.emplace(tail->tail, tail->dtype, threads);
    states.push_back(
        text.network().run(chunk, &split, threads, linears, tailed ? &*tailed : nullptr));
    write_progress("");
  }
  return states;
}

models::PerplexitySummary summary_of(const ModelText& text,
                                     const std::vector<std::vector<float>>& baseline,
                                     const std::vector<std::vector<float>>& states,
                                     unsigned threads) {
  models::TokenFigures figures;
  for (std::size_t i = 0; i < states.size(); ++i) {
    models::add_chunk(text.network(), text.chunks()[i], baseline[i], states[i], threads, figures);
    write_progress("");
  }
  return models::summary_of(figures);
}

std::vector<Figure> run_fields(const models::PerplexitySummary& s,
                               const models::CompressedAllReduce& split, double wire_bits) {
  std::optional<double> ratio;
  std::optional<double> ratio_error;
  if (s.log_ratio) ratio = std::exp(*s.log_ratio);
  if (s.log_ratio_standard_error) ratio_error = *ratio * *s.log_ratio_standard_error;
  const std::string by_blocks = fmt::format("by blocks of {} tokens", models::kErrorBlock);
  return {
      {"perplexity", s.perplexity,
       s.perplexity ? "" : "none: what the network computes has become non-finite"},
      {"perplexity_standard_error", s.perplexity_standard_error, by_blocks},
      {"baseline_perplexity", s.baseline_perplexity, "of the network in fp32, not split"},
      {"perplexity_ratio", ratio, "perplexity / baseline, token by token"},
      {"perplexity_ratio_standard_error", ratio_error,
       "of the ratio, whose parts share the text; " + by_blocks},
      {"ln_ratio", s.log_ratio, "ln(perplexity / baseline)"},
      {"ln_ratio_standard_error", s.log_ratio_standard_error, by_blocks},
      {"mean_kl", s.mean_divergence,
       "nats; KL divergence of the next token's probabilities from those uncompressed"},
      {"mean_kl_standard_error", s.divergence_standard_error, by_blocks},
      {"p99_kl", s.p99_divergence, "1 % of the tokens have more"},
      {"top1_agreement_percent", s.agreement_percent, "the likeliest next token is the same"},
      {"token_sqnr_db", decibels(split.median_token_sqnr_db()),
       "dB, of the median token of all sums, against their exact sum"},
      {"wire_bits_per_element", wire_bits, "average over all sends"},
      {"ranks_identical", split.ranks_identical(), "the network goes on with what rank 0 holds"},
  };
}

}  // namespace arlab::lab

#include "experiments/models/model_files.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "experiments/models/checkpoint.h"
#include "experiments/models/gguf.h"
#include "fetched.h"  // made by CMake
#include "reference/error.h"
#include "reference/json.h"
#include "reference/memory.h"
#include "reference/tensors/file.h"
#include "reference/tensors/sha256.h"

namespace arlab::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// More than any model has; what is computed from these fits into 64 bits.
constexpr std::size_t kMost = 1 << 20;

/// Tensors by name, wherever they are.
class Weights {
 public:
  using Shape = std::vector<std::size_t>;

  Weights(std::string source, std::map<std::string, Shape> shapes,
          std::function<std::vector<float>(const std::string&)> read)
      : source_(std::move(source)), shapes_(std::move(shapes)), read_(std::move(read)) {}

  bool has(const std::string& name) const { return shapes_.contains(name); }
  const Shape& shape(const std::string& name) const {
    if (!has(name)) fail("{}: the tensor {} is missing", source_, quote(name));
    return shapes_.at(name);
  }
  std::vector<float> read(const std::string& name, const Shape& wanted) const {
    if (shape(name) != wanted) {
      fail("{}: tensor {} has the shape {}: {} is needed", source_, quote(name),
           shape_text(shape(name)), shape_text(wanted));
    }
    return read_(name);
  }
  Matrix matrix(const std::string& name, std::size_t out, std::size_t in) const {
    return {read(name, {out, in}), out, in};
  }

 private:
  std::string source_;
  std::map<std::string, Shape> shapes_;
  std::function<std::vector<float>(const std::string&)> read_;
};

Weights weights_of(const GgufFile& file) {
  std::map<std::string, Weights::Shape> shapes;
  for (const auto& [name, tensor] : file.tensors()) shapes[name] = tensor.shape;
  return {file.path().string(), std::move(shapes),
          [&file](const std::string& name) { return file.read(name); }};
}

Weights weights_of(const Checkpoint& checkpoint, const fs::path& folder) {
  return {folder.string(), checkpoint.shapes(),
          [&checkpoint](const std::string& name) { return to_floats(checkpoint.read(name)); }};
}

/// Throws unless the figures make a network.
void check_shape(const LlamaShape& s, const std::string& source) {
  const auto require = [&](bool holds, std::string_view what) {
    if (!holds) fail("{}: {}", source, what);
  };
  for (const std::size_t each :
       {s.layers, s.hidden, s.heads, s.key_value_heads, s.head_size, s.ffn, s.vocabulary}) {
    require(each >= 1 && each <= kMost,
            "layers, widths, heads and vocabulary must be from 1 to 2^20");
  }
  require(s.heads % s.key_value_heads == 0, "query heads must be a multiple of key-value heads");
  require(s.head_size % 2 == 0, "the size of a head must be even");
  require(s.attended() <= kMost, "all heads together must be at most 2^20 wide");
  require(s.norm_epsilon >= 0 && s.norm_epsilon < 1,
          "the norm's epsilon must be from 0 to below 1");

  const double layer = 2.0 * static_cast<double>(s.hidden) *
                           static_cast<double>(s.attended() + s.key_value_heads * s.head_size) +
                       3.0 * static_cast<double>(s.hidden) * static_cast<double>(s.ffn);
  const double all = static_cast<double>(s.layers) * layer +
                     3.0 * static_cast<double>(s.hidden) * static_cast<double>(s.vocabulary);
  require(all < 1e15, "it has more weights than can be counted");
  require_memory(static_cast<std::uint64_t>(all * sizeof(float)), source);
}

std::vector<double> plain_frequencies(std::size_t head_size, double base,
                                      const std::string& source) {
  if (!(base > 0 && base < 1e30)) fail("{}: the base of its rotations is {}", source, base);
  std::vector<double> frequencies;
  for (std::size_t i = 0; i < head_size; i += 2) {
    frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(head_size)));
  }
  return frequencies;
}

/// A file's description of a model: values that must be there, of the right kind.
struct Config {
  const Json& json;
  std::string source;

  const Json* find(const char* key) const {
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }
  std::size_t count(const char* key, std::optional<std::size_t> otherwise = {}) const {
    const Json* value = find(key);
    if (value == nullptr && otherwise) return *otherwise;
    if (value == nullptr || !value->is_number_integer() || value->get<std::int64_t>() < 1 ||
        value->get<std::int64_t>() > std::int64_t{kMost}) {
      fail("{}: {} must be an integer from 1 to 2^20", source, quote(key));
    }
    return value->get<std::size_t>();
  }
  double number(const char* key, std::optional<double> otherwise = {}) const {
    const Json* value = find(key);
    if (value == nullptr && otherwise) return *otherwise;
    if (value == nullptr || !value->is_number())
      fail("{}: {} must be a number", source, quote(key));
    return value->get<double>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) fail("{}: {} must be a text", source, quote(key));
    return value->get<std::string>();
  }
  const Json& array(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr || !value->is_array()) fail("{}: {} must be an array", source, quote(key));
    return *value;
  }
  bool flag(const char* key) const {
    const Json* value = find(key);
    if (value != nullptr && !value->is_boolean()) {
      fail("{}: {} must be true or false", source, quote(key));
    }
    return value != nullptr && value->get<bool>();
  }
  /// Throws unless the text is the only one that is known.
  void require(const char* key, const char* known, const std::string& otherwise = "") const {
    if (const std::string found = text(key, otherwise); found != known) {
      fail("{}: {} is {}: only {} is supported", source, key, quote(found), known);
    }
  }
};

/// Keys for the figures of a network in a kind of file, and which of them it may leave out.
struct ShapeKeys {
  const char *layers, *hidden, *heads, *key_value_heads, *head_size, *ffn;
  const char* context;
  std::optional<std::size_t> usual_context = {};
  const char* norm_epsilon;
  std::optional<double> usual_norm_epsilon = {};
};

/// Without rotations.
LlamaShape shape_of(const Config& config, const ShapeKeys& keys, std::size_t vocabulary) {
  LlamaShape s;
  s.layers = config.count(keys.layers);
  s.hidden = config.count(keys.hidden);
  s.heads = config.count(keys.heads);
  s.key_value_heads = config.count(keys.key_value_heads, s.heads);
  if (config.find(keys.head_size) == nullptr && s.hidden % s.heads != 0) {
    fail("{}: {} heads do not divide the width {}", config.source, s.heads, s.hidden);
  }
  s.head_size = config.count(keys.head_size, s.hidden / s.heads);
  s.ffn = config.count(keys.ffn);
  s.vocabulary = vocabulary;
  s.context = config.count(keys.context, keys.usual_context);
  s.norm_epsilon = config.number(keys.norm_epsilon, keys.usual_norm_epsilon);
  check_shape(s, config.source);
  return s;
}

/// Names of tensors in a kind of file.
struct TensorNames {
  const char *embedding, *output_norm, *output;
  const char* layer;  ///< prefix of a layer's, with its number, before one of the following
  const char *attention_norm, *query, *key, *value, *attention_output, *ffn_norm, *gate, *up, *down;
};

/// Brings numbers that turn together side by side in the weights of queries and keys, [out, in].
using RotaryOrder = std::function<std::vector<float>(std::vector<float> weights, std::size_t in)>;

void read_tensors(Llama& network, const Weights& weights, const TensorNames& names, bool has_output,
                  const RotaryOrder& turn) {
  const LlamaShape& s = network.shape;
  const std::size_t narrow = s.key_value_heads * s.head_size;
  const auto turned = [&](const std::string& name, std::size_t out) {
    return Matrix(turn(weights.read(name, {out, s.hidden}), s.hidden), out, s.hidden);
  };
  network.embedding = weights.matrix(names.embedding, s.vocabulary, s.hidden);
  network.output_norm = weights.read(names.output_norm, {s.hidden});
  if (has_output) network.output = weights.matrix(names.output, s.vocabulary, s.hidden);
  for (std::size_t i = 0; i < s.layers; ++i) {
    const auto of = [&](const char* what) {
      return fmt::format(fmt::runtime(names.layer), i, what);
    };
    network.layers.push_back(
        {.attention_norm = weights.read(of(names.attention_norm), {s.hidden}),
         .ffn_norm = weights.read(of(names.ffn_norm), {s.hidden}),
         .query = turned(of(names.query), s.attended()),
         .key = turned(of(names.key), narrow),
         .value = weights.matrix(of(names.value), narrow, s.hidden),
         .attention_output = weights.matrix(of(names.attention_output), s.hidden, s.attended()),
         .gate = weights.matrix(of(names.gate), s.ffn, s.hidden),
         .up = weights.matrix(of(names.up), s.ffn, s.hidden),
         .ffn_down = weights.matrix(of(names.down), s.hidden, s.ffn)});
  }
}

/// Two tokens with a space between them.
void add_merge(TokenizerDescription& description, const std::string& merge) {
  const std::size_t space = merge.find(' ');
  if (space == std::string::npos) {
    fail("{}: merge {} is not two tokens with a space between them", description.source,
         quote(merge));
  }
  description.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
}

// ---------------------------------------------------------------- .gguf

constexpr ShapeKeys kKeysOfGguf = {.layers = "llama.block_count",
                                   .hidden = "llama.embedding_length",
                                   .heads = "llama.attention.head_count",
                                   .key_value_heads = "llama.attention.head_count_kv",
                                   .head_size = "llama.attention.key_length",
                                   .ffn = "llama.feed_forward_length",
                                   .context = "llama.context_length",
                                   .norm_epsilon = "llama.attention.layer_norm_rms_epsilon"};
constexpr TensorNames kNamesOfGguf = {"token_embd.weight",
                                      "output_norm.weight",
                                      "output.weight",
                                      "blk.{}.{}.weight",
                                      "attn_norm",
                                      "attn_q",
                                      "attn_k",
                                      "attn_v",
                                      "attn_output",
                                      "ffn_norm",
                                      "ffn_gate",
                                      "ffn_up",
                                      "ffn_down"};

LlamaShape shape_of(const Config& config, const Weights& weights) {
  config.require("general.architecture", "llama");
  const Weights::Shape& embedding = weights.shape(kNamesOfGguf.embedding);
  LlamaShape s = shape_of(config, kKeysOfGguf, embedding.empty() ? 0 : embedding.front());
  if (config.count("llama.rope.dimension_count", s.head_size) != s.head_size) {
    fail("{}: llama.rope.dimension_count rotates a part of a head: only whole heads are supported",
         config.source);
  }
  if (const std::string type = config.text("llama.rope.scaling.type", "none"); type != "none") {
    fail("{}: llama.rope.scaling.type {}: only rope_freqs.weight is supported", config.source,
         quote(type));
  }
  s.frequencies =
      plain_frequencies(s.head_size, config.number("llama.rope.freq_base", 10000.0), config.source);
  if (weights.has("rope_freqs.weight")) {
    const std::vector<float> divisors = weights.read("rope_freqs.weight", {s.head_size / 2});
    for (std::size_t i = 0; i < divisors.size(); ++i) s.frequencies[i] /= double{divisors[i]};
  }
  return s;
}

Tokenizer tokenizer_of(const Config& config) {
  config.require("tokenizer.ggml.model", "gpt2");  // byte-level BPE
  TokenizerDescription description;
  description.source = config.source;
  config.array("tokenizer.ggml.tokens").get_to(description.tokens);
  for (const Json& merge : config.array("tokenizer.ggml.merges"))
    add_merge(description, merge.get<std::string>());
  std::tie(description.cuts, description.whole_pieces_first) =
      named_cuts(config.text("tokenizer.ggml.pre", "gpt-2"), config.source);
  return Tokenizer(std::move(description));
}

LoadedModel load_gguf(const std::string& name, const fs::path& path) {
  const GgufFile file(path);
  const Config config{file.values(), path.string()};
  const Weights weights = weights_of(file);
  LoadedModel model{.name = name, .weights = path, .network = {}, .tokenizer = {}};
  model.network.shape = shape_of(config, weights);
  model.tokenizer.emplace(tokenizer_of(config));
  read_tensors(model.network, weights, kNamesOfGguf, weights.has(kNamesOfGguf.output),
               [](std::vector<float> values, std::size_t) { return values; });
  return model;
}

// ---------------------------------------------------------------- folders of Hugging Face

Json read_json(const fs::path& path) {
  InputFile file(path);
  Json json = parse_json<Json>(file.read_rest());
  if (!json.is_object()) fail("{}: it is not a JSON object of at most 64 levels", path.string());
  return json;
}

/// Llama 3's: slow rotations are slower by `factor`, fast ones stay, and between them it is gradual.
void slow_down(std::vector<double>& frequencies, const Config& scaling) {
  const double factor = scaling.number("factor");
  const double low = scaling.number("low_freq_factor");
  const double high = scaling.number("high_freq_factor");
  const double length = scaling.number("original_max_position_embeddings");
  if (!(factor > 0 && high > low && low > 0 && length > 0)) {
    fail("{}: the scaling of its rotations has factors that cannot be", scaling.source);
  }
  for (double& frequency : frequencies) {
    const double turns = length * frequency / (2 * std::numbers::pi);
    const double fast = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    frequency = (1 - fast) * frequency / factor + fast * frequency;
  }
}

constexpr ShapeKeys kKeysOfFolder = {.layers = "num_hidden_layers",
                                     .hidden = "hidden_size",
                                     .heads = "num_attention_heads",
                                     .key_value_heads = "num_key_value_heads",
                                     .head_size = "head_dim",
                                     .ffn = "intermediate_size",
                                     .context = "max_position_embeddings",
                                     .usual_context = 2048,
                                     .norm_epsilon = "rms_norm_eps",
                                     .usual_norm_epsilon = 1e-6};
constexpr TensorNames kNamesOfFolder = {"model.embed_tokens.weight",
                                        "model.norm.weight",
                                        "lm_head.weight",
                                        "model.layers.{}.{}.weight",
                                        "input_layernorm",
                                        "self_attn.q_proj",
                                        "self_attn.k_proj",
                                        "self_attn.v_proj",
                                        "self_attn.o_proj",
                                        "post_attention_layernorm",
                                        "mlp.gate_proj",
                                        "mlp.up_proj",
                                        "mlp.down_proj"};

LlamaShape shape_of(const Config& config) {
  config.require("model_type", "llama");
  config.require("hidden_act", "silu", "silu");
  if (config.flag("attention_bias") || config.flag("mlp_bias")) {
    fail("{}: it has biases, which are not supported", config.source);
  }
  LlamaShape s = shape_of(config, kKeysOfFolder, config.count("vocab_size"));

  // Newer files have all about rotations together.
  const Json* together = config.find("rope_parameters");
  const Json* scaling = together != nullptr ? together : config.find("rope_scaling");
  if (scaling != nullptr && !scaling->is_object()) {
    fail("{}: its scaling of rotations is not a JSON object", config.source);
  }
  const Config rope{scaling != nullptr ? *scaling : config.json, config.source};
  s.frequencies = plain_frequencies(
      s.head_size, (together != nullptr ? rope : config).number("rope_theta", 10000.0),
      config.source);
  if (scaling == nullptr) return s;
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "llama3") {
    slow_down(s.frequencies, rope);
  } else if (type != "default") {
    fail("{}: rotations are scaled as {}: only llama3 is supported", config.source, quote(type));
  }
  return s;
}

/// The cuts of a pre_tokenizer of tokenizer.json.
void add_cuts(const Json& pre, const std::string& source, std::vector<std::string>& cuts) {
  const Config config{pre, source};
  const auto unknown = [&] {
    fail("{}: its pre_tokenizer is not supported: {}", source, quote(pre.dump()));
  };
  if (!pre.is_object()) unknown();
  const std::string type = config.text("type", "");
  if (type == "Sequence") {
    const Json* list = config.find("pretokenizers");
    if (list == nullptr || !list->is_array()) unknown();
    for (const Json& each : *list) add_cuts(each, source, cuts);
  } else if (type == "ByteLevel") {
    if (config.flag("add_prefix_space")) unknown();
    if (config.find("use_regex") == nullptr || config.flag("use_regex"))
      cuts.push_back(kCutsOfGpt2);
  } else if (type == "Digits") {
    cuts.push_back(config.flag("individual_digits") ? R"(\p{N})" : R"(\p{N}+)");
  } else if (type == "Split") {
    const Json* pattern = config.find("pattern");
    const bool isolated = config.text("behavior", "") == "Isolated" && !config.flag("invert");
    if (!isolated || pattern == nullptr || !pattern->is_object()) unknown();
    const auto regex = pattern->find("Regex");
    if (regex == pattern->end() || !regex->is_string()) unknown();
    cuts.push_back(regex->get<std::string>());
  } else {
    unknown();
  }
}

Tokenizer tokenizer_of(const fs::path& path) {
  const Json json = read_json(path);
  const Config file{json, path.string()};
  const Json* bpe = file.find("model");
  const Json* pre = file.find("pre_tokenizer");
  if (bpe == nullptr || !bpe->is_object() ||
      Config{*bpe, file.source}.text("type", "BPE") != "BPE" || pre == nullptr ||
      file.find("normalizer") != nullptr) {
    fail("{}: its tokenizer is not supported: allowed is byte-level BPE without a normalizer",
         file.source);
  }
  const Config model{*bpe, file.source};
  TokenizerDescription description;
  description.source = file.source;
  description.whole_pieces_first = model.flag("ignore_merges");
  add_cuts(*pre, file.source, description.cuts);

  const Json* vocabulary = model.find("vocab");
  if (vocabulary == nullptr || !vocabulary->is_object()) {
    fail("{}: 'vocab' must be an object", file.source);
  }
  const auto put = [&](const std::string& token, const Json& id) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kMost) {
      fail("{}: the id of token {} must be an integer below 2^20", file.source, quote(token));
    }
    const auto at = id.get<std::size_t>();
    if (at >= description.tokens.size()) description.tokens.resize(at + 1);
    description.tokens[at] = token;
  };
  for (const auto& [token, id] : vocabulary->items()) put(token, id);
  if (const Json* added = file.find("added_tokens"); added != nullptr && added->is_array()) {
    for (const Json& each : *added) {
      const Config token{each, file.source};
      if (!each.is_object() || token.find("id") == nullptr) continue;
      put(token.text("content", ""), *token.find("id"));
    }
  }
  for (const Json& merge : model.array("merges")) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      description.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    add_merge(description, merge.is_string() ? merge.get<std::string>() : merge.dump());
  }
  return Tokenizer(std::move(description));
}

/// Numbers that turn together lie half a head apart there.
std::vector<float> side_by_side(const std::vector<float>& values, std::size_t in,
                                std::size_t head_size) {
  std::vector<float> turned(values.size());
  for (std::size_t o = 0; o < values.size() / in; ++o) {
    const std::size_t i = o % head_size;
    const std::size_t from = o - i + i / 2 + i % 2 * (head_size / 2);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from * in), in,
                turned.begin() + static_cast<std::ptrdiff_t>(o * in));
  }
  return turned;
}

LoadedModel load_folder(const std::string& name, const fs::path& folder) {
  const Json json = read_json(folder / "config.json");
  const Config config{json, (folder / "config.json").string()};
  LoadedModel model{.name = name, .weights = folder, .network = {}, .tokenizer = {}};
  model.network.shape = shape_of(config);
  const std::size_t head_size = model.network.shape.head_size;
  const Checkpoint checkpoint(folder);
  read_tensors(model.network, weights_of(checkpoint, folder), kNamesOfFolder,
               !config.flag("tie_word_embeddings"),
               [&](const std::vector<float>& values, std::size_t in) {
                 return side_by_side(values, in, head_size);
               });
  std::error_code error;
  if (fs::exists(folder / "tokenizer.json", error)) {
    model.tokenizer.emplace(tokenizer_of(folder / "tokenizer.json"));
  }
  return model;
}

// ---------------------------------------------------------------- names

/// A model that arlab/fetch.py fetches.
struct Fetched {
  std::string file;    ///< in the folder of its name
  std::string sha256;  ///< the file's
};

/// Those of one file, which holds all of the model.
std::optional<Fetched> fetched_named(const std::string& name) {
  static const Json all = parse_json<Json>(kFetched);
  if (!all.contains(name)) return std::nullopt;
  const Json& files = all.at(name).at("files");
  const auto file = files.begin();
  if (files.size() != 1 || !file.key().ends_with(".gguf")) return std::nullopt;
  return Fetched{file.key(), file.value().at(1)};
}

}  // namespace

fs::path cache_folder() {
  for (const auto& [variable, below] :
       {std::pair("ARLAB_CACHE", ""), std::pair("XDG_CACHE_HOME", "arlab"),
        std::pair("HOME", ".cache/arlab")}) {
    const char* const value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
    if (value != nullptr && *value != '\0') return fs::path(value) / below;
  }
  fail("there is no place for a cache: set ARLAB_CACHE, XDG_CACHE_HOME or HOME to a folder");
}

fs::path find_model(const std::string& name) {
  if (const auto fetched = fetched_named(name)) {
    const fs::path path = cache_folder() / "models" / name / fetched->file;
    std::error_code error;
    if (!fs::exists(path, error)) {
      fail("the model {} is not here ({}): fetch it with python -m arlab.fetch {}", name,
           path.string(), name);
    }
    if (sha256_of_file(path) != fetched->sha256) {
      fail(
          "{} is not the model {} (its SHA-256 differs): fetch it with python -m arlab.fetch {}, "
          "or "
          "name the file as --model",
          path.string(), name, name);
    }
    return path;
  }
  const fs::path path(name);
  std::error_code error;
  if (!fs::exists(path, error)) {
    fail(
        "--model {}: allowed are smollm2, a .gguf file, a .safetensors file and a folder with "
        "config.json and .safetensors",
        quote(name));
  }
  return path;
}

LoadedModel load_model(const std::string& name) {
  const fs::path path = find_model(name);
  std::error_code error;
  if (fs::is_directory(path, error)) return load_folder(name, path);
  if (path.extension() == ".safetensors") {
    return load_folder(name, path.has_parent_path() ? path.parent_path() : fs::path("."));
  }
  if (path.extension() == ".gguf") return load_gguf(name, path);
  fail("{}: allowed are .gguf, .safetensors and a folder with config.json", path.string());
}

}  // namespace arlab::models

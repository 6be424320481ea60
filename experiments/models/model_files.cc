#include "experiments/models/model_files.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>

#include "experiments/models/gguf.h"
#include "reference/error.h"
#include "reference/memory.h"
#include "reference/tensors/file.h"
#include "reference/tensors/safetensors.h"

namespace arlab::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// More than any model has; what is computed from these fits into 64 bits.
constexpr std::size_t kMost = 1 << 20;

/// Tensors by name.
class Weights {
 public:
  virtual ~Weights() = default;
  virtual bool has(const std::string& name) const = 0;
  virtual std::vector<std::size_t> shape(const std::string& name) const = 0;
  virtual std::vector<float> read(const std::string& name) const = 0;
  virtual std::string source() const = 0;

  std::vector<float> vector(const std::string& name, std::size_t count) const {
    return read_checked(name, {count});
  }
  Matrix matrix(const std::string& name, std::size_t out, std::size_t in) const {
    return {read_checked(name, {out, in}), out, in};
  }
  std::vector<float> read_checked(const std::string& name,
                                  const std::vector<std::size_t>& wanted) const {
    if (!has(name)) fail("{}: the tensor {} is missing", source(), quote(name));
    if (shape(name) != wanted) {
      fail("{}: tensor {} has the shape {}: {} is needed", source(), quote(name),
           shape_text(shape(name)), shape_text(wanted));
    }
    return read(name);
  }
};

class GgufWeights : public Weights {
 public:
  explicit GgufWeights(const GgufFile& file) : file_(file) {}
  bool has(const std::string& name) const override { return file_.tensors().contains(name); }
  std::vector<std::size_t> shape(const std::string& name) const override {
    return file_.tensors().at(name).shape;
  }
  std::vector<float> read(const std::string& name) const override { return file_.read(name); }
  std::string source() const override { return file_.path().string(); }

 private:
  const GgufFile& file_;
};

class SafetensorsWeights : public Weights {
 public:
  explicit SafetensorsWeights(const fs::path& folder) : folder_(folder) {
    std::error_code error;
    for (const fs::path& path : paths_in(folder, error)) {
      if (path.extension() == ".safetensors") add(path);
    }
    if (where_.empty()) fail("{}: there are no .safetensors in it", folder.string());
  }
  bool has(const std::string& name) const override { return where_.contains(name); }
  std::vector<std::size_t> shape(const std::string& name) const override {
    return where_.at(name).entry.shape;
  }
  std::vector<float> read(const std::string& name) const override {
    const Tensor tensor = read_safetensors(where_.at(name).file, name);
    return to_floats(tensor);
  }
  std::string source() const override { return folder_.string(); }

 private:
  struct Place {
    fs::path file;
    SafetensorsEntry entry;
  };
  void add(const fs::path& file) {
    for (SafetensorsEntry& entry : list_safetensors(file)) {
      const std::string name = entry.name;
      if (!where_.try_emplace(name, Place{file, std::move(entry)}).second) {
        fail("{}: the tensor {} is in two of its files", folder_.string(), quote(name));
      }
    }
  }

  fs::path folder_;
  std::map<std::string, Place> where_;
};

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

/// Names of the tensors of one layer, as a file has them.
struct LayerNames {
  std::string attention_norm, query, key, value, attention_output, ffn_norm, gate, up, ffn_down;
};

/// Reads queries' or keys' weights, which have to turn numbers that lie side by side.
using ReadTurned = std::function<Matrix(const std::string& name, std::size_t out)>;

void read_layers(Llama& network, const Weights& weights, const ReadTurned& turned,
                 const std::function<LayerNames(std::size_t)>& names_of) {
  const LlamaShape& s = network.shape;
  const std::size_t narrow = s.key_value_heads * s.head_size;
  for (std::size_t i = 0; i < s.layers; ++i) {
    const LayerNames names = names_of(i);
    network.layers.push_back(
        {.attention_norm = weights.vector(names.attention_norm, s.hidden),
         .ffn_norm = weights.vector(names.ffn_norm, s.hidden),
         .query = turned(names.query, s.attended()),
         .key = turned(names.key, narrow),
         .value = weights.matrix(names.value, narrow, s.hidden),
         .attention_output = weights.matrix(names.attention_output, s.hidden, s.attended()),
         .gate = weights.matrix(names.gate, s.ffn, s.hidden),
         .up = weights.matrix(names.up, s.ffn, s.hidden),
         .ffn_down = weights.matrix(names.ffn_down, s.hidden, s.ffn)});
  }
}

// ---------------------------------------------------------------- .gguf

std::size_t count_of(const GgufFile& file, const std::string& key) {
  const std::int64_t value = file.integer(key);
  if (value < 1 || value > static_cast<std::int64_t>(kMost)) {
    fail("{}: {} is {}: allowed is 1 to 2^20", file.path().string(), key, value);
  }
  return static_cast<std::size_t>(value);
}

LlamaShape shape_of(const GgufFile& file, const GgufWeights& weights) {
  const std::string source = weights.source();
  LlamaShape s;
  s.layers = count_of(file, "llama.block_count");
  s.hidden = count_of(file, "llama.embedding_length");
  s.heads = count_of(file, "llama.attention.head_count");
  s.key_value_heads = file.has("llama.attention.head_count_kv")
                          ? count_of(file, "llama.attention.head_count_kv")
                          : s.heads;
  s.ffn = count_of(file, "llama.feed_forward_length");
  if (file.has("llama.attention.key_length")) {
    s.head_size = count_of(file, "llama.attention.key_length");
  } else if (s.hidden % s.heads == 0) {
    s.head_size = s.hidden / s.heads;
  } else {
    fail("{}: {} heads do not divide the width {}", source, s.heads, s.hidden);
  }
  if (file.has("llama.rope.dimension_count") &&
      count_of(file, "llama.rope.dimension_count") != s.head_size) {
    fail("{}: heads are turned in part, llama.rope.dimension_count: only whole ones are known",
         source);
  }
  if (file.has("llama.rope.scaling.type") && file.text("llama.rope.scaling.type") != "none") {
    fail("{}: llama.rope.scaling.type {}: only rope_freqs.weight is known", source,
         quote(file.text("llama.rope.scaling.type")));
  }
  s.context = count_of(file, "llama.context_length");
  s.norm_epsilon = file.number("llama.attention.layer_norm_rms_epsilon");
  if (!weights.has("token_embd.weight")) {
    fail("{}: the tensor 'token_embd.weight' is missing", source);
  }
  const std::vector<std::size_t> embedding = weights.shape("token_embd.weight");
  s.vocabulary = embedding.empty() ? 0 : embedding.front();
  check_shape(s, source);
  const double base =
      file.has("llama.rope.freq_base") ? file.number("llama.rope.freq_base") : 10000.0;
  s.frequencies = plain_frequencies(s.head_size, base, source);
  if (weights.has("rope_freqs.weight")) {
    const std::vector<float> divisors = weights.vector("rope_freqs.weight", s.head_size / 2);
    for (std::size_t i = 0; i < divisors.size(); ++i) s.frequencies[i] /= double{divisors[i]};
  }
  return s;
}

Tokenizer tokenizer_of(const GgufFile& file) {
  const std::string source = file.path().string();
  if (file.text("tokenizer.ggml.model") != "gpt2") {
    fail("{}: its tokenizer is {}: only gpt2, byte-level BPE, is known", source,
         quote(file.text("tokenizer.ggml.model")));
  }
  TokenizerDescription description;
  description.source = source;
  description.tokens = file.texts("tokenizer.ggml.tokens");
  for (const std::string& merge : file.texts("tokenizer.ggml.merges")) {
    const std::size_t space = merge.find(' ');
    if (space == std::string::npos) {
      fail("{}: merge {} is not two tokens with a space between them", source, quote(merge));
    }
    description.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  const std::string pre =
      file.has("tokenizer.ggml.pre") ? file.text("tokenizer.ggml.pre") : "gpt-2";
  std::tie(description.cuts, description.whole_pieces_first) = named_cuts(pre, source);
  return Tokenizer(std::move(description));
}

LoadedModel load_gguf(const std::string& name, const fs::path& path) {
  const GgufFile file(path);
  if (file.text("general.architecture") != "llama") {
    fail("{}: its architecture is {}: only llama is known", path.string(),
         quote(file.text("general.architecture")));
  }
  const GgufWeights weights(file);
  LoadedModel model{.name = name, .weights = path, .network = {}, .tokenizer = tokenizer_of(file)};
  Llama& network = model.network;
  network.shape = shape_of(file, weights);
  const LlamaShape& s = network.shape;
  network.embedding = weights.matrix("token_embd.weight", s.vocabulary, s.hidden);
  network.output_norm = weights.vector("output_norm.weight", s.hidden);
  if (weights.has("output.weight")) {
    network.output = weights.matrix("output.weight", s.vocabulary, s.hidden);
  }
  read_layers(
      network, weights,
      [&](const std::string& tensor, std::size_t out) {
        return weights.matrix(tensor, out, s.hidden);
      },
      [](std::size_t layer) {
        const auto of = [layer](std::string_view what) {
          return fmt::format("blk.{}.{}.weight", layer, what);
        };
        return LayerNames{of("attn_norm"), of("attn_q"),      of("attn_k"),
                          of("attn_v"),    of("attn_output"), of("ffn_norm"),
                          of("ffn_gate"),  of("ffn_up"),      of("ffn_down")};
      });
  return model;
}

// ---------------------------------------------------------------- folders of Hugging Face

Json read_json(const fs::path& path) {
  InputFile file(path);
  int most = 0;
  const auto check = [&](int depth, Json::parse_event_t, const Json&) {
    most = std::max(most, depth);
    if (most > 64) fail("{}: its JSON nests too deep", path.string());
    return true;
  };
  Json json = Json::parse(file.read_rest(), check, /*allow_exceptions=*/false);
  if (!json.is_object()) fail("{}: it is not a JSON object", path.string());
  return json;
}

/// Values of a JSON file that must be there, of the right kind.
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
    if (value == nullptr || !value->is_number_unsigned() || value->get<std::uint64_t>() < 1 ||
        value->get<std::uint64_t>() > kMost) {
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
  bool flag(const char* key) const {
    const Json* value = find(key);
    if (value != nullptr && !value->is_boolean()) {
      fail("{}: {} must be true or false", source, quote(key));
    }
    return value != nullptr && value->get<bool>();
  }
};

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

LlamaShape shape_of(const Config& config) {
  if (config.text("model_type", "") != "llama") {
    fail("{}: its model_type is {}: only llama is known", config.source,
         quote(config.text("model_type", "")));
  }
  if (config.flag("attention_bias") || config.flag("mlp_bias")) {
    fail("{}: it has biases, which are not known", config.source);
  }
  if (config.text("hidden_act", "silu") != "silu") {
    fail("{}: its hidden_act is {}: only silu is known", config.source,
         quote(config.text("hidden_act", "silu")));
  }
  LlamaShape s;
  s.layers = config.count("num_hidden_layers");
  s.hidden = config.count("hidden_size");
  s.heads = config.count("num_attention_heads");
  s.key_value_heads = config.count("num_key_value_heads", s.heads);
  if (config.find("head_dim") == nullptr && s.hidden % s.heads != 0) {
    fail("{}: {} heads do not divide the width {}", config.source, s.heads, s.hidden);
  }
  s.head_size = config.count("head_dim", s.hidden / s.heads);
  s.ffn = config.count("intermediate_size");
  s.vocabulary = config.count("vocab_size");
  s.context = config.count("max_position_embeddings", 2048);
  s.norm_epsilon = config.number("rms_norm_eps", 1e-6);
  check_shape(s, config.source);

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
    fail("{}: rotations are scaled as {}: only llama3 is known", config.source, quote(type));
  }
  return s;
}

/// The cuts of a pre_tokenizer of tokenizer.json.
void add_cuts(const Json& pre, const std::string& source, std::vector<std::string>& cuts) {
  const Config config{pre, source};
  const auto unknown = [&] {
    fail("{}: its pre_tokenizer is not known: {}", source, quote(pre.dump()));
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
    fail("{}: its tokenizer is not byte-level BPE without a normalizer, which alone is known",
         file.source);
  }
  const Config model{*bpe, file.source};
  TokenizerDescription description;
  description.source = file.source;
  description.whole_pieces_first = model.flag("ignore_merges");
  add_cuts(*pre, file.source, description.cuts);

  const Json* vocabulary = model.find("vocab");
  const Json* merges = model.find("merges");
  if (vocabulary == nullptr || !vocabulary->is_object() || merges == nullptr ||
      !merges->is_array()) {
    fail("{}: 'vocab' must be an object and 'merges' an array", file.source);
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
  for (const Json& merge : *merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      description.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t space = text.find(' ');
    if (space == std::string::npos) fail("{}: a merge is not two tokens", file.source);
    description.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return Tokenizer(std::move(description));
}

/// Numbers that turn together lie half a head apart there: brings them side by side.
Matrix side_by_side(const std::vector<float>& values, std::size_t out, std::size_t in,
                    std::size_t head_size) {
  std::vector<float> turned(values.size());
  for (std::size_t o = 0; o < out; ++o) {
    const std::size_t i = o % head_size;
    const std::size_t from = o - i + i / 2 + i % 2 * (head_size / 2);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from * in), in,
                turned.begin() + static_cast<std::ptrdiff_t>(o * in));
  }
  return {turned, out, in};
}

LoadedModel load_folder(const std::string& name, const fs::path& folder) {
  const Json json = read_json(folder / "config.json");
  const Config config{json, (folder / "config.json").string()};
  LoadedModel model{.name = name, .weights = folder, .network = {}, .tokenizer = {}};
  Llama& network = model.network;
  network.shape = shape_of(config);
  const LlamaShape& s = network.shape;
  const SafetensorsWeights weights(folder);
  network.embedding = weights.matrix("model.embed_tokens.weight", s.vocabulary, s.hidden);
  network.output_norm = weights.vector("model.norm.weight", s.hidden);
  if (!config.flag("tie_word_embeddings")) {
    network.output = weights.matrix("lm_head.weight", s.vocabulary, s.hidden);
  }
  read_layers(
      network, weights,
      [&](const std::string& tensor, std::size_t out) {
        return side_by_side(weights.read_checked(tensor, {out, s.hidden}), out, s.hidden,
                            s.head_size);
      },
      [](std::size_t layer) {
        const auto of = [layer](std::string_view what) {
          return fmt::format("model.layers.{}.{}.weight", layer, what);
        };
        return LayerNames{
            of("input_layernorm"),  of("self_attn.q_proj"), of("self_attn.k_proj"),
            of("self_attn.v_proj"), of("self_attn.o_proj"), of("post_attention_layernorm"),
            of("mlp.gate_proj"),    of("mlp.up_proj"),      of("mlp.down_proj")};
      });
  std::error_code error;
  if (fs::exists(folder / "tokenizer.json", error)) {
    model.tokenizer.emplace(tokenizer_of(folder / "tokenizer.json"));
  }
  return model;
}

// ---------------------------------------------------------------- names

struct KnownModel {
  std::string_view name;
  std::string_view file;  ///< in the folder of that name
};
/// What arlab/fetch.py fetches.
constexpr KnownModel kKnownModels[] = {{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"}};

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
  for (const KnownModel& known : kKnownModels) {
    if (known.name != name) continue;
    const fs::path path = cache_folder() / "models" / known.name / known.file;
    std::error_code error;
    if (!fs::exists(path, error)) {
      fail("the model {} is not here ({}): fetch it with python -m arlab.fetch {}", name,
           path.string(), name);
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

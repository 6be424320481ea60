#include "sim/workload/model_shape.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reference/json.h"
#include "sim/topology/toml_section.h"

namespace arlab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kConfig = "its config.json on Hugging Face";

/// As the quantization_config of what is published says: experts in mxfp4; all layers in fp8 with a
/// scale for 128 x 128.
WeightBits of_gpt_oss() {
  WeightBits bits;
  bits.of(WeightKind::experts) = 4.25;
  bits.source = "quantization_config: mxfp4";
  return bits;
}
WeightBits of_deepseek() {
  WeightBits bits;
  for (const WeightKind kind :
       {WeightKind::attention, WeightKind::dense, WeightKind::experts, WeightKind::shared}) {
    bits.of(kind) = 8 + 32.0 / (128 * 128);
  }
  bits.source = "quantization_config: fp8";
  return bits;
}

const std::vector<ModelShape>& models() {
  static const std::vector<ModelShape> kModels = {
      {"llama-2-70b", kConfig, 80, 8192, 64, 8, 128, 28672, 32000},
      {"llama-3-8b", kConfig, 32, 4096, 32, 8, 128, 14336, 128256},
      {"llama-3-70b", kConfig, 80, 8192, 64, 8, 128, 28672, 128256},
      {"mistral-7b", kConfig, 32, 4096, 32, 8, 128, 14336, 32768},
      {"mixtral-8x7b", kConfig, 32, 4096, 32, 8, 128, 14336, 32000, 8, 2},
      {"qwen2.5-72b", kConfig, 80, 8192, 64, 8, 128, 29568, 152064},
      {"qwen3-8b", kConfig, 36, 4096, 32, 8, 128, 12288, 151936},
      {"qwen3-32b", kConfig, 64, 5120, 64, 8, 128, 25600, 151936},
      {"qwen3-30b-a3b", kConfig, 48, 2048, 32, 4, 128, 768, 151936, 128, 8},
      {"qwen3-235b-a22b", kConfig, 94, 4096, 64, 4, 128, 1536, 151936, 128, 8},
      {.name = "gpt-oss-20b",
       .source = kConfig,
       .layers = 24,
       .hidden = 2880,
       .heads = 64,
       .kv_heads = 8,
       .head_size = 64,
       .ffn = 2880,
       .vocabulary = 201088,
       .experts = 32,
       .experts_per_token = 4,
       .window = 128,
       .windowed_layers = 12,
       .weights = of_gpt_oss()},
      {.name = "gpt-oss-120b",
       .source = kConfig,
       .layers = 36,
       .hidden = 2880,
       .heads = 64,
       .kv_heads = 8,
       .head_size = 64,
       .ffn = 2880,
       .vocabulary = 201088,
       .experts = 128,
       .experts_per_token = 4,
       .window = 128,
       .windowed_layers = 18,
       .weights = of_gpt_oss()},
      {.name = "deepseek-v3",
       .source = kConfig,
       .layers = 61,
       .hidden = 7168,
       .heads = 128,
       .kv_heads = 128,
       .head_size = 192,
       .ffn = 2048,
       .vocabulary = 129280,
       .experts = 256,
       .experts_per_token = 8,
       .shared_ffn = 2048,
       .dense_layers = 3,
       .dense_ffn = 18432,
       .latent = {.kv_rank = 512, .q_rank = 1536, .rope_size = 64, .value_size = 128},
       .weights = of_deepseek()},
      {.name = "smollm2",
       .source = kConfig,
       .layers = 30,
       .hidden = 576,
       .heads = 9,
       .kv_heads = 3,
       .head_size = 64,
       .ffn = 1536,
       .vocabulary = 49152,
       .tied = true},
  };
  return kModels;
}

/// Others differ in what a layer is made of.
constexpr std::array kTypes = {"llama",     "mistral",   "mixtral",     "qwen2",       "qwen3",
                               "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss"};

constexpr std::array kKeys = {"model_type",
                              "num_hidden_layers",
                              "hidden_size",
                              "num_attention_heads",
                              "num_key_value_heads",
                              "head_dim",
                              "intermediate_size",
                              "vocab_size",
                              "tie_word_embeddings",
                              "num_experts",
                              "num_local_experts",
                              "n_routed_experts",
                              "num_experts_per_tok",
                              "moe_intermediate_size",
                              "shared_expert_intermediate_size",
                              "n_shared_experts",
                              "first_k_dense_replace",
                              "moe_layer_freq",
                              "decoder_sparse_step",
                              "kv_lora_rank",
                              "q_lora_rank",
                              "qk_rope_head_dim",
                              "qk_nope_head_dim",
                              "v_head_dim",
                              "sliding_window",
                              "layer_types",
                              "torch_dtype",
                              "dtype",
                              "quantization_config"};

constexpr std::uint32_t kMostWidth = 1 << 20;
constexpr std::uint32_t kMostLayers = 1 << 12;
constexpr std::uint32_t kMostExperts = 1 << 12;

/// Numbers, texts, and arrays of texts of the first level, and all that is in quantization_config. A
/// key that nobody asks for would be a typing error.
Json json_of(const toml::table& table, std::string_view origin) {
  Json json = Json::object();
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (std::find(kKeys.begin(), kKeys.end(), name) == kKeys.end()) {
      fail("{}: unknown key '{}'; allowed are {}", origin, printable(name),
           join({kKeys.begin(), kKeys.end()}));
    }
    if (const toml::table* inner = node.as_table();
        inner != nullptr && name == "quantization_config") {
      std::ostringstream written;
      written << toml::json_formatter{*inner};
      json[name] = parse_json<Json>(written.str());
    }
    if (const auto integer = node.value_exact<std::int64_t>()) json[name] = *integer;
    if (const auto text = node.value_exact<std::string>()) json[name] = *text;
    if (const auto flag = node.value_exact<bool>()) json[name] = *flag;
    if (const toml::array* array = node.as_array()) {
      json[name] = Json::array();
      for (const toml::node& each : *array) {
        json[name].push_back(each.value_exact<std::string>().value_or(""));
      }
    }
    if (!json.contains(name)) json[name] = nullptr;
  }
  return json;
}

/// JSON as Python writes it may have NaN and Infinity for numbers: here they become texts, which no
/// key that is needed takes.
Json json_as_python_writes(std::string_view text, std::string_view origin) {
  std::string plain;
  bool in_text = false;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (in_text && c == '\\' && at + 1 < text.size()) {
      plain += c;
      plain += text[at + 1];
      at += 2;
      continue;
    }
    if (c == '"') in_text = !in_text;
    const std::string_view rest = text.substr(at);
    std::string_view number;
    for (const std::string_view each : {"NaN", "Infinity", "-Infinity"}) {
      if (!in_text && rest.starts_with(each)) number = each;
    }
    if (number.empty()) {
      plain += c;
      ++at;
      continue;
    }
    plain += fmt::format("\"{}\"", number);
    at += number.size();
  }
  Json json = parse_json<Json>(plain);
  if (json.is_discarded()) fail("{}: it is not JSON", origin);
  return json;
}

/// Where a model of text is a part of another one, that part, with what is said of all.
Json text_part_of(Json json) {
  const bool is_part = json.is_object() && !json.contains("num_hidden_layers") &&
                       json.contains("text_config") && json["text_config"].is_object();
  if (!is_part) return json;
  Json part = json["text_config"];
  for (const char* key : {"quantization_config", "compression_config", "quantization",
                          "torch_dtype", "dtype", "tie_word_embeddings"}) {
    if (json.contains(key) && !part.contains(key)) part[key] = json[key];
  }
  return part;
}

/// Looks up integers by key, with messages that name the file.
class Config {
 public:
  Config(const Json& json, std::string_view origin) : json_(json), origin_(origin) {
    if (!json.is_object()) fail("{}: it is not an object, as config.json is", origin);
  }

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  std::uint32_t integer(const char* key, std::uint32_t most, std::uint32_t least = 1) const {
    if (!json_.contains(key)) fail("{}: missing key '{}'", origin_, key);
    const Json& value = json_[key];
    // A number beyond 64 bits is a float to the reader of JSON, and refused with all others.
    const bool fits = value.is_number_integer() && value >= least && value <= most;
    if (!fits) {
      fail("{}: key '{}': it must be an integer from {} to {}", origin_, key, least, most);
    }
    return value.get<std::uint32_t>();
  }
  std::uint32_t integer_or(const char* key, std::uint32_t most, std::uint32_t otherwise) const {
    return has(key) ? integer(key, most) : otherwise;
  }
  std::string type() const {
    return has("model_type") && json_["model_type"].is_string()
               ? json_["model_type"].get<std::string>()
               : std::string();
  }

  bool flag(const char* key) const {
    if (!has(key)) return false;
    if (!json_[key].is_boolean()) fail("{}: key '{}': it must be true or false", origin_, key);
    return json_[key].get<bool>();
  }

  bool is_type(const char* type) const { return has("model_type") && json_["model_type"] == type; }

  /// How many of the layers look at a window of tokens only. gpt-oss takes turns where nothing is
  /// said, beginning with a window.
  std::uint32_t windowed_layers(std::uint32_t layers) const {
    if (!has("layer_types")) return is_type("gpt_oss") ? (layers + 1) / 2 : 0;
    const Json& types = json_["layer_types"];
    std::uint32_t windowed = 0;
    std::uint32_t full = 0;
    for (const Json& type : types) {
      windowed += type == "sliding_attention";
      full += type == "full_attention";
    }
    if (!types.is_array() || types.size() != layers || windowed + full != layers) {
      fail(
          "{}: key 'layer_types': it must be an array with sliding_attention or full_attention for "
          "each of the {} layers",
          origin_, layers);
    }
    return windowed;
  }

  void require_known_type() const {
    if (!has("model_type")) return;
    const Json& type = json_["model_type"];
    const bool known = std::any_of(kTypes.begin(), kTypes.end(),
                                   [&type](const char* each) { return type == each; });
    if (known) return;
    fail("{}: key 'model_type': {} is not modelled; allowed are {}", origin_,
         type.is_string() ? quote(type.get<std::string>()) : "what it says",
         join({kTypes.begin(), kTypes.end()}));
  }

 private:
  const Json& json_;
  std::string_view origin_;
};

}  // namespace

std::vector<LayerKind> ModelShape::kinds() const {
  std::vector<LayerKind> kinds = {{dense_layers, false, 0},
                                  {windowed_layers, experts > 0, window},
                                  {layers - dense_layers - windowed_layers, experts > 0, 0}};
  std::erase_if(kinds, [](const LayerKind& kind) { return kind.count == 0; });
  return kinds;
}

double ModelShape::parameters_of_layers(double experts_each) const {
  const double h = hidden;
  const double q = static_cast<double>(attention_width());
  double attention = h * (2 * q + 2 * static_cast<double>(kv_width()));
  if (is_latent()) {
    const double made = latent.q_rank > 0 ? latent.q_rank * (h + q) : h * q;
    const double of_head = head_size - latent.rope_size + latent.value_size;
    attention = made + h * (latent.kv_rank + latent.rope_size) +
                heads * (latent.kv_rank * of_head + latent.value_size * h);
  }
  double sum = 0;
  for (const LayerKind& kind : kinds()) {
    double gated = 3 * h * (dense_layers > 0 ? dense_ffn : ffn);
    if (kind.has_experts) gated = h * experts + 3 * h * (experts_each * ffn + shared_ffn);
    sum += kind.count * (attention + gated);
  }
  return sum;
}

double ModelShape::parameters() const {
  return parameters_of_layers(experts) + (tied ? 1.0 : 2.0) * hidden * vocabulary;
}

double ModelShape::active_parameters() const {
  return parameters_of_layers(experts_per_token) + 1.0 * hidden * vocabulary;
}

std::vector<WeightMatrix> ModelShape::matrices(std::string_view type) const {
  std::vector<WeightMatrix> all;
  const auto add = [&](std::string name, WeightKind kind, double inputs, double outputs,
                       double count = 1) {
    if (inputs > 0 && outputs > 0) all.push_back({std::move(name), kind, inputs, outputs, count});
  };
  const double h = hidden;
  const auto gated =
      [&](const std::string& part, WeightKind kind, double width, double count = 1,
          const std::array<const char*, 3>& names = {"gate_proj", "up_proj", "down_proj"}) {
        add(part + names[0], kind, h, width, count);
        add(part + names[1], kind, h, width, count);
        add(part + names[2], kind, width, h, count);
      };
  const bool mixtral = type == "mixtral";
  for (std::uint32_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    const std::string self = layer + "self_attn.";
    const auto q = static_cast<double>(attention_width());
    const auto kv = static_cast<double>(kv_width());
    if (is_latent()) {
      const double of_head = head_size - latent.rope_size + latent.value_size;
      add(self + "q_a_proj", WeightKind::attention, latent.q_rank > 0 ? h : 0, latent.q_rank);
      add(self + (latent.q_rank > 0 ? "q_b_proj" : "q_proj"), WeightKind::attention,
          latent.q_rank > 0 ? latent.q_rank : h, q);
      add(self + "kv_a_proj_with_mqa", WeightKind::attention, h,
          double(latent.kv_rank) + latent.rope_size);
      add(self + "kv_b_proj", WeightKind::attention, latent.kv_rank, heads * of_head);
      add(self + "o_proj", WeightKind::attention, double(heads) * latent.value_size, h);
    } else {
      add(self + "q_proj", WeightKind::attention, h, q);
      add(self + "k_proj", WeightKind::attention, h, kv);
      add(self + "v_proj", WeightKind::attention, h, kv);
      add(self + "o_proj", WeightKind::attention, q, h);
    }
    if (experts == 0 || i < dense_layers) {
      gated(layer + "mlp.", WeightKind::dense, dense_layers > 0 ? dense_ffn : ffn);
      continue;
    }
    const std::string part = layer + (mixtral ? "block_sparse_moe." : "mlp.");
    add(part + (type == "gpt_oss" ? "router" : "gate"), WeightKind::router, h, experts);
    if (mixtral) {
      gated(part + "experts.0.", WeightKind::experts, ffn, experts, {"w1", "w3", "w2"});
    } else {
      gated(part + "experts.0.", WeightKind::experts, ffn, experts);
    }
    gated(part + (type == "qwen2_moe" ? "shared_expert." : "shared_experts."), WeightKind::shared,
          shared_ffn);
  }
  if (!tied) add("model.embed_tokens", WeightKind::embedding, h, vocabulary);
  add("lm_head", WeightKind::head, h, vocabulary);
  return all;
}

std::vector<std::string> listed_models() {
  std::vector<std::string> names;
  for (const ModelShape& model : models()) names.push_back(model.name);
  return names;
}

ModelShape parse_model(std::string_view text, bool toml, std::string_view origin,
                       std::string_view quantization) {
  Json json;
  if (toml) {
    json = json_of(parse_toml(text, origin), origin);
  } else {
    json = text_part_of(json_as_python_writes(text, origin));
  }
  const bool says_nothing = json.is_object() && !json.contains("quantization_config");
  if (says_nothing && !quantization.empty()) {
    json["quantization_config"] = json_as_python_writes(quantization, "hf_quant_config.json");
  }
  const Config config(json, origin);
  config.require_known_type();
  ModelShape model;
  model.name = origin;
  model.source = "the file";
  model.layers = config.integer("num_hidden_layers", kMostLayers);
  model.hidden = config.integer("hidden_size", kMostWidth);
  model.heads = config.integer("num_attention_heads", kMostWidth);
  model.kv_heads = config.integer_or("num_key_value_heads", model.heads, model.heads);
  if (model.heads % model.kv_heads != 0) {
    fail("{}: key 'num_key_value_heads': {} does not divide the {} heads", origin, model.kv_heads,
         model.heads);
  }
  if (config.has("kv_lora_rank")) {
    model.latent = {.kv_rank = config.integer("kv_lora_rank", kMostWidth),
                    .q_rank = config.integer_or("q_lora_rank", kMostWidth, 0),
                    .rope_size = config.integer("qk_rope_head_dim", kMostWidth),
                    .value_size = config.integer("v_head_dim", kMostWidth)};
    model.head_size = config.integer("qk_nope_head_dim", kMostWidth) + model.latent.rope_size;
  } else if (!config.has("head_dim") && model.hidden % model.heads != 0) {
    fail("{}: missing key 'head_dim': {} heads do not divide hidden_size {}", origin, model.heads,
         model.hidden);
  } else {
    model.head_size =
        config.integer_or("head_dim", kMostWidth, std::max(1U, model.hidden / model.heads));
  }
  model.vocabulary = config.integer("vocab_size", 1 << 24);
  model.tied = config.flag("tie_word_embeddings");
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (config.has(key)) model.experts = config.integer(key, kMostExperts);
  }
  const bool own_width = model.experts > 0 && config.has("moe_intermediate_size");
  model.ffn = config.integer(own_width ? "moe_intermediate_size" : "intermediate_size", kMostWidth);
  if (model.experts > 0) {
    model.experts_per_token = config.integer("num_experts_per_tok", model.experts);
    if (config.has("shared_expert_intermediate_size")) {
      model.shared_ffn = config.integer("shared_expert_intermediate_size", kMostWidth, 0);
    }
    if (config.has("n_shared_experts")) {
      model.shared_ffn = config.integer("n_shared_experts", kMostWidth / model.ffn, 0) * model.ffn;
    }
    if (config.has("first_k_dense_replace")) {
      model.dense_layers = config.integer("first_k_dense_replace", model.layers, 0);
    }
    if (model.dense_layers > 0) model.dense_ffn = config.integer("intermediate_size", kMostWidth);
    // Every layer behind those has experts: no others are modelled.
    for (const char* key : {"moe_layer_freq", "decoder_sparse_step"}) config.integer_or(key, 1, 1);
  }
  model.windowed_layers = config.windowed_layers(model.layers);
  if (model.windowed_layers > 0) model.window = config.integer("sliding_window", 1 << 24);
  if (model.windowed_layers + model.dense_layers > model.layers) {
    fail("{}: key 'layer_types': windows in layers without experts are not modelled", origin);
  }
  model.weights = weight_bits_of(json, model.matrices(config.type()), origin);
  return model;
}

ModelShape find_model(std::string_view name_or_path) {
  for (const ModelShape& model : models()) {
    if (model.name == name_or_path) return model;
  }
  const bool toml = name_or_path.ends_with(".toml");
  if (!toml && !name_or_path.ends_with(".json")) {
    fail("unknown model {}: {}known are {}, and the path of a config.json or a .toml",
         quote(std::string(name_or_path)), did_you_mean(name_or_path, listed_models()),
         join(listed_models()));
  }
  const std::filesystem::path path(name_or_path);
  // modelopt writes NAME_hf_quant_config.json beside NAME_config.json, both mostly without a name.
  std::string quantization;
  constexpr std::string_view kConfigFile = "config.json";
  if (name_or_path.ends_with(kConfigFile)) {
    name_or_path.remove_suffix(kConfigFile.size());
    const std::filesystem::path beside = std::string(name_or_path) + "hf_quant_config.json";
    if (std::filesystem::exists(beside)) quantization = read_text_file(beside, "model file");
  }
  return parse_model(read_text_file(path, "model file"), toml, printable(path.string()),
                     quantization);
}

}  // namespace arlab

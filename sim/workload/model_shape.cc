#include "sim/workload/model_shape.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "reference/json.h"
#include "sim/topology/toml_section.h"

namespace arlab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kConfig = "its config.json on Hugging Face";

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
       .windowed_layers = 12},
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
       .windowed_layers = 18},
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
       .latent = {.kv_rank = 512, .q_rank = 1536, .rope_size = 64, .value_size = 128}},
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
                              "layer_types"};

constexpr std::uint32_t kMostWidth = 1 << 20;
constexpr std::uint32_t kMostLayers = 1 << 12;
constexpr std::uint32_t kMostExperts = 1 << 12;

/// Numbers, texts, and arrays of texts of the first level. A key that nobody asks for would be a typing error.
Json json_of(const toml::table& table, std::string_view origin) {
  Json json = Json::object();
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (std::find(kKeys.begin(), kKeys.end(), name) == kKeys.end()) {
      fail("{}: unknown key '{}'; allowed are {}", origin, printable(name),
           join({kKeys.begin(), kKeys.end()}));
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

std::vector<std::string> listed_models() {
  std::vector<std::string> names;
  for (const ModelShape& model : models()) names.push_back(model.name);
  return names;
}

ModelShape parse_model(std::string_view text, bool toml, std::string_view origin) {
  Json json;
  if (toml) {
    json = json_of(parse_toml(text, origin), origin);
  } else {
    json = parse_json<Json>(text);
    if (json.is_discarded()) fail("{}: it is not JSON", origin);
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
    model.shared_ffn = config.integer_or("shared_expert_intermediate_size", kMostWidth, 0);
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
  return parse_model(read_text_file(path, "model file"), toml, printable(path.string()));
}

}  // namespace arlab

#include "sim/workload/model_shape.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "sim/topology/toml_section.h"

namespace arlab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kConfig = "its config.json on Hugging Face";

const std::array<ModelShape, 10>& models() {
  static const std::array<ModelShape, 10> kModels = {{
      {"llama-2-70b", kConfig, 80, 8192, 64, 8, 128, 28672, 32000},
      {"llama-3-8b", kConfig, 32, 4096, 32, 8, 128, 14336, 128256},
      {"llama-3-70b", kConfig, 80, 8192, 64, 8, 128, 28672, 128256},
      {"mistral-7b", kConfig, 32, 4096, 32, 8, 128, 14336, 32768},
      {"mixtral-8x7b", kConfig, 32, 4096, 32, 8, 128, 14336, 32000, 8, 2},
      {"qwen2.5-72b", kConfig, 80, 8192, 64, 8, 128, 29568, 152064},
      {"qwen3-8b", kConfig, 36, 4096, 32, 8, 128, 12288, 151936},
      {"qwen3-32b", kConfig, 64, 5120, 64, 8, 128, 25600, 151936},
      {"qwen3-30b-a3b", kConfig, 48, 2048, 32, 4, 128, 768, 151936, 128, 8},
      {"smollm2", kConfig, 30, 576, 9, 3, 64, 1536, 49152},
  }};
  return kModels;
}

/// Others differ in what a layer is made of.
constexpr std::array kTypes = {"llama", "mistral",   "mixtral",  "qwen2",
                               "qwen3", "qwen2_moe", "qwen3_moe"};

constexpr std::array kKeys = {"model_type",
                              "num_hidden_layers",
                              "hidden_size",
                              "num_attention_heads",
                              "num_key_value_heads",
                              "head_dim",
                              "intermediate_size",
                              "vocab_size",
                              "num_experts",
                              "num_local_experts",
                              "num_experts_per_tok",
                              "moe_intermediate_size",
                              "shared_expert_intermediate_size"};

constexpr std::uint32_t kMostWidth = 1 << 20;
constexpr std::uint32_t kMostLayers = 1 << 12;
constexpr std::uint32_t kMostExperts = 1 << 12;

/// Numbers and texts of the first level. A key that nobody asks for would be a typing error.
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
    if (!json.contains(name)) json[name] = nullptr;
  }
  return json;
}

/// Looks up positive integers by key, with messages that name the file.
class Config {
 public:
  Config(const Json& json, std::string_view origin) : json_(json), origin_(origin) {
    if (!json.is_object()) fail("{}: it is not an object, as config.json is", origin);
  }

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  std::uint32_t integer(const char* key, std::uint32_t most) const {
    if (!json_.contains(key)) fail("{}: missing key '{}'", origin_, key);
    const Json& value = json_[key];
    // A number beyond 64 bits is a float to the reader of JSON, and refused with all others.
    const bool fits = value.is_number_integer() && value >= 1 && value <= most;
    if (!fits) fail("{}: key '{}': it must be an integer from 1 to {}", origin_, key, most);
    return value.get<std::uint32_t>();
  }
  std::uint32_t integer_or(const char* key, std::uint32_t most, std::uint32_t otherwise) const {
    return has(key) ? integer(key, most) : otherwise;
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

double ModelShape::parameters_of_layer() const {
  const double h = hidden;
  const double attention =
      h * (2 * static_cast<double>(attention_width()) + 2 * static_cast<double>(kv_width()));
  const double gated = 3 * h * ffn;
  if (experts == 0) return attention + gated;
  return attention + h * experts + experts * gated + 3 * h * shared_ffn;
}

double ModelShape::parameters() const {
  return layers * parameters_of_layer() + 2.0 * hidden * vocabulary;
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
    json = Json::parse(text, nullptr, false);
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
  if (!config.has("head_dim") && model.hidden % model.heads != 0) {
    fail("{}: missing key 'head_dim': {} heads do not divide hidden_size {}", origin, model.heads,
         model.hidden);
  }
  model.head_size =
      config.integer_or("head_dim", kMostWidth, std::max(1U, model.hidden / model.heads));
  model.vocabulary = config.integer("vocab_size", 1 << 24);
  for (const char* key : {"num_experts", "num_local_experts"}) {
    if (config.has(key)) model.experts = config.integer(key, kMostExperts);
  }
  if (model.experts > 0) {
    model.experts_per_token = config.integer("num_experts_per_tok", model.experts);
    model.shared_ffn = config.integer_or("shared_expert_intermediate_size", kMostWidth, 0);
  }
  const bool own_width = model.experts > 0 && config.has("moe_intermediate_size");
  model.ffn = config.integer(own_width ? "moe_intermediate_size" : "intermediate_size", kMostWidth);
  return model;
}

ModelShape find_model(std::string_view name_or_path) {
  for (const ModelShape& model : models()) {
    if (model.name == name_or_path) return model;
  }
  const bool toml = name_or_path.ends_with(".toml");
  if (!toml && !name_or_path.ends_with(".json")) {
    fail("unknown model {}: known are {}, and the path of a config.json or a .toml{}",
         quote(std::string(name_or_path)), join(listed_models()),
         did_you_mean(name_or_path, listed_models()));
  }
  const std::filesystem::path path(name_or_path);
  return parse_model(read_text_file(path, "model file"), toml, printable(path.string()));
}

}  // namespace arlab

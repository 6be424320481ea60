// Reads a model from its config.json by the table of model_types.json: which keys stand for what, and in what the layers of a
// model_type differ from those of others.

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "reference/error.h"
#include "reference/json.h"
#include "reference/words.h"
#include "sim/topology/toml_section.h"
#include "sim/workload/model_files.h"
#include "sim/workload/model_shape.h"

namespace arlab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kMostWidth = 1 << 20;
constexpr std::uint32_t kMostLayers = 1 << 12;
constexpr std::uint32_t kMostExperts = 1 << 12;

const Json& table() {
  static const Json kTable = parse_json<Json>(model_types_json());
  return kTable;
}

std::vector<std::string> names_in(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

/// All keys of the first level that are looked at, or that change no shape.
const std::set<std::string>& known_keys() {
  static const std::set<std::string> kKnown = [] {
    std::set<std::string> known;
    const auto add = [&](const std::string& key) { known.insert(key.substr(0, key.find('.'))); };
    for (const auto& [concept_name, keys] : table()["keys"].items()) {
      for (const Json& key : keys) add(key.get<std::string>());
    }
    for (const std::string& key : names_in(table()["patterns"])) add(key);
    for (const Json& key : table()["other_keys"]) known.insert(key.get<std::string>());
    return known;
  }();
  return kKnown;
}

/// Returns whether an unknown key might say something of a shape.
bool is_suspect(const std::string& key, const Json& value) {
  const bool says = (value.is_number() && value > 1) || (value.is_array() && !value.empty()) ||
                    (value.is_object() && !value.empty());
  constexpr std::array kWords = {"size", "dim",      "rank",    "head",  "layer", "expert",
                                 "num_", "interval", "pattern", "freq",  "width", "moe",
                                 "ssm",  "mamba",    "group",   "block", "kernel"};
  return says && std::ranges::any_of(
                     kWords, [&](const char* word) { return key.find(word) != std::string::npos; });
}

// ---------------------------------------------------------------- texts

/// Numbers, texts, and arrays of texts of the first level, and all that is in quantization_config. A key that no code asks for
/// would be a typing error.
Json json_of(const toml::table& table_of_file, std::string_view origin) {
  Json json = Json::object();
  for (const auto& [key, node] : table_of_file) {
    const std::string name(key.str());
    if (!known_keys().contains(name)) {
      const std::vector<std::string> known(known_keys().begin(), known_keys().end());
      fail("{}: unknown key '{}': {}", origin, printable(name),
           instead_of(name, {known, "allowed are"}));
    }
    std::ostringstream written;
    if (node.is_table()) written << toml::json_formatter{*node.as_table()};
    if (node.is_array()) written << toml::json_formatter{*node.as_array()};
    if (!written.str().empty()) json[name] = parse_json<Json>(written.str());
    if (const auto integer = node.value_exact<std::int64_t>()) json[name] = *integer;
    if (const auto text = node.value_exact<std::string>()) json[name] = *text;
    if (const auto flag = node.value_exact<bool>()) json[name] = *flag;
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

/// Where a model of text is a part of another one, that part, with what is said of all. Missing values are the defaults of its
/// class in transformers, which writes no value that is the default.
Json text_part_of(const Json& json) {
  if (!json.is_object() || json.contains("num_hidden_layers")) return json;
  for (const Json& name : table()["parts"]) {
    const std::string part_name = name.get<std::string>();
    if (!json.contains(part_name) || !json[part_name].is_object()) continue;
    Json part = json[part_name];
    for (const auto& [key, value] : json.items()) {
      const bool is_of_all = key.starts_with("quantization") || key == "compression_config" ||
                             key.ends_with("dtype") || key == "tie_word_embeddings" ||
                             key == "vision_config" || key == "audio_config" ||
                             key == "talker_config" || key == "model_type";
      if (is_of_all && (!part.contains(key) || part[key].is_null())) part[key] = value;
    }
    const Json& defaults = table()["defaults"];
    const std::string type = part.contains("model_type") && part["model_type"].is_string()
                                 ? part["model_type"].get<std::string>()
                                 : "";
    if (defaults.contains(type)) {
      for (const auto& [key, value] : defaults[type].items()) {
        if (!part.contains(key)) part[key] = value;
      }
    }
    return text_part_of(part);
  }
  return json;
}

// ---------------------------------------------------------------- keys

/// Values of a file by their concept; messages name the file and the key.
class Config {
 public:
  Config(const Json& json, std::string_view origin) : json_(json), origin_(origin) {
    if (!json.is_object()) fail("{}: it is not an object, as config.json is", origin);
    const Json* type = at("model_type");
    if (type == nullptr) return;
    type_name_ = type->is_string() ? type->get<std::string>() : "";
    if (table()["types"].contains(type_name_)) {
      type_ = table()["types"][type_name_];
    } else {
      require_like_others(*type);
    }
  }

  const std::string& type_name() const { return type_name_; }
  std::string_view origin() const { return origin_; }
  /// Its model_type is not in the table.
  bool is_guessed() const { return is_guessed_; }

  /// The table's entry for the model_type.
  bool is(const char* option) const { return type_.contains(option) && type_[option] == true; }
  std::string text_option(const char* option) const {
    return type_.contains(option) ? type_[option].get<std::string>() : std::string();
  }
  const Json& type() const { return type_; }

  bool has(const char* what) const { return value_of(what) != nullptr; }

  /// The key that it stands under, or would.
  std::string key_of(const char* what) const {
    const std::vector<std::string> keys = keys_of(what);
    for (const std::string& key : keys) {
      if (at(key) != nullptr) return key;
    }
    return keys.front();
  }

  /// In a file, or else what the table says of the model_type.
  const Json* value_of(const char* what) const {
    if (const Json* found = at(key_of(what))) return found;
    const auto fixed = type_.find(what);
    return fixed == type_.end() || fixed->is_string() ? nullptr : &*fixed;
  }

  std::uint32_t integer(const char* what, std::uint32_t most, std::uint32_t least = 1) const {
    const Json* value = value_of(what);
    const std::string key = key_of(what);
    if (value == nullptr) fail("{}: missing key '{}'", origin_, key);
    // Where layers differ, a value for each.
    if (value->is_array() && layer_ < value->size()) value = &(*value)[layer_];
    // A number beyond 64 bits is a float to the reader of JSON, and refused with all others.
    const bool fits = value->is_number_integer() && *value >= least && *value <= most;
    if (!fits) {
      fail("{}: key '{}': it must be an integer from {} to {}", origin_, key, least, most);
    }
    return value->get<std::uint32_t>();
  }
  std::uint32_t integer_or(const char* what, std::uint32_t most, std::uint32_t otherwise,
                           std::uint32_t least = 1) const {
    return has(what) ? integer(what, most, least) : otherwise;
  }

  bool flag(const char* what) const {
    const Json* value = value_of(what);
    if (value == nullptr) return false;
    if (!value->is_boolean()) {
      fail("{}: key '{}': it must be true or false", origin_, key_of(what));
    }
    return value->get<bool>();
  }

  const Json* at(const std::string& key) const {
    const Json* json = &json_;
    for (std::size_t begin = 0;;) {
      const std::size_t end = key.find('.', begin);
      const auto found =
          json->is_object() ? json->find(key.substr(begin, end - begin)) : json->end();
      if (found == json->end() || found->is_null()) return nullptr;
      if (end == std::string::npos) {
        // Layers of their own may have other values.
        const Json* own = own_.is_object() && own_.contains(key) ? &own_[key] : nullptr;
        return own != nullptr ? own : &*found;
      }
      json = &*found;
      begin = end + 1;
    }
  }

  /// From now on values are of this layer.
  void go_to_layer(std::uint32_t layer) {
    layer_ = layer;
    own_ = nullptr;
    const Json* own = at("per_layer_config");
    if (own == nullptr || !own->is_object()) return;
    for (const std::string& key : {fmt::format("{}", layer), fmt::format("{:02}", layer)}) {
      if (own->contains(key)) own_ = (*own)[key];
    }
  }
  std::uint32_t layer() const { return layer_; }

  /// Whether a list of layers has this one; as an array, or a text with commas.
  bool lists_layer(const char* what, std::uint32_t first = 0) const {
    const Json* list = value_of(what);
    if (list == nullptr) return false;
    if (list->is_string()) {
      return fmt::format(",{},", list->get<std::string>()).find(fmt::format(",{},", layer_)) !=
             std::string::npos;
    }
    return list->is_array() && std::ranges::find(*list, Json(layer_ + first)) != list->end();
  }

  /// Keys that nothing here knows and that might say something of the shapes.
  std::vector<std::string> unknown_keys() const {
    std::vector<std::string> unknown;
    for (const auto& [key, value] : json_.items()) {
      if (!known_keys().contains(key) && is_suspect(key, value)) unknown.push_back(printable(key));
    }
    return unknown;
  }

 private:
  std::vector<std::string> keys_of(const char* what) const {
    std::vector<std::string> keys;
    if (type_.contains(what) && type_[what].is_string()) keys.push_back(type_[what]);
    for (const Json& key : table()["keys"][what]) keys.push_back(key);
    return keys;
  }

  /// A model_type that is not in the table is read where its keys are those of all others and its
  /// activation is one that gated parts have.
  void require_like_others(const Json& type) {
    const Json* activation = value_of("activation");
    const bool is_gated =
        activation != nullptr &&
        (*activation == "silu" || *activation == "swish" || *activation == "swiglu");
    const std::vector<std::string> unknown = unknown_keys();
    const bool is_like = std::ranges::count(table()["unlike"], type) == 0;
    if (is_gated && unknown.empty() && type.is_string() && is_like) {
      is_guessed_ = true;
      return;
    }
    const std::string named =
        type.is_string() ? quote(type.get<std::string>()) : std::string("what it says");
    if (is_gated && !unknown.empty()) {
      fail("{}: key '{}' of model_type {} is not known: it is not modelled", origin_,
           unknown.front(), named);
    }
    fail("{}: key 'model_type': {} is not modelled: {}", origin_, named,
         instead_of(type.is_string() ? type.get<std::string>() : "",
                    {names_in(table()["types"]), "allowed are"}));
  }

  const Json& json_;
  std::string_view origin_;
  std::string type_name_;
  Json type_ = Json::object();
  Json own_ = nullptr;
  std::uint32_t layer_ = 0;
  bool is_guessed_ = false;
};

// ---------------------------------------------------------------- layers

/// A layer as patterns describe it.
struct Roles {
  std::string mixer;  ///< full, window, state, none; empty: nothing is said
  std::string part;   ///< dense, experts; empty: nothing is said
  bool has_index = true;
};

class LayerReader {
 public:
  LayerReader(Config& config, const ModelShape& model, std::uint32_t layers)
      : config_(config), model_(model), layers_(layers) {}

  Layer read(std::uint32_t layer) {
    config_.go_to_layer(layer);
    Roles roles = roles_of();
    if (roles.mixer.empty()) roles.mixer = mixer_by_rule();
    Layer found;
    if (const Json* blocks = config_.at("block_configs")) return block_of(*blocks);
    found.mixer = mixer_of(roles);
    const bool is_alone = config_.is("only_state") || (config_.is("alone") && roles.part.empty());
    if (!is_alone) found.feed_forward = feed_forward_of(roles.part);
    return found;
  }

 private:
  std::uint32_t width(const char* what) const { return config_.integer(what, kMostWidth); }
  std::uint32_t width_or(const char* what, std::uint32_t otherwise) const {
    return config_.integer_or(what, kMostWidth, otherwise);
  }

  // ---- which kind

  Roles roles_of() {
    Roles roles;
    read_patterns(roles, table()["patterns"]);
    if (roles.mixer.empty() && config_.type().contains("patterns")) {
      read_patterns(roles, config_.type()["patterns"]);
    }
    if (config_.is("alone") && roles.mixer.empty()) {
      fail("{}: missing key 'layers_block_type'", config_.origin());
    }
    return roles;
  }

  void read_patterns(Roles& roles, const Json& patterns) const {
    for (const auto& [key, words] : patterns.items()) {
      const Json* pattern = config_.at(key);
      const bool is_text = pattern != nullptr && pattern->is_string();
      if (pattern == nullptr || (pattern->is_array() && pattern->empty())) continue;
      const std::size_t size =
          is_text ? pattern->get_ref<const std::string&>().size() : pattern->size();
      // More than the layers are those of the prediction of further tokens.
      const bool fits = (is_text || pattern->is_array()) && size >= layers_ && layers_ > 0 &&
                        (size == layers_ || config_.has("predicted"));
      std::string word;
      if (fits && is_text) word = pattern->get_ref<const std::string&>().substr(config_.layer(), 1);
      if (fits && !is_text) {
        const Json& each = (*pattern)[config_.layer()];
        word = each.is_string() ? each.get<std::string>() : each.dump();
      }
      if (!fits || !words.contains(word)) {
        fail("{}: key '{}': it must be an array with one of {} for each of the {} layers",
             config_.origin(), key, join(names_in(words)), layers_);
      }
      take(roles, words[word].get<std::string>());
    }
  }

  static void take(Roles& roles, const std::string& role) {
    const std::size_t slash = role.find('/');
    if (role == "no index") {
      roles.has_index = false;
    } else if (slash != std::string::npos) {
      if (slash > 0) roles.mixer = role.substr(0, slash);
      roles.part = role.substr(slash + 1);
    } else if (!role.empty()) {
      roles.mixer = role;
    }
  }

  std::string mixer_by_rule() const {
    const std::uint32_t i = config_.layer();
    if (config_.is("only_state")) return "state";
    for (const auto& [what, first] :
         {std::pair("attention_layers", 0U), {"attention_layers_from_1", 1U}}) {
      if (config_.has(what)) return config_.lists_layer(what, first) ? "full" : "state";
    }
    if (config_.has("attention_period")) {
      const std::uint32_t period = config_.integer("attention_period", kMostLayers);
      return i % period == config_.integer_or("attention_offset", kMostLayers, 0, 0) ? "full"
                                                                                     : "state";
    }
    if (config_.has("attention_interval")) {
      return (i + 1) % config_.integer("attention_interval", kMostLayers) == 0 ? "full" : "state";
    }
    const bool has_states = !config_.text_option("state").empty() && !config_.is("both");
    if (has_states) return "state";
    return window_by_rule() ? "window" : "full";
  }

  bool window_by_rule() const {
    const std::uint32_t i = config_.layer();
    if (config_.has("uses_window") && !config_.flag("uses_window")) return false;
    if (config_.has("uses_window"))
      return i >= config_.integer_or("first_window", kMostLayers, 0, 0);
    if (const Json* pattern = config_.value_of("window_interval"); pattern != nullptr) {
      if (pattern->is_string() && !pattern->get_ref<const std::string&>().empty()) {
        const std::string& letters = pattern->get_ref<const std::string&>();
        return letters[i % letters.size()] == 'L';
      }
      return (i + 1) % config_.integer("window_interval", kMostLayers) != 0;
    }
    return config_.text_option("windows") == "all" && config_.has("window");
  }

  bool has_experts() const {
    const std::uint32_t i = config_.layer();
    if (config_.has("expert_layers")) return config_.lists_layer("expert_layers");
    if (config_.lists_layer("dense_layers")) return false;
    if (const Json* each = config_.value_of("expert_period"); each != nullptr && each->is_array()) {
      return config_.integer("expert_period", 1, 0) == 1;
    }
    if (i < config_.integer_or("first_dense", layers_, 0, 0)) return false;
    if (config_.has("last_experts") && i > config_.integer("last_experts", kMostLayers, 0))
      return false;
    if ((i + 1) % config_.integer_or("expert_step", kMostLayers, 1) != 0) return false;
    const std::uint32_t period = config_.integer_or("expert_period", kMostLayers, 1);
    return i % period == config_.integer_or("expert_offset", kMostLayers, 0, 0) % period;
  }

  // ---- feed-forward

  FeedForward feed_forward_of(const std::string& role) const {
    FeedForward part;
    if (role.empty() && config_.is("alone")) return part;
    part.is_gated = !config_.is("ungated");
    const std::uint32_t experts = config_.integer_or("experts", kMostExperts, 0, 0);
    const bool pairs = config_.is("pairs");
    const bool has = experts > 0 && (role.empty() ? !pairs && has_experts() : role == "experts");
    const bool second = pairs && config_.layer() % 2 == 1;
    if (has || (pairs && !second)) experts_of(part, experts);
    if (!has || config_.is("beside")) part.width = dense_width(experts);
    return part;
  }

  std::uint32_t dense_width(std::uint32_t experts) const {
    const bool shared = config_.is("dense_is_shared") && experts == 0;
    std::uint32_t found = width(shared ? "shared_ffn" : "ffn");
    const Json* adjusts = config_.at("block_auto_adjust_ff_dim");
    if (adjusts != nullptr && *adjusts == true) {
      found = rounded_up(2 * found / 3, 256);
    }
    const std::uint32_t shared_kv = config_.integer_or("shared_kv_layers", layers_, 0, 0);
    if (config_.flag("wide_shared_layers") && config_.layer() >= layers_ - shared_kv) found *= 2;
    return found;
  }

  static std::uint32_t rounded_up(std::uint32_t value, std::uint32_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }

  void experts_of(FeedForward& part, std::uint32_t experts) const {
    part.experts = experts;
    part.experts_per_token = config_.integer("experts_per_token", experts);
    part.expert_width = config_.has("expert_ffn") ? width("expert_ffn") : width("ffn");
    part.expert_inputs = width_or("expert_inputs", 0);
    const std::uint32_t each = part.expert_width;
    if (config_.has("shared_ffn")) {
      part.shared_width = config_.integer("shared_ffn", kMostWidth, 0);
    } else if (config_.has("shared_experts")) {
      part.shared_width = config_.integer("shared_experts", kMostWidth / each, 0) * each;
    }
  }

  // ---- attention

  Mixer mixer_of(const Roles& roles) const {
    Mixer mixer;
    if (roles.mixer == "none") return mixer;
    const bool both = config_.is("both");
    if (roles.mixer == "state" || both) add_state(mixer);
    if (roles.mixer == "state" && !both) return mixer;
    const bool in_window = roles.mixer == "window";
    if (in_window) mixer.window = config_.integer("window", 1 << 24);
    const auto own = [&](const char* windowed, const char* full, const char* usual) {
      const char* of_kind = in_window ? windowed : full;
      return config_.has(of_kind) ? of_kind : usual;
    };
    mixer.heads = width(own("window_heads", "heads", "heads"));
    mixer.kv_heads = mixer.heads;
    // All heads of latent attention have keys of their own, whatever else a file says.
    if (!config_.has("kv_rank")) {
      mixer.kv_heads = config_.integer_or(own("window_kv_heads", "full_kv_heads", "kv_heads"),
                                          mixer.heads, mixer.heads);
    }
    if (mixer.heads % mixer.kv_heads != 0) {
      fail("{}: key '{}': {} does not divide the {} heads", config_.origin(),
           config_.key_of("kv_heads"), mixer.kv_heads, mixer.heads);
    }
    read_sizes(mixer, own("window_head_size", "full_head_size", "head_size"),
               own("window_value_size", "value_size", "value_size"));
    mixer.is_gated = config_.flag("query_gate");
    const std::uint32_t shared = config_.integer_or("shared_kv_layers", layers_, 0, 0);
    mixer.has_keys = config_.layer() + shared < layers_;
    if (config_.flag("shares_keys")) {
      mixer.has_keys = config_.layer() % config_.integer_or("keys_shared_by", kMostLayers, 1) == 0;
    }
    mixer.has_values = !(config_.flag("keys_are_values") && !in_window) &&
                       !config_.is("keys_are_values_everywhere");
    if (!mixer.is_latent()) {
      mixer.latent.q_rank = width_or("q_rank", 0);
      mixer.out_groups = width_or("out_groups", 1);
      const std::uint32_t most = kMostWidth / mixer.out_groups;
      mixer.out_rank = config_.integer_or("out_rank", most, 0) * mixer.out_groups;
    }
    add_gates(mixer);
    if (roles.has_index) add_index(mixer);
    return mixer;
  }

  void read_sizes(Mixer& mixer, const char* head_size, const char* value_size) const {
    if (config_.has("kv_rank")) {
      mixer.latent = {.kv_rank = width("kv_rank"),
                      .q_rank = width_or("q_rank", 0),
                      .rope_size = width("rope_size")};
      mixer.head_size = width("nope_size") + mixer.latent.rope_size;
      mixer.value_size = width("value_size");
      return;
    }
    if (!config_.has(head_size) && model_.hidden % mixer.heads != 0) {
      fail("{}: missing key 'head_dim': {} heads do not divide hidden_size {}", config_.origin(),
           mixer.heads, model_.hidden);
    }
    mixer.head_size = width_or(head_size, std::max(1U, model_.hidden / mixer.heads));
    mixer.value_size = width_or(value_size, mixer.head_size);
  }

  void add_gates(Mixer& mixer) const {
    const bool gated = config_.is("gate") || (mixer.is_latent() && config_.flag("latent_gate"));
    if (!gated) return;
    mixer.products.push_back(
        {"gate_proj", double(model_.hidden), static_cast<double>(mixer.out_width())});
  }

  /// DeepSeek's index, MiniMax's of blocks, and the vectors that DeepSeek-V4 makes of several tokens.
  void add_index(Mixer& mixer) const {
    const double h = model_.hidden;
    const auto product = [&](const char* name, double inputs, double outputs) {
      mixer.products.push_back({name, inputs, outputs, true});
    };
    if (const Json* ratios = config_.value_of("compressions"); ratios != nullptr) {
      if (!ratios->is_array() || ratios->size() < layers_) {
        fail("{}: key '{}': it must be an array of integers, one for each of the {} layers",
             config_.origin(), config_.key_of("compressions"), layers_);
      }
      mixer.compression = config_.integer("compressions", 1 << 20, 0);
      if (mixer.compression == 0) return;
      const bool fine = mixer.compression == 4;  // these overlap, and have the index
      for (const char* name : {"compressor.wkv", "compressor.wgate"}) {
        product(name, h, (fine ? 2.0 : 1.0) * mixer.head_size);
      }
      if (!fine) return;
    } else if (mixer.window > 0) {
      return;
    }
    if (!config_.has("index_heads")) return;
    mixer.index = {.heads = width("index_heads"), .size = width("index_size")};
    const std::uint32_t blocks = width_or("index_blocks", 0);
    mixer.index.tokens = blocks > 0 ? blocks * config_.integer("index_block", kMostWidth / blocks)
                                    : config_.integer("index_tokens", 1 << 24);
    const double heads = double(mixer.index.heads) * mixer.index.size;
    product("indexer.wq_b", mixer.latent.q_rank > 0 ? mixer.latent.q_rank : h, heads);
    // Keys of what is kept: one for each, or of those that are compressed with gates of their own.
    product("indexer.wk", h, (mixer.compression > 0 ? 4.0 : 1.0) * mixer.index.size);
    if (blocks == 0) product("indexer.weights_proj", h, mixer.index.heads);
  }

  // ---- states

  const Json& state_kind() const {
    std::string kind = config_.text_option("state");
    if (kind.empty() && config_.has("state_key_heads")) kind = "delta";
    if (kind.empty() && config_.has("mamba_head_size")) kind = "mamba2";
    if (config_.flag("full_rank_gate")) kind += "_gate";
    if (table()["states"].contains(kind)) return table()["states"][kind];
    fail("{}: key 'model_type': layers with a state are not known of {}", config_.origin(),
         quote(config_.type_name()));
  }

  void add_state(Mixer& mixer) const {
    const Json& kind = state_kind();
    const std::string module = config_.text_option("state_name");
    mixer.state_kind = kind["words"];
    mixer.state_name = module.empty() ? kind["module"].get<std::string>() : module;
    for (const auto& [name, shape] : kind["products"].items()) {
      mixer.products.push_back({name, sum(shape[0]), sum(shape[1]), false});
    }
    mixer.state = sum(kind["state"]);
  }

  /// The value of a text like 2*state_heads*state_size+hidden.
  double sum(const std::string& text) const {
    double value = 0;
    std::istringstream terms(text);
    for (std::string term; std::getline(terms, term, '+');) {
      double product = 1;
      std::istringstream factors(term);
      for (std::string each; std::getline(factors, each, '*');) product *= factor(each);
      value += product;
    }
    return value;
  }

  double factor(const std::string& name) const {
    if (name == "hidden") return model_.hidden;
    if (name == "2" || name == "3") return name[0] - '0';
    const Json* value = config_.value_of(name.c_str());
    if (value != nullptr && !value->is_string()) return width(name.c_str());
    if (name == "mamba_rank") return std::ceil(model_.hidden / 16.0);
    if (name == "mamba_expand") return 2;
    if (name == "mamba_groups") return 1;
    return name == "head_size" ? model_.hidden / width("heads") : width(name.c_str());
  }

  // ---- blocks of a search for architectures

  /// Nemotron-NAS: attention and feed-forward part of every layer on their own.
  Layer block_of(const Json& blocks) const {
    const bool has_all = blocks.is_array() && blocks.size() == layers_;
    const auto member = [&](const char* path) {
      const Json::json_pointer at(path);
      const bool has = has_all && blocks[config_.layer()].contains(at);
      return has ? blocks[config_.layer()][at] : Json();
    };
    const Json group = member("/attention/n_heads_in_group");
    const Json factor = member("/ffn/ffn_mult");
    const Product linear = {"linear", double(model_.hidden), double(model_.hidden), false};
    Layer found;
    Mixer& mixer = found.mixer;
    const auto takes = [&](const std::string& part, bool is_right) {
      if (member((part + "/replace_with_linear").c_str()) == true) mixer.products.push_back(linear);
      const bool has_none = member((part + "/no_op").c_str()) == true || !mixer.products.empty();
      if (has_none || is_right) return !has_none;
      fail(
          "{}: key 'block_configs': it must be an array with attention and ffn of each of the {} "
          "layers",
          config_.origin(), layers_);
    };
    mixer.heads = width("heads");
    const bool divides = group.is_number_integer() && group > 0 && group <= mixer.heads &&
                         mixer.heads % group.get<std::uint32_t>() == 0;
    if (takes("/attention", divides)) {
      mixer.kv_heads = mixer.heads / group.get<std::uint32_t>();
      mixer.head_size = mixer.value_size = width_or("head_size", model_.hidden / mixer.heads);
    } else {
      mixer.heads = 0;
    }
    if (takes("/ffn", factor.is_number() && factor > 0 && factor <= 100)) {
      const double wide = 2 * factor.get<double>() * model_.hidden / 3;
      found.feed_forward.width = rounded_up(static_cast<std::uint32_t>(wide), 256);
    }
    return found;
  }

  Config& config_;
  const ModelShape& model_;
  std::uint32_t layers_;
};

// ---------------------------------------------------------------- the rest

ModuleNames module_names(const Config& config) {
  ModuleNames names;
  const auto take = [&](const char* option, std::string& name) {
    if (std::string own = config.text_option(option); !own.empty()) name = own;
  };
  take("layers_name", names.layers);
  take("attention", names.attention);
  take("feed_forward", names.feed_forward);
  // Most have the parts of a mixture within the feed-forward part.
  std::string router = "gate";
  std::string shared = "shared_experts";
  take("router", router);
  take("shared", shared);
  const std::string within = config.is("beside") ? "" : names.feed_forward + ".";
  names.router = within + router;
  names.experts = within + "experts";
  names.shared = within + shared;
  if (config.type().contains("gated")) {
    names.gated = config.type()["gated"].get<std::vector<std::string>>();
  }
  return names;
}

/// Weights of what reads pictures: layers of attention and two or three products, the first product
/// of patches, and what makes tokens of its results. As its vision_config says, within some percent.
double vision_of(const Json& json, double hidden) {
  const auto found = json.find("vision_config");
  if (found == json.end() || !found->is_object()) return 0;
  const Json& keys = table()["vision"];
  const auto number = [&](const char* what, double otherwise) {
    for (const Json& key : keys[what]) {
      const auto value = found->find(key.get<std::string>());
      const bool is_size = value != found->end() && value->is_number();
      if (is_size && *value > 0 && *value < kMostWidth) return value->get<double>();
    }
    return otherwise;
  };
  // Older files name the type of the whole model alone.
  const Json& typed = found->contains("model_type") ? *found : json;
  const std::string name = typed.contains("model_type") ? typed["model_type"].dump() : "";
  const auto is = [&](const char* list) {
    return std::ranges::any_of(keys[list], [&](const Json& type) {
      return name.find(type.get<std::string>()) != std::string::npos;
    });
  };
  const double h = number("hidden", 0);
  const double ffn =
      is("out_is_ffn") ? number("out", 4 * h) : number("ffn", h * number("ratio", 4));
  const double merged = h * std::pow(number("merge", 1), 2);
  const double patch = std::pow(number("patch", 14), 2) * 3 * number("frames", 1);
  const auto deep = found->find("deepstack_visual_indexes");
  const double mergers = deep == found->end() ? 1 : 1 + static_cast<double>(deep->size());
  return number("layers", 0) * (4 * h * h + (is("gated") ? 3 : 2) * h * ffn) + patch * h +
         mergers * (merged > h ? merged * merged + merged * hidden : h * hidden);
}

/// Parts of the file that nothing here counts, in words.
std::string left_out_of(const Config& config, const Json& json, const ModelShape& model) {
  std::vector<std::string> words;
  if (config.integer_or("predicted", kMostLayers, 0, 0) > 0) {
    const bool has_experts = model.layers.back().feed_forward.experts > 0;
    const double bits = model.weights.of(has_experts ? WeightKind::experts : WeightKind::dense);
    words.push_back(fmt::format("multi-token prediction, of about {:.3g} weights, {:.3g} GB",
                                model.predicting, model.predicting * bits / 8e9));
  }
  if (model.vision > 0) words.emplace_back("time of the vision tower, whose weights are counted");
  for (const char* key : {"audio_config", "talker_config"}) {
    if (json.contains(key) && json[key].is_object()) {
      words.push_back(fmt::format("weights and time of {}", key));
    }
  }
  for (const auto& [key, what] : table()["uncounted"].items()) {
    if (config.at(key) != nullptr) words.push_back(what);
  }
  const bool has_state =
      std::ranges::any_of(model.layers, [](const Layer& layer) { return layer.mixer.state > 0; });
  if (has_state) words.emplace_back("arithmetic of the scans of states, whose bytes are counted");
  if (config.is_guessed()) {
    words.push_back(fmt::format("model_type {} is not in the table: read by its keys",
                                quote(config.type_name())));
  }
  const std::vector<std::string> unknown = config.unknown_keys();
  if (!unknown.empty()) words.push_back("keys that are not known: " + join(unknown));
  return fmt::format("{}", fmt::join(words, "; "));
}

/// Gemma's embeddings of every layer, and the products around them.
void add_layer_embeddings(const Config& config, ModelShape& model) {
  const double width = config.integer_or("layer_embedding", kMostWidth, 0, 0);
  if (width == 0) return;
  const double layers = static_cast<double>(model.layers.size());
  const double rows = config.integer_or("layer_vocabulary", 1 << 24, model.vocabulary);
  model.more_embedding = rows * width * layers;
  for (Layer& layer : model.layers) {
    const double h = model.hidden;
    layer.mixer.products.push_back({"per_layer_projections", h, 3 * width, true});
  }
}

ModelShape shape_of(const Json& json, std::string_view origin) {
  Config config(json, origin);
  ModelShape model;
  model.name = origin;
  model.source = "the file";
  const Json* kinds = config.at("layers_block_type");
  const bool counts = !config.has("layers") && kinds != nullptr && kinds->is_array() &&
                      !kinds->empty() && kinds->size() <= kMostLayers;
  const std::uint32_t layers =
      counts ? static_cast<std::uint32_t>(kinds->size()) : config.integer("layers", kMostLayers);
  model.hidden = config.integer("hidden", kMostWidth);
  model.vocabulary = config.integer("vocabulary", 1 << 24);
  model.tied = config.flag("tied");
  model.names = module_names(config);
  const std::uint32_t all = layers * (config.is("pairs") ? 2 : 1);
  LayerReader reader(config, model, all);
  for (std::uint32_t i = 0; i < all; ++i) model.layers.push_back(reader.read(i));
  add_layer_embeddings(config, model);
  model.vision = vision_of(json, model.hidden);
  // As the last layer, and a product that takes two vectors.
  model.predicting =
      config.integer_or("predicted", kMostLayers, 0, 0) *
      (parameters_of(model, model.layers.back()) + 2.0 * model.hidden * model.hidden);
  model.weights = weight_bits_of(json, model.matrices(), origin);
  model.left_out = left_out_of(config, json, model);
  return model;
}

/// Models that are known by a name.
const Json& listed() {
  static const Json kListed = parse_json<Json>(models_json());
  return kListed;
}

}  // namespace

ModelShape parse_model(std::string_view text, bool toml, std::string_view origin,
                       std::string_view quantization) {
  const Json whole =
      toml ? json_of(parse_toml(text, origin), origin) : json_as_python_writes(text, origin);
  Json json = text_part_of(whole);
  const bool says_nothing = json.is_object() && !json.contains("quantization_config");
  if (says_nothing && !quantization.empty()) {
    json["quantization_config"] = json_as_python_writes(quantization, "hf_quant_config.json");
  }
  return shape_of(json, origin);
}

std::vector<std::string> listed_models() {
  std::vector<std::string> names;
  for (const Json& each : listed()) names.push_back(each["name"]);
  return names;
}

ModelShape find_model(std::string_view name_or_path) {
  for (const Json& each : listed()) {
    if (each["name"] != name_or_path) continue;
    ModelShape model = shape_of(each["config"], "models.json");
    model.name = name_or_path;
    model.source = "its config.json on Hugging Face";
    return model;
  }
  const bool toml = name_or_path.ends_with(".toml");
  if (!toml && !name_or_path.ends_with(".json")) {
    fail("unknown model {}: {}", quote(std::string(name_or_path)),
         instead_of(name_or_path,
                    {.names = listed_models(),
                     .all = "`arlab model time --help` has all; a path ends in .json or .toml",
                     .endings = {".json", ".toml"}}));
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

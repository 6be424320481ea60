#include "sim/workload/weight_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <utility>

#include "reference/error.h"
#include "reference/tensors/file.h"

namespace arlab {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kPlainBits = 16;
/// Patterns times matrices: a second or two.
constexpr std::size_t kMostComparisons = 50'000'000;
constexpr std::size_t kMostExpressions = 2'000'000;
constexpr std::size_t kMostPatternCharacters = 1000;
constexpr double kMostBits = 32;

// ---------------------------------------------------------------- formats

/// How weights are stored: some bits each, and more for each group of them.
struct Stored {
  double bits = kPlainBits;
  double group_bits = 0;   ///< scales, zero points, smallest values
  double group = 0;        ///< weights that share them; 0: too many to count; -1: a row's
  double matrix_bits = 0;  ///< beside them for a whole matrix: codebooks

  double of(const WeightMatrix& matrix) const {
    const double shared = group < 0 ? matrix.inputs : group;
    return bits + (shared > 0 ? group_bits / shared : 0) +
           matrix_bits / (matrix.inputs * matrix.outputs);
  }
};

constexpr double kRow = -1;

/// The formats that are called by a name, in any file.
std::optional<Stored> named_format(std::string_view name) {
  static const std::map<std::string_view, Stored> kFormats = {
      // one scale for a matrix
      {"fp8", {8}},
      // OCP microscaling: a power of two for 32
      {"mxfp8", {8, 8, 32}},
      {"mxfp6", {6, 8, 32}},
      {"mxfp4", {4, 8, 32}},
      // fp8 scales for 16, and one for the matrix
      {"nvfp4", {4, 8, 16}},
      // a scale for each row
      {"int8", {8, 32, kRow}},
      {"fp8_row", {8, 32, kRow}},
      {"fp8_block", {8, 32, 128 * 128}},
      // ternary, packed as two bits
      {"ternary", {2}},
  };
  const auto found = kFormats.find(name);
  if (found == kFormats.end()) return std::nullopt;
  return found->second;
}

/// Returns the formats that a quantization_config tells by its method alone, or by a name in it: each a named_format().
const std::map<std::string_view, std::string_view>& methods_of_one_format() {
  static const std::map<std::string_view, std::string_view> kMethods = {
      {"fbgemm_fp8", "fp8_row"},
      {"ptpc_fp8", "fp8_row"},
      {"w8a8_fp8", "fp8_row"},
      {"w8a8_int8", "int8"},
      {"eetq", "int8"},
      {"bitnet", "ternary"},
      {"mxfp8", "mxfp8"},
      {"nvfp4", "nvfp4"},
      {"petit_nvfp4", "nvfp4"},
      // modelopt's quant_algo
      {"FP8", "fp8"},
      {"FP8_PER_CHANNEL_PER_TOKEN", "fp8_row"},
      {"FP8_PB_WO", "fp8_block"},
      {"FP8_PB_REAL", "fp8_block"},
      {"NVFP4", "nvfp4"},
      {"NVFP4_AWQ", "nvfp4"},
      {"NVFP4_SVD", "nvfp4"},
      {"W4A16_NVFP4", "nvfp4"},
      {"W4A8_NVFP4_FP8", "nvfp4"},
      {"MXFP4", "mxfp4"},
      {"W4A8_MXFP4_FP8", "mxfp4"},
      {"MXFP8", "mxfp8"},
      {"W8A16", "int8"},
      {"W8A8_SQ_PER_CHANNEL", "int8"},
      // torchao's configurations, and their names as text
      {"Int8WeightOnlyConfig", "int8"},
      {"Int8DynamicActivationInt8WeightConfig", "int8"},
      {"Float8WeightOnlyConfig", "fp8"},
      {"Float8DynamicActivationFloat8WeightConfig", "fp8_row"},
      {"int8_weight_only", "int8"},
      {"int8wo", "int8"},
      {"int8_dynamic_activation_int8_weight", "int8"},
      {"float8_weight_only", "fp8"},
      {"float8wo", "fp8"},
      {"float8_dynamic_activation_float8_weight", "fp8_row"},
      // quanto's weights
      {"float8", "fp8_row"},
  };
  return kMethods;
}

std::optional<Stored> format_of_method(std::string_view method) {
  const auto found = methods_of_one_format().find(method);
  return found == methods_of_one_format().end() ? std::nullopt : named_format(found->second);
}

// ---------------------------------------------------------------- which matrices

bool is_glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

/// A module, or several: "lm_head", "model.layers.3.mlp", "*.self_attn", "re:.*gate$".
class Pattern {
 public:
  Pattern(const std::string& text, std::string_view origin) : text_(text) {
    if (text.size() > kMostPatternCharacters) {
      fail("{}: quantization_config: a pattern of {} characters; allowed are {}", origin,
           text.size(), kMostPatternCharacters);
    }
    if (text.starts_with("re:")) {
      try {
        // The search that takes polynomial time: patterns are from anywhere.
        expression_.emplace(text.substr(3),
                            std::regex::ECMAScript | std::regex_constants::__polynomial);
      } catch (const std::regex_error&) {
        fail("{}: quantization_config: {} is no regular expression that is understood", origin,
             quote(text));
      }
      return;
    }
    // Around a model of text other modules may stand.
    for (const auto& [head, instead] :
         {std::pair("language_model.model.", "model."),
          std::pair("model.language_model.", "model."),
          std::pair("language_model.lm_head", "lm_head"), std::pair("language_model.", "model.")}) {
      if (text_.starts_with(head)) {
        text_ = instead + text_.substr(std::string_view(head).size());
        break;
      }
    }
    if (text_.ends_with(".weight")) text_.erase(text_.rfind('.'));
    has_star_ = text_.find_first_of("*?") != std::string::npos;
  }

  bool is_expression() const { return expression_.has_value(); }

  /// Whether a matrix is that module, or within it.
  bool matches(std::string_view name) const {
    if (expression_) {
      return std::regex_search(name.begin(), name.end(), *expression_,
                               std::regex_constants::match_continuous);
    }
    // A pattern may name any run of the parts of a name.
    for (std::size_t begin = 0; begin != std::string_view::npos;) {
      const std::string_view rest = name.substr(begin);
      if (has_star_) {
        for (std::size_t end = rest.size();; end = rest.rfind('.', end - 1)) {
          if (end == std::string_view::npos || end == 0) break;
          if (is_glob_match(text_, rest.substr(0, end))) return true;
        }
      } else if (rest.starts_with(text_) &&
                 (rest.size() == text_.size() || rest[text_.size()] == '.')) {
        return true;
      }
      begin = name.find('.', begin);
      if (begin != std::string_view::npos) ++begin;
    }
    return false;
  }

 private:
  std::string text_;
  bool has_star_ = false;
  std::optional<std::regex> expression_;
};

/// Rules for matrices: the first that fits decides; without one there is no format.
struct Rules {
  struct Rule {
    Pattern pattern;
    std::optional<Stored> stored;  ///< none: as it is
  };
  std::vector<Rule> rules = {};
  /// Formats of matrices that no rule fits, by kind.
  std::array<std::optional<Stored>, kWeightKinds> others = {};
  /// Names the modules in the file that nothing here knows; empty if there are none.
  std::string not_counted = {};

  std::optional<Stored>& of(WeightKind kind) { return others[static_cast<std::size_t>(kind)]; }

  void all_layers(const Stored& stored) {
    for (const WeightKind kind :
         {WeightKind::attention, WeightKind::dense, WeightKind::experts, WeightKind::shared}) {
      of(kind) = stored;
    }
  }

  std::optional<Stored> find(const WeightMatrix& matrix) const {
    for (const Rule& rule : rules) {
      if (rule.pattern.matches(matrix.name)) return rule.stored;
    }
    return others[static_cast<std::size_t>(matrix.kind)];
  }
};

// ---------------------------------------------------------------- what a file says

/// The names by which methods call modules that they leave as they are.
constexpr std::array kIgnored = {"modules_to_not_convert", "ignore",
                                 "ignored_layers",         "exclude",
                                 "exclude_modules",        "llm_int8_skip_modules",
                                 "skip_modules",           "linear_weights_not_to_quantize"};

class Reader {
 public:
  Reader(const Json& json, std::span<const WeightMatrix> matrices, std::string_view origin)
      : json_(json), matrices_(matrices), origin_(origin) {}

  /// Nothing where the method is not known.
  std::optional<Rules> read(const std::string& method) {
    for (const char* key : kIgnored) {
      for (const std::string& name : names(json_, key)) rules_.rules.push_back({pattern(name), {}});
    }
    method_ = method;
    if (flag(json_, "dequantize")) {
      rules_ = {.not_counted = "; dequantized when it is read: 16-bit weights"};
      return std::move(rules_);
    }
    if (!read_method(method)) return std::nullopt;
    return std::move(rules_);
  }

 private:
  using Read = bool (Reader::*)();

  bool read_method(const std::string& method) {
    static const std::map<std::string_view, Read> kReaders = {
        {"fp8", &Reader::fp8},
        {"gptq", &Reader::gptq},
        {"gptq_marlin", &Reader::gptq},
        {"gptq_bitblas", &Reader::gptq},
        {"marlin", &Reader::gptq},
        {"qqq", &Reader::gptq},
        {"awq", &Reader::awq},
        {"awq_marlin", &Reader::awq},
        {"auto-round", &Reader::auto_round},
        {"intel/auto-round", &Reader::auto_round},
        {"inc", &Reader::auto_round},
        {"bitsandbytes", &Reader::bitsandbytes},
        {"bitsandbytes_4bit", &Reader::bitsandbytes},
        {"bitsandbytes_8bit", &Reader::bitsandbytes},
        {"mxfp4", &Reader::mxfp4},
        {"experts_int8", &Reader::experts_int8},
        {"w4afp8", &Reader::w4afp8},
        {"modelopt", &Reader::modelopt},
        {"modelopt_fp4", &Reader::modelopt},
        {"modelopt_mixed", &Reader::modelopt},
        {"compressed-tensors", &Reader::compressed_tensors},
        {"torchao", &Reader::torchao},
        {"quark", &Reader::quark},
        {"hqq", &Reader::hqq},
        {"quanto", &Reader::quanto},
        {"aqlm", &Reader::aqlm},
        {"higgs", &Reader::higgs},
        {"fp_quant", &Reader::fp_quant},
        {"exl2", &Reader::exl},
        {"exl3", &Reader::exl},
        {"mlx", &Reader::mlx},
    };
    const auto reader = kReaders.find(method);
    if (reader != kReaders.end()) return (this->*reader->second)();
    const std::optional<Stored> stored = format_of_method(method);
    if (!stored) return false;
    rules_.all_layers(*stored);
    return true;
  }

  // ---- values

  [[noreturn]] void refuse(std::string_view key, std::string_view allowed) const {
    fail("{}: key 'quantization_config.{}': it must be {}", origin_, printable(std::string(key)),
         allowed);
  }

  static const Json* find(const Json& json, std::string_view key) {
    if (!json.is_object()) return nullptr;
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<double> number(const Json& json, std::string_view key, double least,
                               double most) const {
    const Json* value = find(json, key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number() || value->get<double>() < least || value->get<double>() > most) {
      refuse(key, fmt::format("a number from {} to {}", least, most));
    }
    return value->get<double>();
  }

  std::string text(const Json& json, std::string_view key) const {
    const Json* value = find(json, key);
    return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
  }

  bool flag(const Json& json, std::string_view key) const {
    const Json* value = find(json, key);
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }

  /// A text, texts, or texts in arrays of arrays.
  std::vector<std::string> names(const Json& json, std::string_view key) const {
    std::vector<std::string> found;
    const Json* value = find(json, key);
    if (value == nullptr) return found;
    const auto take = [&](const Json& each) {
      if (!each.is_string()) refuse(key, "names of modules");
      found.push_back(each.get<std::string>());
    };
    if (value->is_string()) {
      take(*value);
    } else if (value->is_array()) {
      for (const Json& each : *value) {
        if (!each.is_array()) take(each);
        if (each.is_array()) std::ranges::for_each(each, take);
      }
    } else {
      refuse(key, "names of modules");
    }
    return found;
  }

  std::optional<double> bits(const Json& json,
                             std::initializer_list<const char*> keys = {"bits"}) const {
    for (const char* key : keys) {
      if (const auto found = number(json, key, 1, kMostBits)) return found;
    }
    return std::nullopt;
  }
  std::optional<double> group(const Json& json,
                              std::initializer_list<const char*> keys = {"group_size"}) const {
    for (const char* key : keys) {
      const auto found = number(json, key, -1, 1 << 20);
      if (found) return *found <= 0 ? kRow : *found;
    }
    return std::nullopt;
  }

  Pattern pattern(const std::string& name) const { return Pattern(name, origin_); }

  void add(const std::string& name, const std::optional<Stored>& stored) {
    rules_.rules.push_back({pattern(name), stored});
  }

  bool has(WeightKind kind) const {
    return std::ranges::any_of(matrices_, [&](const WeightMatrix& m) { return m.kind == kind; });
  }

  // ---- methods

  /// DeepSeek's blocks with a fp32 scale, or one scale for a matrix.
  bool fp8() {
    Stored stored = *named_format("fp8");
    if (const Json* block = find(json_, "weight_block_size")) {
      const bool is_pair = block->is_array() && block->size() == 2 &&
                           std::ranges::all_of(*block, [](const Json& each) {
                             return each.is_number_integer() && each > 0 && each <= 1 << 20;
                           });
      if (!is_pair) refuse("weight_block_size", "two integers, as [128, 128]");
      stored = {8, 32, (*block)[0].get<double>() * (*block)[1].get<double>()};
    }
    rules_.all_layers(stored);
    return quantized_layers(json_).value_or(true);
  }

  /// modelopt's formats of modules by name; nothing where there are none, false where one is not known.
  std::optional<bool> quantized_layers(const Json& config) {
    const Json* layers = find(config, "quantized_layers");
    if (layers == nullptr || !layers->is_object()) return std::nullopt;
    for (const auto& [name, each] : layers->items()) {
      const std::optional<Stored> stored = of_modelopt(each, text(each, "quant_algo"));
      if (!stored) return false;
      add(name, stored);
    }
    return true;
  }

  /// A 16-bit scale and a zero point of the weights' bits for each group.
  static Stored integers(double bits, double group) { return {bits, 16 + bits, group}; }

  bool gptq() {
    auto width = bits(json_, {"bits", "w_bit", "wbits"});
    if (!width && text(json_, "quant_method") == "marlin") width = 4;
    if (!width) refuse("bits", "a number of bits");
    const double each = group(json_).value_or(128);
    // Modules of their own: "+:re" with other bits, "-:re" as they are.
    if (const Json* dynamic = find(json_, "dynamic"); dynamic != nullptr && dynamic->is_object()) {
      for (const auto& [name, own] : dynamic->items()) {
        const bool leaves = name.starts_with("-:");
        const std::string what = leaves || name.starts_with("+:") ? name.substr(2) : name;
        const Stored stored = integers(bits(own).value_or(*width), group(own).value_or(each));
        add("re:" + what, leaves ? std::nullopt : std::optional(stored));
      }
    }
    const Stored stored = integers(*width, each);
    const std::vector<std::string> only = names(json_, "modules_in_block_to_quantize");
    if (only.empty()) {
      rules_.all_layers(stored);
    } else {
      for (const std::string& name : only) add(name, stored);
    }
    if (flag(json_, "lm_head")) rules_.of(WeightKind::head) = stored;
    return true;
  }

  bool awq() {
    const auto width = bits(json_, {"bits", "w_bit"});
    if (!width) refuse("bits", "a number of bits");
    rules_.all_layers(integers(*width, group(json_, {"group_size", "q_group_size"}).value_or(128)));
    return true;
  }

  Stored of_auto_round(const Json& json, const Stored& otherwise) const {
    const std::string type = text(json, "data_type");
    const double width = bits(json).value_or(otherwise.bits);
    const double each = group(json).value_or(otherwise.group);
    if (type.starts_with("mx")) return {width, 8, 32};
    if (type.starts_with("nv")) return {width, 8, 16};
    return integers(width, each);
  }

  bool auto_round() {
    if (!bits(json_)) refuse("bits", "a number of bits");
    const Stored stored = of_auto_round(json_, {4, 0, 128});
    if (const Json* own = find(json_, "extra_config"); own != nullptr && own->is_object()) {
      for (const auto& [name, each] : own->items()) {
        const Stored other = of_auto_round(each, stored);
        const bool is_expression = name.find_first_of("*\\^$|(") != std::string::npos;
        add((is_expression ? "re:" : "") + name,
            other.bits >= kPlainBits ? std::nullopt : std::optional(other));
      }
    }
    rules_.all_layers(stored);
    return true;
  }

  bool bitsandbytes() {
    const bool four = flag(json_, "load_in_4bit") || flag(json_, "_load_in_4bit");
    // Blocks of 64 with an fp32 scale; twice quantized, 8 bits of it and fp32 for 256 blocks.
    const Stored nf4 = flag(json_, "bnb_4bit_use_double_quant") ? Stored{4, 8 + 32.0 / 256, 64}
                                                                : Stored{4, 32, 64};
    if (!four && !flag(json_, "load_in_8bit") && !flag(json_, "_load_in_8bit")) return false;
    rules_.all_layers(four ? nf4 : *named_format("int8"));
    return true;
  }

  /// Reads gpt-oss and alike: experts alone are quantized.
  bool mxfp4() {
    const Stored stored = *named_format("mxfp4");
    if (has(WeightKind::experts)) {
      rules_.of(WeightKind::experts) = stored;
    } else {
      rules_.all_layers(stored);
    }
    return true;
  }

  bool experts_int8() {
    rules_.of(WeightKind::experts) = named_format("int8");
    return true;
  }

  bool w4afp8() {
    rules_.all_layers(*named_format("fp8_block"));
    rules_.of(WeightKind::experts) = Stored{4, 16, group(json_).value_or(128)};
    return true;
  }

  std::optional<Stored> of_modelopt(const Json& json, const std::string& algorithm) const {
    if (algorithm == "W4A16_AWQ" || algorithm == "W4A8_AWQ" || algorithm == "INT4_AWQ") {
      return Stored{4, 16, group(json).value_or(128)};
    }
    return format_of_method(algorithm);
  }

  bool modelopt() {
    // As hf_quant_config.json has it, one level deeper.
    const Json* inner = find(json_, "quantization");
    const Json& config = inner != nullptr && inner->is_object() ? *inner : json_;
    if (&config != &json_) {
      for (const char* key : kIgnored) {
        for (const std::string& name : names(config, key)) add(name, std::nullopt);
      }
    }
    const std::string algorithm = text(config, "quant_algo");
    if (const std::optional<bool> known = quantized_layers(config)) return *known;
    if (find(config, "config_groups") != nullptr) return compressed_tensors();
    const std::optional<Stored> stored = of_modelopt(config, algorithm);
    if (!stored) return false;
    rules_.all_layers(*stored);
    return true;
  }

  /// The weights of one of its groups.
  std::optional<Stored> of_group(const Json& group_config) const {
    const Json* weights = find(group_config, "weights");
    if (weights == nullptr) return std::nullopt;
    const auto width = bits(*weights, {"num_bits"});
    if (!width) refuse("config_groups.weights.num_bits", "a number of bits");
    const bool is_float = text(*weights, "type") == "float";
    const std::string strategy = text(*weights, "strategy");
    const std::string own = text(group_config, "format");
    const std::string format = own.empty() ? text(json_, "format") : own;
    if (format == "dense" || format == "fakequant") return std::nullopt;  // only calculated with
    const auto each = group(*weights);
    Stored stored{*width};
    // These have a byte for each weight.
    if (format == "int-quantized" || format == "float-quantized" || format == "naive-quantized") {
      stored.bits = std::max(stored.bits, 8.0);
    }
    if (strategy == "block") {
      const Json* block = find(*weights, "block_structure");
      const bool is_pair = block != nullptr && block->is_array() && block->size() == 2 &&
                           (*block)[0].is_number() && (*block)[1].is_number();
      stored.group = is_pair ? (*block)[0].get<double>() * (*block)[1].get<double>() : 128 * 128;
      stored.group_bits = 16;
    } else if (strategy == "channel" || (strategy == "group" && each.value_or(kRow) == kRow)) {
      stored.group = kRow;
      stored.group_bits = 16;
    } else if (strategy != "tensor" && each) {
      stored.group = *each;
      // Groups of small floats have scales of 8 bits: microscaling, and nvfp4.
      const bool small_scales = is_float && (*width <= 6 || *each == 32);
      stored.group_bits = small_scales ? 8 : 16;
      if (format.find("mxfp") != std::string::npos) stored.group_bits = 8;
    }
    const Json* symmetric = find(*weights, "symmetric");
    const bool has_zero = symmetric != nullptr && *symmetric == false && stored.group != 0;
    if (has_zero) stored.group_bits += *width;
    return stored;
  }

  bool compressed_tensors() {
    const Json* groups = find(json_, "config_groups");
    if (groups == nullptr || !groups->is_object()) return false;
    std::optional<Stored> linear;
    for (const auto& [name, each] : groups->items()) {
      const std::optional<Stored> stored = of_group(each);
      std::vector<std::string> targets = names(each, "targets");
      if (targets.empty()) targets = {"Linear"};
      for (const std::string& target : targets) {
        // Names of classes: of all that are no name of a module, what a decoder has is linear.
        const bool is_class = !target.starts_with("re:") && target.find('.') == std::string::npos &&
                              !target.empty() && target[0] >= 'A' && target[0] <= 'Z';
        if (!is_class) {
          add(target, stored);
        } else if (target == "Linear" || target == "FusedMoE" || target == "MoE") {
          linear = stored;
        } else if (target == "Embedding") {
          rules_.of(WeightKind::embedding) = stored;
        } else {
          rules_.not_counted +=
              fmt::format("; what it says of {} is not modelled", printable(target));
        }
      }
    }
    if (!linear) return true;
    rules_.all_layers(*linear);
    // The head is a linear layer, too; modelopt leaves it out. Routers are none in most models, and
    // ignored in the others.
    if (method_ != "compressed-tensors") return true;
    rules_.of(WeightKind::head) = linear;
    return true;
  }

  bool torchao() {
    const Json* type = find(json_, "quant_type");
    if (type == nullptr) return false;
    std::string name = type->is_string() ? type->get<std::string>() : "";
    Json data = Json::object();
    if (const Json* arguments = find(json_, "quant_type_kwargs")) data = *arguments;
    if (const Json* main = find(*type, "default")) {
      name = text(*main, "_type");
      if (const Json* given = find(*main, "_data")) data = *given;
    }
    std::optional<Stored> stored = format_of_method(name);
    if (name.starts_with("Int4WeightOnly") || name == "int4_weight_only" || name == "int4wo") {
      stored = {4, 32, group(data).value_or(128)};  // bf16 scale and zero
    } else if (name == "Int8DynamicActivationInt4WeightConfig") {
      stored = {4, 32, group(data).value_or(32)};
    }
    if (!stored) return false;
    rules_.all_layers(*stored);
    if (flag(json_, "include_input_output_embeddings")) {
      rules_.of(WeightKind::embedding) = stored;
      rules_.of(WeightKind::head) = stored;
    }
    return true;
  }

  std::optional<Stored> of_quark(const Json& layer) const {
    const Json* weight = find(layer, "weight");
    // After two successive quantizations the last one is stored.
    if (weight != nullptr && weight->is_array() && !weight->empty()) weight = &weight->back();
    if (weight == nullptr || !weight->is_object()) return std::nullopt;
    const std::string dtype = text(*weight, "dtype");
    const std::size_t digit = dtype.find_first_of("0123456789");
    if (digit == std::string::npos) return std::nullopt;
    double width = 0;
    std::from_chars(dtype.data() + digit, dtype.data() + dtype.size(), width);
    if (width < 1 || width > kPlainBits) return std::nullopt;
    if (dtype.starts_with("mx")) return Stored{width, 8, 32};
    const std::string scheme = text(*weight, "qscheme");
    const double scale = text(*weight, "scale_format") == "e8m0" ? 8 : 16;
    if (scheme == "per_group") return Stored{width, scale, group(*weight).value_or(32)};
    if (scheme == "per_channel") return Stored{width, 32, kRow};
    return Stored{width};
  }

  bool quark() {
    if (const Json* layers = find(json_, "layer_quant_config");
        layers != nullptr && layers->is_object()) {
      for (const auto& [name, each] : layers->items()) add(name, of_quark(each));
    }
    const Json* all = find(json_, "global_quant_config");
    std::optional<Stored> stored = all == nullptr ? std::nullopt : of_quark(*all);
    bool has_type = false;
    if (const Json* types = find(json_, "layer_type_quant_config");
        types != nullptr && types->is_object()) {
      for (const auto& [name, each] : types->items()) {
        if (name == "Linear" || name.ends_with(".Linear")) {
          stored = of_quark(each);
          has_type = true;
        } else {
          rules_.not_counted +=
              fmt::format("; what it says of {} is not modelled", printable(name));
        }
      }
    }
    const bool is_empty = all == nullptr || (all->is_object() && all->empty());
    if (stored) rules_.all_layers(*stored);
    return stored || has_type || (is_empty && !rules_.rules.empty());
  }

  /// A scale and a zero point of 16 bits each.
  bool hqq() {
    const Json* inner = find(json_, "quant_config");
    const Json* weights = find(inner == nullptr ? json_ : *inner, "weight_quant_params");
    const Json& from = weights == nullptr ? json_ : *weights;
    const auto width = bits(from, {"nbits", "bits"});
    if (!width) return false;
    rules_.all_layers({*width, 32, group(from).value_or(64)});
    return true;
  }

  bool quanto() {
    const std::string weights = text(json_, "weights");
    std::optional<Stored> stored = format_of_method(weights);
    if (weights == "int8") stored = named_format("int8");
    if (weights == "int4") stored = {4, 32, 128};
    if (weights == "int2") stored = {2, 32, 128};
    if (!stored) return false;
    rules_.all_layers(*stored);
    return true;
  }

  /// Codes of groups of weights, a scale for each row, and codebooks in 16 bits.
  bool aqlm() {
    const auto codebooks = number(json_, "num_codebooks", 1, 64);
    const auto code = number(json_, "nbits_per_codebook", 1, 24);
    const double in = number(json_, "in_group_size", 1, 1024).value_or(8);
    const double out = number(json_, "out_group_size", 1, 1024).value_or(1);
    if (!codebooks || !code) return false;
    const double entries = static_cast<double>(std::uint64_t{1} << static_cast<unsigned>(*code));
    rules_.all_layers(
        {*codebooks * *code / (in * out), 16, kRow, *codebooks * entries * in * out * 16});
    return true;
  }

  bool higgs() {
    const auto width = bits(json_);
    if (!width) return false;
    rules_.all_layers({*width, 16, group(json_).value_or(256)});
    return true;
  }

  bool fp_quant() {
    const std::optional<Stored> stored = named_format(text(json_, "forward_dtype"));
    if (!stored) return false;
    rules_.all_layers(*stored);
    return true;
  }

  /// A mean over all matrices, scales included.
  bool exl() {
    const auto width = bits(json_);
    if (!width) refuse("bits", "a number of bits");
    rules_.all_layers({*width});
    if (const auto head = bits(json_, {"head_bits"})) {
      if (*head < kPlainBits) rules_.of(WeightKind::head) = Stored{*head};
    }
    return true;
  }

  /// MLX's own: all that is linear, and the embedding; 16 bits each for the scale and the least.
  bool mlx() {
    const auto of = [&](const Json& json) -> std::optional<Stored> {
      const std::string mode = text(json, "mode");
      if (const auto known = named_format(mode)) return known;
      const auto width = bits(json);
      if (!width) return std::nullopt;
      return Stored{*width, 32, group(json).value_or(64)};
    };
    const std::optional<Stored> stored = of(json_);
    if (!stored) return false;
    for (const auto& [name, each] : json_.items()) {
      if (name.find('.') == std::string::npos && name != "lm_head") continue;
      if (each.is_boolean() || each.is_object())
        add(name, each.is_object() ? of(each) : std::nullopt);
    }
    rules_.all_layers(*stored);
    rules_.of(WeightKind::head) = stored;
    rules_.of(WeightKind::embedding) = stored;
    return true;
  }

  const Json& json_;
  std::span<const WeightMatrix> matrices_;
  std::string_view origin_;
  std::string method_;
  Rules rules_;
};

void require_few(const Rules& rules, std::size_t matrices, std::string_view origin) {
  const auto expressions = static_cast<std::size_t>(std::ranges::count_if(
      rules.rules, [](const Rules::Rule& rule) { return rule.pattern.is_expression(); }));
  if (rules.rules.size() * matrices <= kMostComparisons &&
      expressions * matrices <= kMostExpressions) {
    return;
  }
  fail("{}: quantization_config: {} patterns for {} matrices are too many", origin,
       rules.rules.size(), matrices);
}

/// Names the parts that nothing here counts; empty if there are none.
std::string left_out(const Json& quantization) {
  std::string words;
  const auto has = [&](const char* key) {
    return quantization.contains(key) && !quantization[key].is_null() &&
           !(quantization[key].is_object() && quantization[key].empty());
  };
  if (has("kv_cache_scheme") || has("kv_cache_quant_algo")) {
    words += "; keys and values are not modelled as quantized";
  }
  const bool is_sparse = quantization.contains("format") && quantization["format"] == "marlin-24";
  if (has("sparsity_config") || is_sparse) words += "; sparsity is not modelled";
  return words;
}

bool is_layer(WeightKind kind) {
  return kind != WeightKind::router && kind != WeightKind::head && kind != WeightKind::embedding &&
         kind != WeightKind::vision;
}

}  // namespace

std::string_view name_of(WeightKind kind) {
  constexpr std::array kNames = {"attention", "dense", "experts",   "shared",
                                 "router",    "head",  "embedding", "vision"};
  return kNames[static_cast<std::size_t>(kind)];
}

WeightBits weight_bits_of(const Json& config, std::span<const WeightMatrix> matrices,
                          std::string_view origin) {
  WeightBits found;
  const Json* quantization = nullptr;
  const char* called = nullptr;
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    if (quantization != nullptr || !config.contains(key) || config[key].is_null()) continue;
    quantization = &config[key];
    called = key;
  }
  if (quantization == nullptr) {
    for (const char* key : {"torch_dtype", "dtype"}) {
      if (!config.contains(key) || !config[key].is_string()) continue;
      const std::string dtype = config[key].get<std::string>();
      if (!dtype.starts_with("float8")) continue;
      found.bits.fill(8);
      found.source = fmt::format("{} {}", key, printable(dtype));
    }
    return found;
  }
  if (!quantization->is_object()) fail("{}: key '{}': it must be an object", origin, called);
  std::string method;
  if (quantization->contains("quant_method")) {
    if (!(*quantization)["quant_method"].is_string()) {
      fail("{}: key '{}.quant_method': it must be a text", origin, called);
    }
    method = (*quantization)["quant_method"].get<std::string>();
    // Names in capitals are modelopt's algorithms; of methods there are none.
    std::ranges::transform(method, method.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
  }
  // hf_quant_config.json, which modelopt writes beside config.json, has all one level deeper.
  const Json* inner =
      quantization->contains("quantization") ? &(*quantization)["quantization"] : quantization;
  std::string algorithm;
  if (inner->is_object() && inner->contains("quant_algo") && (*inner)["quant_algo"].is_string()) {
    algorithm = " " + (*inner)["quant_algo"].get<std::string>();
    if (method.empty()) method = "modelopt";
  }
  for (const char* key : {"load_in_4bit", "load_in_8bit"}) {  // as transformers takes it
    if (method.empty() && quantization->contains(key)) method = "bitsandbytes";
  }
  if (method.empty() && quantization->contains("config_groups")) method = "compressed-tensors";
  if (method.empty() && quantization->contains("bits")) method = "mlx";
  const std::string words = method + algorithm;
  std::optional<Rules> rules = Reader(*quantization, matrices, origin).read(method);
  if (!rules) {
    found.source = fmt::format("{}: {} is not modelled: 16-bit weights", called,
                               method.empty() ? "a method without quant_method" : quote(words));
    return found;
  }
  // DeepSeek's way to say that experts differ.
  if (config.contains("expert_dtype") && config["expert_dtype"] == "fp4") {
    rules->of(WeightKind::experts) = named_format("mxfp4");
  }
  require_few(*rules, matrices.size(), origin);
  std::array<double, kWeightKinds> weights = {};
  std::array<double, kWeightKinds> bits = {};
  for (const WeightMatrix& matrix : matrices) {
    const std::optional<Stored> stored = rules->find(matrix);
    const auto kind = static_cast<std::size_t>(matrix.kind);
    weights[kind] += matrix.weights();
    bits[kind] += matrix.weights() * (stored ? stored->of(matrix) : kPlainBits);
  }
  for (std::size_t kind = 0; kind < kWeightKinds; ++kind) {
    if (weights[kind] > 0) found.bits[kind] = bits[kind] / weights[kind];
  }
  found.source = fmt::format("{}: {}{}{}", called, printable(words), rules->not_counted,
                             left_out(*quantization));
  return found;
}

WeightBits changed(WeightBits bits, std::string_view text, std::span<const WeightMatrix> matrices) {
  const WeightBits before = bits;
  std::set<WeightKind> kinds;
  for (const WeightMatrix& matrix : matrices) kinds.insert(matrix.kind);
  const auto bits_of = [&](std::string_view number) {
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error == std::errc() && end == number.data() + number.size() && value >= 1 &&
        value <= kMostBits) {
      return value;
    }
    std::string names;
    for (const WeightKind kind : kinds) names += fmt::format(", {}", name_of(kind));
    fail(
        "--weight-bits: {}: allowed are numbers from 1 to {}, as 4.25 or experts=4.25,head=8; of "
        "this model{}",
        quote(std::string(text)), kMostBits, names.replace(0, 1, ":"));
  };
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      const double value = bits_of(part);
      for (const WeightKind kind : kinds) {
        if (is_layer(kind)) bits.of(kind) = value;
      }
    } else {
      const auto named = std::ranges::find_if(
          kinds, [&](WeightKind kind) { return name_of(kind) == part.substr(0, equals); });
      if (named == kinds.end()) bits_of("");
      bits.of(*named) = bits_of(part.substr(equals + 1));
    }
    begin = end + 1;
  }
  if (bits.bits == before.bits) {
    fail("--weight-bits {} changes nothing: the weights have these bits ({})",
         printable(std::string(text)), before.source);
  }
  bits.source = "--weight-bits";
  return bits;
}

double mean_bits(const WeightBits& bits, std::span<const WeightMatrix> matrices) {
  double weights = 0;
  double sum = 0;
  for (const WeightMatrix& matrix : matrices) {
    weights += matrix.weights();
    sum += matrix.weights() * bits.of(matrix.kind);
  }
  return weights > 0 ? sum / weights : 0;
}

std::string describe(const WeightBits& bits, std::span<const WeightMatrix> matrices) {
  std::set<WeightKind> kinds;
  for (const WeightMatrix& matrix : matrices) kinds.insert(matrix.kind);
  std::vector<std::pair<std::string, std::string>> alike;  // bits, names
  for (const WeightKind kind : kinds) {
    const std::string value = fmt::format("{:.4g}", bits.of(kind));
    auto of_value = std::ranges::find(alike, value, &std::pair<std::string, std::string>::first);
    if (of_value == alike.end()) of_value = alike.insert(alike.end(), {value, ""});
    of_value->second += fmt::format("{}{}", of_value->second.empty() ? "" : ", ", name_of(kind));
  }
  std::string words;
  for (const auto& [value, names] : alike) {
    words += fmt::format("{}{} {}", words.empty() ? "" : "; ", names, value);
  }
  return words;
}

}  // namespace arlab

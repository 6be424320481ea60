#include "kernels/runtime/call_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "reference/codecs/registry.h"
#include "reference/error.h"
#include "reference/tensors/file.h"
#include "reference/toml.h"
#include "reference/words.h"

namespace arlab::kernels {
namespace {

constexpr std::uint64_t kNoEnd = UINT64_MAX;
constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;
constexpr std::size_t kMostRules = 4096;

std::string range_words(const TableRule& rule) {
  return rule.to_bytes == kNoEnd ? fmt::format("from {} bytes on", rule.from_bytes)
                                 : fmt::format("{} to {} bytes", rule.from_bytes, rule.to_bytes);
}

std::string subject(const TableRule& rule) {
  return fmt::format("{} of {}", name_of(rule.collective),
                     rule.dtype ? name_of(*rule.dtype) : "all dtypes");
}

// ---------------------------------------------------------------- what a rule must be

void require_codec(const TableRule& rule, const std::string& name) {
  const CodecPtr codec = find_codec(name);
  if (rule.dtype && !codec->takes(*rule.dtype)) {
    fail("codec '{}' does not take {}", name, name_of(*rule.dtype));
  }
}

void require_rule(const TableRule& rule) {
  if (rule.from_bytes >= rule.to_bytes) {
    fail("{}: allowed is a range that ends above where it begins", range_words(rule));
  }
  if (rule.algorithm == kByLibrary) {
    if (!rule.codec.empty() || !rule.options.empty()) {
      fail("algorithm 'library' has a codec or options: allowed are none");
    }
    return;
  }
  const Algorithm& algorithm = find_algorithm(rule.algorithm);
  if (algorithm.collective != rule.collective) {
    fail("algorithm '{}' is {}, not {}", rule.algorithm, words_for(algorithm.collective),
         words_for(rule.collective));
  }
  if (!rule.codec.empty()) require_codec(rule, rule.codec);
  if (const auto inner = rule.options.inner_codec()) require_codec(rule, *inner);
}

/// Rules of one collective which may take the same dtype have to stand beside each other.
void require_beside(const TableRule& before, const TableRule& after, const std::string& what) {
  if (after.from_bytes < before.to_bytes) {
    fail("{}: it overlaps {}: both take {}, {} bytes; allowed is one rule for each size",
         after.origin, before.origin, what, after.from_bytes);
  }
  if (after.from_bytes > before.to_bytes) {
    fail("{}: between it and {} no rule takes {} from {} to {} bytes; allowed are no gaps",
         after.origin, before.origin, what, before.to_bytes, after.from_bytes);
  }
}

/// Whether a rule takes a dtype.
bool takes(const TableRule& rule, DType dtype) {
  if (rule.dtype) return rule.dtype == dtype;
  const auto can = [&](const std::string& codec) { return find_codec(codec)->takes(dtype); };
  const std::optional<std::string> inner = rule.options.inner_codec();
  return (rule.codec.empty() || can(rule.codec)) && (!inner || can(*inner));
}

constexpr DType kDTypes[] = {DType::fp16, DType::bf16, DType::fp32};

// ---------------------------------------------------------------- TOML

std::uint64_t bytes_of(const toml::node& node, std::string_view key) {
  if (const auto number = node.value_exact<std::int64_t>(); number && *number >= 0) {
    return static_cast<std::uint64_t>(*number);
  }
  if (const auto text = node.value_exact<std::string>()) {
    if (const auto bytes = parse_size(*text)) return *bytes;
  }
  fail("key '{}': allowed is a number of bytes, also as in \"64K\"", key);
}

std::string text_of(const toml::node& node, std::string_view key) {
  const auto text = node.value_exact<std::string>();
  if (!text || text->empty()) fail("key '{}': allowed is a text", key);
  return *text;
}

FieldValue option_of(const toml::node& node, const Field& field) {
  FieldValue value;
  if (const auto text = node.value_exact<std::string>()) value = *text;
  if (const auto flag = node.value_exact<bool>()) value = *flag;
  if (const auto number = node.value_exact<std::int64_t>(); number && *number >= 0) {
    value = static_cast<std::uint64_t>(*number);
  }
  require_allowed(field, value, fmt::format("key '{}'", field.name));
  return value;
}

TableRule rule_of(const toml::table& table) {
  constexpr std::array kKeys = {"collective", "dtype", "from_bytes", "to_bytes",
                                "algorithm",  "codec", "note"};
  for (const char* key : {"collective", "algorithm"}) {
    if (!table.contains(key)) fail("missing key '{}'", key);
  }
  TableRule rule;
  rule.algorithm = text_of(*table.get("algorithm"), "algorithm");
  std::vector<Field> options;
  if (rule.algorithm != kByLibrary) options = find_algorithm(rule.algorithm).options;
  for (const auto& [name, node] : table) {
    const std::string key(name.str());
    if (key == "collective") {
      rule.collective =
          member_named<Collective>(text_of(node, key), "key 'collective'", kCollectives);
    } else if (key == "dtype") {
      rule.dtype = parse_dtype(text_of(node, key));
    } else if (key == "from_bytes") {
      rule.from_bytes = bytes_of(node, key);
    } else if (key == "to_bytes") {
      rule.to_bytes = bytes_of(node, key);
    } else if (key == "codec") {
      rule.codec = text_of(node, key);
    } else if (key == "note") {
      rule.note = text_of(node, key);
    } else if (const auto field = std::ranges::find(options, key, &Field::name);
               field != options.end()) {
      rule.options.set(key, option_of(node, *field));
    } else if (key != "algorithm") {
      std::vector<std::string> allowed(kKeys.begin(), kKeys.end());
      for (const Field& option : options) allowed.push_back(option.name);
      fail("unknown key {}: {}", quote(key), instead_of(key, {allowed, "allowed are"}));
    }
  }
  return rule;
}

// ---------------------------------------------------------------- words

bool begins_a_rule(std::string_view item) {
  const std::size_t dash = item.find('-');
  return dash != std::string_view::npos && parse_size(item.substr(0, dash)).has_value();
}

TableRule rule_of(std::string_view item) {
  constexpr const char* kForm = "allowed is FROM-TO:ALGORITHM/CODEC, as in 16K-1M:one_shot/bf16";
  const std::size_t dash = item.find('-');
  const std::size_t colon = item.find(':');
  if (!begins_a_rule(item) || colon == std::string_view::npos || colon < dash) {
    fail("{}: {}", quote(item), kForm);
  }
  TableRule rule;
  rule.from_bytes = *parse_size(item.substr(0, dash));
  if (const std::string_view to = item.substr(dash + 1, colon - dash - 1); !to.empty()) {
    const auto bytes = parse_size(to);
    if (!bytes) fail("{}: {}", quote(item), kForm);
    rule.to_bytes = *bytes;
  }
  const std::string_view method = item.substr(colon + 1);
  const std::size_t slash = std::min(method.find('/'), method.size());
  rule.algorithm = method.substr(0, slash);
  if (slash < method.size()) rule.codec = method.substr(slash + 1);
  if (rule.algorithm.empty() || method.ends_with('/')) fail("{}: {}", quote(item), kForm);
  return rule;
}

/// Adds a rule that `make` returns; what is wrong with it begins with where it stands.
template <class Make>
void add(std::vector<TableRule>& rules, const std::string& origin, Make make) {
  try {
    TableRule rule = make();
    rule.origin = origin;
    require_rule(rule);
    rules.push_back(std::move(rule));
  } catch (const InvalidInput& wrong) {
    fail("{}: {}", origin, wrong.what());
  }
  if (rules.size() > kMostRules) fail("{}: allowed are at most {} rules", origin, kMostRules);
}

}  // namespace

CallTable::CallTable(std::vector<TableRule> rules) : rules_(std::move(rules)) {
  for (const TableRule& rule : rules_) {
    std::vector<bool>& of_rule = takes_.emplace_back();
    for (const DType dtype : kDTypes) of_rule.push_back(takes(rule, dtype));
  }
  for (const Collective collective : kCollectives) {
    for (const DType dtype : kDTypes) {
      std::vector<const TableRule*> taken;
      for (std::size_t i = 0; i < rules_.size(); ++i) {
        const bool is_of = rules_[i].collective == collective;
        if (is_of && takes_[i][static_cast<std::size_t>(dtype)]) taken.push_back(&rules_[i]);
      }
      std::ranges::stable_sort(taken, {}, &TableRule::from_bytes);
      const std::string what = fmt::format("{} of {}", name_of(collective), name_of(dtype));
      for (std::size_t i = 1; i < taken.size(); ++i) require_beside(*taken[i - 1], *taken[i], what);
    }
  }
}

CallTable CallTable::parse(std::string_view text, std::string_view origin) {
  const toml::table file = parse_toml(text, origin);
  std::vector<TableRule> rules;
  for (const auto& [key, node] : file) {
    const toml::array* const array = node.as_array();
    const bool is_rules = key == "rule" && array != nullptr && array->is_homogeneous<toml::table>();
    if (!is_rules) {
      fail("{}, line {}: {}: allowed are only [[rule]]", origin, key.source().begin.line,
           quote(key.str()));
    }
    for (const toml::node& each : *array) {
      add(rules, fmt::format("{}, line {}", origin, each.source().begin.line),
          [&] { return rule_of(*each.as_table()); });
    }
  }
  return CallTable(std::move(rules));
}

CallTable CallTable::parse_words(std::string_view words, std::string_view origin) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    const std::string_view item = words.substr(begin, end - begin);
    if (items.empty() || begins_a_rule(item)) {
      items.emplace_back(item);
    } else {
      items.back().append(",").append(item);  // part of a codec's name
    }
    begin = end + 1;
  }
  std::vector<TableRule> rules;
  for (const std::string& item : items) {
    add(rules, fmt::format("{}, {}", origin, quote(item)), [&] { return rule_of(item); });
  }
  return CallTable(std::move(rules));
}

CallTable CallTable::read(const std::string& path) {
  if (std::error_code error; std::filesystem::file_size(path, error) > kMostFileBytes && !error) {
    fail("{}: allowed is a table of up to 1 MiB", quote(path));
  }
  return parse(read_text_file(path, "the table"), path);
}

CallTable CallTable::from_environment() {
  const auto from_environment = [](const char* variable) -> std::string {
    const char* const value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
    return value == nullptr ? "" : value;
  };
  std::vector<TableRule> rules;
  const auto take = [&](const CallTable& table) {
    rules.insert(rules.end(), table.rules_.begin(), table.rules_.end());
  };
  if (const std::string path = from_environment("ARLAB_TABLE"); !path.empty()) {
    try {
      take(read(path));
    } catch (const InvalidInput& wrong) {
      fail("ARLAB_TABLE: {}", wrong.what());
    }
  }
  const std::string words = from_environment("ARLAB_ALL_REDUCE");
  if (!words.empty()) take(parse_words(words, "ARLAB_ALL_REDUCE"));
  return CallTable(std::move(rules));
}

const TableRule* CallTable::find(Collective collective, DType dtype, std::uint64_t bytes) const {
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const TableRule& rule = rules_[i];
    if (rule.collective == collective && rule.from_bytes <= bytes && bytes < rule.to_bytes &&
        takes_[i][static_cast<std::size_t>(dtype)]) {
      return &rule;
    }
  }
  return nullptr;
}

std::string CallTable::explain(Collective collective, DType dtype, std::uint64_t bytes) const {
  const std::string call =
      fmt::format("{} of {}, {} bytes", name_of(collective), name_of(dtype), bytes);
  const TableRule* const rule = find(collective, dtype, bytes);
  if (rule == nullptr) {
    return fmt::format("{}: {}, so values travel as they are, by {}", call,
                       rules_.empty() ? "there is no table" : "no rule of the table takes it",
                       usual_algorithm(collective));
  }
  std::string options;
  for (const auto& [name, value] : rule->options) {
    options += fmt::format(", {} {}", name, words_of(value));
  }
  return fmt::format("{}: {} ({}, {}): {}, {}{}{}", call, rule->origin, subject(*rule),
                     range_words(*rule), rule->algorithm,
                     rule->codec.empty() ? "values as they are" : "codec " + rule->codec, options,
                     rule->note.empty() ? "" : "; " + rule->note);
}

std::string_view usual_algorithm(Collective collective) {
  return collective == Collective::all_reduce ? "two_shot" : name_of(collective);
}

std::string to_toml(const CallTable& table) {
  const auto quoted = [](const std::string& text) {
    std::string escaped;
    for (const char c : text) {
      const auto code = static_cast<unsigned char>(c);
      if (code < 0x20 || code == 0x7F) {
        escaped += fmt::format("\\u{:04X}", code);
        continue;
      }
      if (c == '"' || c == '\\') escaped += '\\';
      escaped += c;
    }
    return '"' + escaped + '"';
  };
  std::string text;
  for (const TableRule& rule : table.rules()) {
    text += fmt::format("[[rule]]\ncollective = \"{}\"\n", name_of(rule.collective));
    if (rule.dtype) text += fmt::format("dtype = \"{}\"\n", name_of(*rule.dtype));
    text += fmt::format("from_bytes = {}\n", rule.from_bytes);
    if (rule.to_bytes != kNoEnd) text += fmt::format("to_bytes = {}\n", rule.to_bytes);
    text += fmt::format("algorithm = {}\n", quoted(rule.algorithm));
    if (!rule.codec.empty()) text += fmt::format("codec = {}\n", quoted(rule.codec));
    for (const auto& [name, value] : rule.options) {
      const bool is_text = std::holds_alternative<std::string>(value);
      text += fmt::format("{} = {}\n", name, is_text ? quoted(words_of(value)) : words_of(value));
    }
    if (!rule.note.empty()) text += fmt::format("note = {}\n", quoted(rule.note));
    text += '\n';
  }
  return text;
}

}  // namespace arlab::kernels

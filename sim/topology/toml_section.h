// Reading TOML with messages that name the file, the key and what is allowed.
#pragma once

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "reference/field.h"
#include "reference/tensors/file.h"
#include "reference/toml.h"
#include "reference/words.h"
#include "sim/topology/topology.h"

namespace arlab {

inline constexpr const char* kQuantityForm =
    "a table { value = NUMBER, source = \"...\", note = \"...\" }";

std::string_view type_name(const toml::node& node);

/// a, b, c
std::string join(const std::vector<std::string>& names);

/// One table of the file. It remembers what was asked for; reject_other_keys() refuses the rest.
class Section {
 public:
  Section(const toml::table& table, std::string_view origin, std::string path)
      : table_(table), origin_(origin), path_(std::move(path)) {}

  std::string text(const std::string& key) {
    const toml::node& node = required(key);
    const auto value = node.value_exact<std::string>();
    if (!value) must_be(key, node, "a string");
    if (value->empty()) refuse(key, "it must not be empty");
    const bool is_line = printable(*value) == *value;
    if (!is_line) refuse(key, "it must be one line without control characters");
    return *value;
  }

  /// `form` says what the table should look like.
  Section section(const std::string& key, const char* form) {
    const toml::node& node = required(key);
    if (!node.is_table()) must_be(key, node, form);
    const toml::table& table = *node.as_table();
    if (form != kQuantityForm && table["value"].is_number() && table.contains("source")) {
      std::vector<std::string> others = asked_;
      std::erase(others, key);
      refuse(key, fmt::format("it is a value with its source, but must be {}; {}", form,
                              did_you_mean(key, others)));
    }
    return {table, origin_, at(key)};
  }

  /// The value of a text key in a list of allowed values.
  template <class Enum, std::size_t N>
  Enum choice(const std::string& key, const Enum (&allowed)[N]) {
    const std::string called = fmt::format("{}: key '{}'", origin_, at(key));
    return member_named(text(key), called, std::span<const Enum>(allowed));
  }

  Quantity quantity(const std::string& key) {
    return sourced<double>(key, [](Section& section) { return section.number("value"); });
  }

  double number(const std::string& key) {
    const toml::node& node = required(key);
    if (const auto integer = node.value_exact<std::int64_t>()) {
      return static_cast<double>(*integer);
    }
    if (const auto number = node.value_exact<double>()) return *number;
    must_be(key, node, "a number");
  }

  Count count(const std::string& key) {
    return sourced<Rank>(
        key, [](Section& section) { return section.integer("value", 1, kMaxTopologyRanks); });
  }

  std::uint32_t integer(const std::string& key, std::uint32_t least, std::uint32_t most) {
    return checked_integer(required(key), at(key), least, most);
  }
  std::optional<std::uint32_t> optional_integer(const std::string& key, std::uint32_t least,
                                                std::uint32_t most) {
    if (!has(key)) return std::nullopt;
    return integer(key, least, most);
  }
  /// Returns the value of the key with the field's name; not set where there is no such key. A text with a unit may be a
  /// number, and lists with a unit are lists of numbers.
  FieldValue value(const Field& field, bool is_required = false) {
    if (!has(field.name) && !is_required) return {};
    FieldValue value;
    if (const auto* kind = std::get_if<Integer>(&field.kind)) {
      value = std::uint64_t{integer(field.name, static_cast<std::uint32_t>(kind->low),
                                    static_cast<std::uint32_t>(kind->high))};
    } else if (std::holds_alternative<Texts>(field.kind)) {
      value = list_of(field);
    } else {
      const auto number = required(field.name).value_exact<std::int64_t>();
      value = number && !field.unit.empty() ? std::to_string(*number) : text(field.name);
    }
    require_allowed(field, value, fmt::format("{}: key '{}'", origin_, at(field.name)));
    return value;
  }
  std::optional<bool> optional_flag(const std::string& key) {
    if (!has(key)) return std::nullopt;
    const auto value = required(key).value_exact<bool>();
    if (!value) refuse(key, "it must be true or false");
    return value;
  }

  /// An array of integers.
  std::vector<Rank> extents(const std::string& key) {
    constexpr std::size_t kMost = 6;
    const toml::node& node = required(key);
    const toml::array* array = node.as_array();
    const bool is_right = array != nullptr && !array->empty() && array->size() <= kMost;
    if (!is_right) refuse(key, fmt::format("it must be an array of 1 to {} integers", kMost));
    std::vector<Rank> extents;
    for (const toml::node& extent : *array) {
      extents.push_back(checked_integer(extent, at(key), 1, kMaxTopologyRanks));
    }
    return extents;
  }

  /// An array of numbers.
  std::vector<double> numbers(const std::string& key) { return numbers_of(required(key), at(key)); }
  /// An array of arrays of numbers.
  std::vector<std::vector<double>> rows(const std::string& key) {
    const toml::array* array = required(key).as_array();
    if (array == nullptr || array->empty()) refuse(key, "it must be an array of arrays of numbers");
    std::vector<std::vector<double>> rows;
    for (const toml::node& row : *array) rows.push_back(numbers_of(row, at(key)));
    return rows;
  }
  /// An array of ranks.
  std::vector<Rank> ranks(const std::string& key) {
    const toml::array* array = required(key).as_array();
    if (array == nullptr) refuse(key, "it must be an array of ranks");
    std::vector<Rank> ranks;
    for (const toml::node& rank : *array) {
      ranks.push_back(checked_integer(rank, at(key), 0, kMaxTopologyRanks - 1));
    }
    return ranks;
  }

  /// Bytes: a number, or a text as "64M" (2^20 bytes each).
  std::uint64_t size(const std::string& key) {
    const toml::node& node = required(key);
    std::uint64_t bytes = 0;
    if (const auto integer = node.value_exact<std::int64_t>(); integer && *integer > 0) {
      bytes = static_cast<std::uint64_t>(*integer);
    } else if (const auto text = node.value_exact<std::string>()) {
      bytes = parse_size(*text).value_or(0);
    }
    if (bytes == 0) refuse(key, "it must be a number of bytes: 67108864, or \"64M\" (K, M, G)");
    return bytes;
  }

  /// An array of strings, which may be empty.
  std::vector<std::string> texts(const std::string& key) {
    const toml::array* array = required(key).as_array();
    std::vector<std::string> texts;
    const auto is_text = [](const toml::node& node) { return node.is_string(); };
    const bool is_right = array != nullptr && std::all_of(array->begin(), array->end(), is_text);
    if (!is_right) refuse(key, "it must be an array of strings");
    for (const toml::node& text : *array) texts.push_back(*text.value<std::string>());
    return texts;
  }

  /// rank3 or switch0.
  NodeName node(const std::string& key) {
    const std::string name = text(key);
    for (const bool is_switch : {false, true}) {
      const std::string_view prefix = is_switch ? "switch" : "rank";
      if (!name.starts_with(prefix)) continue;
      std::uint32_t number = 0;
      const char* end = name.data() + name.size();
      const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, number);
      if (error == std::errc() && stop == end) return {is_switch, number};
    }
    fail("{}: key '{}': '{}' is no node; allowed are rank0, rank1, ... and switch0, switch1, ...",
         origin_, at(key), name);
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    fail("{}: key '{}': {}", origin_, at(key), why);
  }
  [[noreturn]] void must_be(const std::string& key, const toml::node& node,
                            const char* what) const {
    refuse(key, fmt::format("it is {}, but must be {}", type_name(node), what));
  }

  bool has(const std::string& key) {
    ask(key);
    return table_.contains(key);
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    for (const auto& [key, node] : table_) names.emplace_back(key.str());
    return names;
  }

  /// Calls visit(section) for every table of an array; none when there is no such key. `visit` need
  /// not look for keys that it does not know.
  template <class Visit>
  void for_each(const std::string& key, Visit visit) {
    if (!has(key)) return;
    const toml::array* array = required(key).as_array();
    if (array == nullptr)
      refuse(key, fmt::format("it must be an array of tables: [[{}]]", at(key)));
    for (std::size_t i = 0; i < array->size(); ++i) {
      const std::string path = fmt::format("{}[{}]", at(key), i);
      const toml::table* table = array->get(i)->as_table();
      if (table == nullptr) fail("{}: key '{}': it must be a table", origin_, path);
      Section section(*table, origin_, path);
      visit(section);
      section.reject_other_keys();
    }
  }

  void reject_other_keys() const {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
      const std::string are =
          path_.empty() ? "allowed are" : fmt::format("allowed in '{}' are", path_);
      fail("{}: unknown key '{}': {}", origin_, at(name), instead_of(name, {asked_, are}));
    }
  }

 private:
  void ask(const std::string& key) {
    if (std::ranges::find(asked_, key) == asked_.end()) asked_.push_back(key);
  }

  template <class T, class ReadValue>
  Sourced<T> sourced(const std::string& key, ReadValue read_value) {
    Section table = section(key, kQuantityForm);
    Sourced<T> result;
    result.value = read_value(table);
    result.source = table.choice("source", kSources);
    result.note = table.text("note");
    if (table.has("interval")) {
      const std::vector<double> ends = table.numbers("interval");
      const auto value = static_cast<double>(result.value);
      if (ends.size() != 2 || !(ends[0] > 0 && ends[0] <= value && value <= ends[1])) {
        table.refuse("interval", "it must be two numbers above 0, with the value between them");
      }
      result.low = ends[0];
      result.high = ends[1];
    }
    table.reject_other_keys();
    return result;
  }

  /// One or more, all different; or "all".
  std::vector<std::string> list_of(const Field& field) {
    const toml::node& node = required(field.name);
    if (node.is_string()) {
      if (text(field.name) == "all") return {"all"};
      refuse(field.name,
             fmt::format("it is {}; it must be {}", quote(text(field.name)), field.help));
    }
    const toml::array* array = node.as_array();
    std::vector<std::string> list;
    for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
      const toml::node& each = *array->get(i);
      if (field.unit.empty() ? !each.is_string() : !each.is_integer()) break;
      list.push_back(field.unit.empty() ? *each.value<std::string>()
                                        : std::to_string(*each.value<std::int64_t>()));
    }
    std::vector<std::string> sorted = list;
    std::ranges::sort(sorted);
    const bool differ = std::ranges::adjacent_find(sorted) == sorted.end();
    if (array == nullptr || list.empty() || list.size() != array->size() || !differ) {
      refuse(field.name, fmt::format("it must be {}, one or more, all different", field.help));
    }
    return list;
  }

  std::vector<double> numbers_of(const toml::node& node, const std::string& where) const {
    const toml::array* array = node.as_array();
    if (array == nullptr) fail("{}: key '{}': it must be an array of numbers", origin_, where);
    std::vector<double> numbers;
    for (const toml::node& each : *array) {
      if (!each.is_number()) fail("{}: key '{}': it must be an array of numbers", origin_, where);
      numbers.push_back(*each.value<double>());
    }
    return numbers;
  }

  std::uint32_t checked_integer(const toml::node& node, const std::string& where,
                                std::uint32_t least, std::uint32_t most) const {
    const auto integer = node.value_exact<std::int64_t>();
    if (!integer || *integer < least || *integer > most) {
      fail("{}: key '{}': it must be an integer from {} to {}", origin_, where, least, most);
    }
    return static_cast<std::uint32_t>(*integer);
  }

  const toml::node& required(const std::string& key) {
    ask(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) fail("{}: missing key '{}'{}", origin_, at(key), misspelt(key));
    return *node;
  }

  /// A hint, if the table has a key that looks like this one.
  std::string misspelt(const std::string& key) const {
    for (const std::string& other : keys()) {
      const bool known = std::ranges::find(asked_, other) != asked_.end();
      if (known || did_you_mean(other, {key}).empty()) continue;
      return fmt::format("; is '{}' meant to be it?", at(other));
    }
    return {};
  }

  /// The dotted key.
  std::string at(const std::string& key) const {
    return printable(path_.empty() ? key : path_ + "." + key);
  }

  const toml::table& table_;
  std::string_view origin_;
  std::string path_;
  std::vector<std::string> asked_;
};

}  // namespace arlab

#include "reference/field.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <sstream>

#include "reference/error.h"
#include "reference/words.h"

namespace arlab {
namespace {

/// Calls the function of the alternative that a variant holds.
template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

template <class NumberType>
std::optional<NumberType> number_in(const std::string& text) {
  NumberType number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

}  // namespace

std::string Field::option() const {
  std::string text = name;
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

std::string Field::default_words() const {
  return otherwise_words.empty() ? words_of(otherwise) : otherwise_words;
}

FieldValues::FieldValues(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) set(entry.name, entry.value);
}

FieldValue FieldValues::get(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? FieldValue() : found->second;
}

bool FieldValues::is(std::string_view name, std::string_view text) const {
  const FieldValue value = get(name);
  const auto* given = std::get_if<std::string>(&value);
  return given != nullptr && *given == text;
}

void FieldValues::set(std::string_view name, FieldValue value) {
  if (std::holds_alternative<std::monostate>(value)) {
    values_.erase(std::string(name));
  } else {
    values_.insert_or_assign(std::string(name), std::move(value));
  }
}

Field one_of(std::string name, std::vector<std::string> allowed, std::string help) {
  std::string otherwise = allowed.front();
  return {.name = std::move(name),
          .kind = OneOf{std::move(allowed)},
          .otherwise = std::move(otherwise),
          .help = std::move(help)};
}

FieldValue parsed(const Field& field, const std::string& text, std::string_view called) {
  const auto refuse = [&](const std::string& allowed) {
    fail("{}: {}: allowed is {}", called, quote(text), allowed);
  };
  const FieldValue value = std::visit(
      Overloaded{[&](const Flag&) -> FieldValue {
                   if (text != "true" && text != "false") refuse("true or false");
                   return text == "true";
                 },
                 [&](const Integer& kind) -> FieldValue {
                   const auto number = number_in<std::uint64_t>(text);
                   const bool plain = !text.starts_with('0') || text == "0";
                   if (!number || !plain || *number < kind.low || *number > kind.high) {
                     refuse(fmt::format("an integer from {} to {}", kind.low, kind.high));
                   }
                   return *number;
                 },
                 [&](const Number&) -> FieldValue {
                   const auto number = number_in<double>(text);
                   if (!number || !std::isfinite(*number)) refuse("a number");
                   return *number;
                 },
                 [&](const OneOf&) -> FieldValue { return text; },
                 [&](const Text&) -> FieldValue { return text; },
                 [&](const Texts&) -> FieldValue { return std::vector<std::string>{text}; }},
      field.kind);
  require_allowed(field, value, called);
  return value;
}

FieldValues parsed_entries(const std::vector<Field>& fields, std::string_view text,
                           std::string_view called, std::string_view unknown) {
  FieldValues values;
  std::string_view rest = text;
  while (true) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    const std::size_t equals = entry.find('=');
    const std::string_view key = entry.substr(0, equals);
    const auto field = std::ranges::find(fields, key, &Field::name);
    if (equals == std::string_view::npos || field == fields.end()) {
      std::vector<std::string> keys;
      for (const Field& each : fields) keys.push_back(each.name + "=");
      fail("{}: {} {} {}, with commas between", called, quote(entry), unknown,
           fmt::join(keys, ", "));
    }
    if (values.has(key)) fail("{}: {} stands twice", called, key);
    values.set(key, parsed(*field, std::string(entry.substr(equals + 1)),
                           fmt::format("{}: {}", called, key)));
    if (entry.size() == rest.size()) return values;
    rest.remove_prefix(entry.size() + 1);
  }
}

void require_allowed(const Field& field, const FieldValue& value, std::string_view called) {
  if (std::holds_alternative<std::monostate>(value)) return;
  const auto require_kind = [&](bool is, std::string_view allowed) {
    if (!is) fail("{}: allowed is {}", called, allowed);
  };
  std::visit(
      Overloaded{
          [&](const Flag&) { require_kind(std::holds_alternative<bool>(value), "true or false"); },
          [&](const Integer& kind) {
            const auto* number = std::get_if<std::uint64_t>(&value);
            if (number != nullptr && *number >= kind.low && *number <= kind.high) return;
            if (number != nullptr) {
              fail("{} {} is out of range: allowed is {} to {}", called, *number, kind.low,
                   kind.high);
            }
            fail("{}: allowed is an integer from {} to {}", called, kind.low, kind.high);
          },
          [&](const Number&) {
            const auto* number = std::get_if<double>(&value);
            require_kind(number != nullptr ? std::isfinite(*number)
                                           : std::holds_alternative<std::uint64_t>(value),
                         "a number");
          },
          [&](const OneOf& kind) {
            const auto* text = std::get_if<std::string>(&value);
            if (text == nullptr) fail("{}: allowed are {}", called, fmt::join(kind.names, ", "));
            if (std::ranges::find(kind.names, *text) != kind.names.end()) return;
            fail("{} is {}: {}", called, quote(*text),
                 instead_of(*text, {kind.names, "allowed are"}));
          },
          [&](const Text&) { require_kind(std::holds_alternative<std::string>(value), "a text"); },
          [&](const Texts&) {
            require_kind(std::holds_alternative<std::vector<std::string>>(value),
                         "a list of texts");
          }},
      field.kind);
}

namespace {

FieldValue value_or_default(const Field& field, const FieldValues& values) {
  FieldValue value = values.get(field.name);
  if (std::holds_alternative<std::monostate>(value)) return field.otherwise;
  require_allowed(field, value, field.option());
  return value;
}

}  // namespace

std::uint64_t integer_of(const Field& field, const FieldValues& values) {
  return std::get<std::uint64_t>(value_or_default(field, values));
}

std::string text_of(const Field& field, const FieldValues& values) {
  return std::get<std::string>(value_or_default(field, values));
}

std::string words_of(const FieldValue& value) {
  return std::visit(
      Overloaded{[](std::monostate) { return std::string(); },
                 [](const std::string& text) { return text; },
                 [](const std::vector<std::string>& texts) {
                   return fmt::format("{}", fmt::join(texts, ","));
                 },
                 [](auto value_of_number) { return fmt::format("{}", value_of_number); }},
      value);
}

FieldValue BoundField::get() const {
  return std::visit(
      Overloaded{[](const bool* flag) -> FieldValue { return *flag; },
                 [](const std::string* text) -> FieldValue {
                   return text->empty() ? FieldValue() : *text;
                 },
                 [](const std::optional<std::uint32_t>* number) -> FieldValue {
                   return *number ? FieldValue(std::uint64_t{**number}) : FieldValue();
                 },
                 [](const std::optional<double>* number) -> FieldValue {
                   return *number ? FieldValue(**number) : FieldValue();
                 },
                 [](const std::vector<std::string>* texts) -> FieldValue {
                   return texts->empty() ? FieldValue() : *texts;
                 },
                 [this](const FieldValues* values) { return values->get(field.name); }},
      member);
}

void BoundField::set(const FieldValue& value, std::string_view called) const {
  require_allowed(field, value, called);
  if (std::holds_alternative<std::monostate>(value)) return;
  std::visit(Overloaded{[&](bool* flag) { *flag = std::get<bool>(value); },
                        [&](std::string* text) { *text = std::get<std::string>(value); },
                        [&](std::optional<std::uint32_t>* number) {
                          *number = static_cast<std::uint32_t>(std::get<std::uint64_t>(value));
                        },
                        [&](std::optional<double>* number) {
                          const auto* whole = std::get_if<std::uint64_t>(&value);
                          *number = whole != nullptr ? static_cast<double>(*whole)
                                                     : std::get<double>(value);
                        },
                        [&](std::vector<std::string>* texts) {
                          *texts = std::get<std::vector<std::string>>(value);
                        },
                        [&](FieldValues* values) { values->set(field.name, value); }},
             member);
}

BoundField field(std::string name, BoundField::Member member, std::string help,
                 std::string otherwise) {
  const FieldKind kind = std::visit(
      Overloaded{[](const bool*) -> FieldKind { return Flag{}; },
                 [](const std::optional<std::uint32_t>*) -> FieldKind { return Integer{}; },
                 [](const std::optional<double>*) -> FieldKind { return Number{}; },
                 [](const std::vector<std::string>*) -> FieldKind { return Texts{}; },
                 [](const void*) -> FieldKind { return Text{}; }},
      member);
  return {{.name = std::move(name),
           .kind = kind,
           .otherwise_words = std::move(otherwise),
           .help = std::move(help)},
          member};
}

BoundField BoundField::from(std::uint64_t low, std::uint64_t high) && {
  field.kind = Integer{low, high};
  return std::move(*this);
}
BoundField BoundField::among(std::vector<std::string> names) && {
  field.kind = OneOf{std::move(names)};
  field.otherwise = get();
  return std::move(*this);
}
BoundField BoundField::one_by_one() && {
  relations.is_one_by_one = true;
  return std::move(*this);
}
BoundField BoundField::changes_no_result() && {
  relations.changes_no_result = true;
  return std::move(*this);
}
BoundField BoundField::required() && {
  relations.required = true;
  return std::move(*this);
}
BoundField BoundField::needs(std::string name) && {
  relations.needs = std::move(name);
  return std::move(*this);
}
BoundField BoundField::excludes(std::string names) && {
  relations.excludes = std::move(names);
  return std::move(*this);
}
BoundField BoundField::by_place(std::string called) && {
  relations.place = std::move(called);
  return std::move(*this).required();
}

std::vector<BoundField> together(std::vector<BoundField> first, std::vector<BoundField> second,
                                 std::vector<BoundField> third, std::vector<BoundField> fourth,
                                 std::vector<BoundField> fifth) {
  first.reserve(first.size() + second.size() + third.size() + fourth.size() + fifth.size());
  for (std::vector<BoundField>* list : {&second, &third, &fourth, &fifth}) {
    std::ranges::move(*list, std::back_inserter(first));
  }
  return first;
}

const BoundField* find(const std::vector<BoundField>& fields, std::string_view name) {
  const auto found = std::ranges::find_if(
      fields, [name](const BoundField& bound) { return bound.field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

std::vector<std::string> words_in(const std::string& text) {
  if (text.empty()) return {};  // a stream costs more than all else that is done with most fields
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

void require_relations(const std::vector<BoundField>& fields) {
  const auto is_set = [&](std::string_view name) {
    const FieldValue value = find(fields, name)->get();
    const auto* flag = std::get_if<bool>(&value);
    return flag != nullptr ? *flag : !std::holds_alternative<std::monostate>(value);
  };
  for (const auto& [field, member, relations] : fields) {
    const bool set = is_set(field.name);
    if (relations.required && !set) fail("{} is required", field.name);
    if (!set) continue;
    if (!relations.needs.empty() && !is_set(relations.needs)) {
      fail("{} requires {}", field.name, relations.needs);
    }
    for (const std::string& other : words_in(relations.excludes)) {
      if (is_set(other)) fail("{} excludes {}", other, field.name);
    }
  }
}

}  // namespace arlab

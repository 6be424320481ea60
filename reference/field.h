// Descriptions of values that a user gives by name: an option of an algorithm, an argument of a question. From it, and from
// nowhere else, come the options of the command line and their help, keys of TOML and of JSON, arguments of Python,
// documentation, and keys of caches. Nothing here reads or prints.
//
// A request is a struct. Its function `fields(Request&)` lists what it is made of, once, each beside the member that holds it:
//
//     std::vector<BoundField> fields(SimulateRequest& r) {
//       return {field("ranks", &r.ranks, "World size", "all").from(1, 1024),
//               field("dtype", &r.dtype, "Of the payload").among({"fp16", "bf16"}), ...};
//     }
//
// What the members of a new request hold are the defaults.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace arlab {

// Kinds of fields: what is allowed.
struct Flag {};
struct Integer {
  std::uint64_t low = 0;
  std::uint64_t high = UINT64_MAX;
};
struct Number {};
struct OneOf {
  std::vector<std::string> names;
};
/// Its user says what is allowed: the name of a codec, a path.
struct Text {};
struct Texts {};
using FieldKind = std::variant<Flag, Integer, Number, OneOf, Text, Texts>;

/// monostate: it is not set.
using FieldValue = std::variant<std::monostate, bool, std::uint64_t, double, std::string,
                                std::vector<std::string>>;

struct Field {
  std::string name;         ///< micro_chunks; on the command line it is --micro-chunks
  std::string letter = {};  ///< b: -b there, too
  FieldKind kind = Text{};
  FieldValue otherwise = {};         ///< the default of an option; monostate where it is calculated
  std::string otherwise_words = {};  ///< the default in words, where its value does not say it
  std::string unit = {};
  std::string help = {};
  std::vector<std::uint64_t> trials = {};  ///< integers that a search for the best option tries

  /// The name as the command line writes it: --micro-chunks.
  std::string option() const;
  /// The default for people; empty where there is none.
  std::string default_words() const;
};

/// A choice, whose default is the first.
Field one_of(std::string name, std::vector<std::string> allowed, std::string help);

/// Values by the names of their fields.
class FieldValues {
 public:
  struct Entry {
    Entry(std::string called, std::integral auto number)
        : name(std::move(called)), value(static_cast<std::uint64_t>(number)) {}
    Entry(std::string called, std::string text) : name(std::move(called)), value(std::move(text)) {}
    std::string name;
    FieldValue value;
  };

  FieldValues() = default;
  FieldValues(std::initializer_list<Entry> entries);

  bool has(std::string_view name) const { return values_.contains(name); }
  bool is(std::string_view name, std::string_view text) const;
  /// monostate where it is not set.
  FieldValue get(std::string_view name) const;
  /// Replaces what was there; monostate takes it away.
  void set(std::string_view name, FieldValue value);
  void set(std::string_view name, std::uint64_t number) { set(name, FieldValue(number)); }
  void set(std::string_view name, std::string text) { set(name, FieldValue(std::move(text))); }
  void set(std::string_view name, const char* text) { set(name, std::string(text)); }
  bool empty() const { return values_.empty(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  bool operator==(const FieldValues&) const = default;

 private:
  std::map<std::string, FieldValue, std::less<>> values_;
};

// Both throw InvalidInput for a value that the field does not allow; the message calls the field `called`.

/// The value that a text stands for.
FieldValue parsed(const Field& field, const std::string& text, std::string_view called);
void require_allowed(const Field& field, const FieldValue& value, std::string_view called);

/// The values of a text like "add=fma,order=own". Messages call the text `called`, and an unknown entry `unknown` before they
/// name the fields. Throws InvalidInput for what is no field, for one that stands twice, and as parsed().
FieldValues parsed_entries(const std::vector<Field>& fields, std::string_view text,
                           std::string_view called, std::string_view unknown);

// The value that is set, or the field's default. They throw as require_allowed() does, and call the field by its name.
std::uint64_t integer_of(const Field& field, const FieldValues& values);
std::string text_of(const Field& field, const FieldValues& values);

/// A value as a person writes it: texts are separated by commas; empty where it is not set.
std::string words_of(const FieldValue& value);

/// A field of a request, and the member that holds it. Of FieldValues, it is the entry of the field's name.
struct BoundField {
  using Member = std::variant<bool*, std::string*, std::optional<std::uint32_t>*,
                              std::optional<double>*, std::vector<std::string>*, FieldValues*>;
  Field field;
  Member member;
  /// Other values that must, or must not, be set.
  struct Relations {
    bool required = false;
    std::string needs = {};
    std::string excludes = {};  ///< one or several, with spaces between them
    std::string place = {};     ///< the command line's word for it: taken without a name
    bool is_one_by_one =
        false;  ///< its texts may have commas: the command line takes it several times
    bool changes_no_result = false;  ///< a flag that commands recorded with a result leave out
  } relations = {};

  // Each says more of a field.
  BoundField from(std::uint64_t low, std::uint64_t high) &&;
  BoundField among(std::vector<std::string> names) &&;  ///< the default is the member's value
  BoundField one_by_one() &&;
  BoundField changes_no_result() &&;
  BoundField required() &&;
  BoundField needs(std::string name) &&;
  BoundField excludes(std::string names) &&;
  BoundField by_place(std::string called) &&;  ///< and is required

  FieldValue get() const;
  /// Throws as require_allowed() does.
  void set(const FieldValue& value, std::string_view called) const;
};

/// A field of its member's kind: a flag, a text, an integer, a number, or texts separated by commas. `otherwise`: the default
/// in words.
BoundField field(std::string name, BoundField::Member member, std::string help,
                 std::string otherwise = {});

/// Several lists of fields as one.
std::vector<BoundField> together(std::vector<BoundField> first, std::vector<BoundField> second,
                                 std::vector<BoundField> third = {},
                                 std::vector<BoundField> fourth = {},
                                 std::vector<BoundField> fifth = {});

/// A field by its name; nullptr: there is none.
const BoundField* find(const std::vector<BoundField>& fields, std::string_view name);
/// The words of a text that spaces separate.
std::vector<std::string> words_in(const std::string& text);

/// Throws InvalidInput for a field that is missing, and for two that do not go together.
void require_relations(const std::vector<BoundField>& fields);

}  // namespace arlab

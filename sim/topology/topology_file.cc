// Reads a topology from TOML. The schema is in sim/topology/machines/README.md.

#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "sim/topology/quantities.h"
#include "sim/topology/topology.h"

namespace arlab {
namespace {

constexpr const char* kQuantityForm =
    "a table { value = NUMBER, source = \"...\", note = \"...\" }";

std::string_view type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a floating-point number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

/// Text of the file as it may stand in a one-line message.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}

/// One table of the file. It remembers what was asked for; reject_other_keys() refuses the rest.
class Section {
 public:
  Section(const toml::table& table, std::string_view origin, std::string path)
      : table_(table), origin_(origin), path_(std::move(path)) {}

  std::string text(const std::string& key) {
    const toml::node& node = required(key);
    const auto value = node.value_exact<std::string>();
    if (!value) {
      fail("{}: key '{}': it is {}, but must be a string", origin_, at(key), type_name(node));
    }
    if (value->empty()) fail("{}: key '{}': it must not be empty", origin_, at(key));
    if (printable(*value) != *value) {
      fail("{}: key '{}': it must be one line without control characters", origin_, at(key));
    }
    return *value;
  }

  /// `form` says what the table should look like.
  Section section(const std::string& key, const char* form) {
    const toml::node& node = required(key);
    if (!node.is_table()) {
      fail("{}: key '{}': it is {}, but must be {}", origin_, at(key), type_name(node), form);
    }
    return {*node.as_table(), origin_, at(key)};
  }

  /// The value of a text key in a list of allowed values.
  template <class Enum, std::size_t N>
  Enum choice(const std::string& key, const Enum (&allowed)[N]) {
    const std::string value = text(key);
    std::vector<std::string> names;
    for (const Enum candidate : allowed) {
      if (name_of(candidate) == value) return candidate;
      names.emplace_back(name_of(candidate));
    }
    fail("{}: key '{}': unknown {} '{}'; allowed are {}", origin_, at(key), key, value,
         join(names));
  }

  Quantity quantity(const std::string& key) {
    return sourced<double>(key, [](Section& section) {
      const toml::node& node = section.required("value");
      if (const auto integer = node.value_exact<std::int64_t>()) {
        return static_cast<double>(*integer);
      }
      if (const auto number = node.value_exact<double>()) return *number;
      fail("{}: key '{}': it is {}, but must be a number", section.origin_, section.at("value"),
           type_name(node));
    });
  }

  Count count(const std::string& key) {
    return sourced<Rank>(key, [](Section& section) {
      const toml::node& node = section.required("value");
      const auto integer = node.value_exact<std::int64_t>();
      if (!integer || *integer < 1 || *integer > kMaxTopologyRanks) {
        fail("{}: key '{}': it must be an integer from 1 to {}", section.origin_,
             section.at("value"), kMaxTopologyRanks);
      }
      return static_cast<Rank>(*integer);
    });
  }

  void reject_other_keys() const {
    for (const auto& [key, node] : table_) {
      const std::string name(key.str());
      if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
      fail("{}: unknown key '{}'; allowed {}are {}", origin_, at(name),
           path_.empty() ? "" : fmt::format("in '{}' ", path_), join(asked_));
    }
  }

 private:
  template <class T, class ReadValue>
  Sourced<T> sourced(const std::string& key, ReadValue read_value) {
    Section table = section(key, kQuantityForm);
    Sourced<T> result;
    result.value = read_value(table);
    result.source = table.choice("source", {Source::datasheet, Source::measured, Source::fitted,
                                            Source::published, Source::assumed});
    result.note = table.text("note");
    table.reject_other_keys();
    return result;
  }

  const toml::node& required(const std::string& key) {
    asked_.push_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) fail("{}: missing key '{}'", origin_, at(key));
    return *node;
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

toml::table parse(std::string_view text, std::string_view origin) {
  try {
    return toml::parse(text, origin);
  } catch (const toml::parse_error& error) {
    fail("{}: line {}, column {}: {}", origin, error.source().begin.line,
         error.source().begin.column, printable(std::string(error.description())));
  }
}

}  // namespace

Topology parse_topology(std::string_view text, std::string_view origin) {
  const toml::table table = parse(text, origin);
  Section file(table, origin, "");
  Topology topology;
  topology.name = file.text("name");
  topology.summary = file.text("summary");
  topology.kind = file.choice("kind", {TopologyKind::full_mesh, TopologyKind::ring,
                                       TopologyKind::switched, TopologyKind::numa});
  topology.ranks = file.count("ranks");
  if (topology.kind == TopologyKind::numa) topology.group_size = file.count("group_size");

  // Sections are opened at their first quantity and closed when the next one begins.
  std::optional<Section> section;
  std::string section_name;
  for_each_quantity(topology, [&](const std::string& name, const char* key, Quantity& quantity) {
    if (name != section_name) {
      if (section) section->reject_other_keys();
      section.emplace(file.section(name, "a table of quantities"));
      section_name = name;
      if (name == "device") topology.device = section->text("name");
    }
    quantity = section->quantity(key);
  });
  section->reject_other_keys();
  file.reject_other_keys();

  require_valid(topology, origin);
  return topology;
}

Topology read_topology(const std::filesystem::path& path) {
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  if (!std::filesystem::is_regular_file(path, ignored) || !file) {
    fail("topology file '{}' cannot be read", path.string());
  }
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return parse_topology(text, path.string());
}

}  // namespace arlab

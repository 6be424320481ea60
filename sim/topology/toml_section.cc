#include "sim/topology/toml_section.h"

#include <algorithm>

#include "reference/tensors/file.h"

namespace arlab {

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

std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return text;
}

toml::table parse_toml(std::string_view text, std::string_view origin) {
  try {
    return toml::parse(text, origin);
  } catch (const toml::parse_error& error) {
    fail("{}: line {}, column {}: {}", origin, error.source().begin.line,
         error.source().begin.column, printable(std::string(error.description())));
  }
}

std::string read_text_file(const std::filesystem::path& path, const char* what) {
  try {
    return InputFile(path).read_rest();
  } catch (const InvalidInput& error) {
    std::string_view why = error.what();
    const std::string first_words = "cannot read " + path.string() + ": ";
    if (why.starts_with(first_words)) why.remove_prefix(first_words.size());
    fail("{} '{}' cannot be read: {}", what, printable(path.string()), why);
  }
}

}  // namespace arlab

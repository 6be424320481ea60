#include "sim/calibration/machine_text.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>
#include <utility>

#include "reference/error.h"
#include "sim/topology/machine_files.h"
#include "sim/topology/toml_section.h"

namespace arlab {

std::string machine_text(const std::string& name_or_path) {
  if (name_or_path.ends_with(".toml")) return read_text_file(name_or_path, "topology file");
  for (const MachineFile& machine : machine_files()) {
    if (machine.name == name_or_path) return std::string(machine.toml);
  }
  fail("'{}' is no machine with a file of its own", name_or_path);
}

std::vector<std::string> with_bases(std::string name) {
  std::vector<std::string> names;
  static const std::regex base("\\nbase = \"([^\"]+)\"");
  for (std::smatch found;;) {
    names.push_back(name);
    const std::string text = machine_text(name);
    if (!std::regex_search(text, found, base)) return names;
    name = found[1];
  }
}

namespace {

/// The text with the line of one quantity replaced by what edit(line) makes of it; nothing where
/// there is none.
template <class Edit>
std::optional<std::string> with_line_if_any(std::string_view text, std::string_view key,
                                            Edit edit) {
  const std::size_t dot = key.rfind('.');
  const std::string section(key.substr(0, dot));
  const std::string name(key.substr(dot + 1));
  std::string result;
  std::string current;
  bool replaced = false;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find('\n', begin);
    end = end == std::string_view::npos ? text.size() : end + 1;
    std::string line(text.substr(begin, end - begin));
    begin = end;
    if (line.starts_with('[')) current = line.substr(1, line.find(']') - 1);
    const std::size_t quote = line.starts_with('"') ? 1 : 0;
    const bool is_it =
        current == section && line.compare(quote, name.size(), name) == 0 &&
        line.find_first_not_of(quote == 0 ? " =" : "\" =", quote + name.size()) == line.find('{');
    if (is_it && !replaced) {
      line = edit(std::move(line));
      replaced = true;
    }
    result += line;
  }
  return replaced ? std::optional(result) : std::nullopt;
}

template <class Edit>
std::string with_line(std::string_view text, std::string_view origin, std::string_view key,
                      Edit edit) {
  std::optional<std::string> result = with_line_if_any(text, key, edit);
  if (!result) fail("{}: there is no line for '{}'", origin, key);
  return std::move(*result);
}

/// Five digits; whole numbers in full, as some are limits of sizes.
std::string written(double value) {
  constexpr double kMostWhole = 1e12;
  const bool is_whole = value == std::floor(value) && std::abs(value) < kMostWhole;
  return is_whole ? fmt::format("{:.0f}", value) : fmt::format("{:.5g}", value);
}

/// codecs.qr-q4.slots: of a row, no quantity.
constexpr std::string_view kCodecs = "codecs.";

std::string with_codec(std::string_view text, std::string_view origin, std::string_view key,
                       double value) {
  const std::size_t dot = key.rfind('.');
  const std::string row(key.substr(0, dot));
  const std::regex number(std::string(key.substr(dot + 1)) + R"( = [-+0-9.eE_]+)");
  return with_line(text, origin, row, [&](const std::string& line) {
    return std::regex_replace(line, number, fmt::format("{} = {:.3g}", key.substr(dot + 1), value));
  });
}

}  // namespace

std::string with_quantity(std::string_view text, std::string_view origin, std::string_view key,
                          double value) {
  if (key.starts_with(kCodecs)) return with_codec(text, origin, key, value);
  static const std::regex number(R"(value\s*=\s*[-+0-9.eE_]+)");
  return with_line(text, origin, key, [value](const std::string& line) {
    return std::regex_replace(line, number, "value = " + written(value),
                              std::regex_constants::format_first_only);
  });
}

std::string with_quantity(std::string_view text, std::string_view origin, std::string_view key,
                          const Quantity& quantity) {
  if (key.starts_with(kCodecs)) return with_codec(text, origin, key, quantity.value);
  std::string note = printable(quantity.note);
  std::replace_if(note.begin(), note.end(), [](char c) { return c == '"' || c == '\\'; }, '\'');
  return with_line(text, origin, key, [&](const std::string& line) {
    return fmt::format("{}{{ value = {}, source = \"{}\", note = \"{}\" }}\n",
                       line.substr(0, line.find('{')), written(quantity.value),
                       name_of(quantity.source), note);
  });
}

bool has_quantity(std::string_view text, std::string_view key) {
  if (key.starts_with(kCodecs)) key = key.substr(0, key.rfind('.'));
  return with_line_if_any(text, key, [](std::string line) { return line; }).has_value();
}

std::string with_uncertainty(std::string_view text, Uncertainty uncertainty) {
  const auto rounded = [](double value) { return std::stod(fmt::format("{:.4g}", value)); };
  uncertainty.scatter_percent = rounded(uncertainty.scatter_percent);
  for (double& sigma : uncertainty.sigma_percent) sigma = rounded(sigma);
  for (std::vector<double>& row : uncertainty.correlation) {
    for (double& value : row) value = std::round(value * 1e4) / 1e4 + 0.0;  // and no -0
  }
  std::string result(text);
  // And its subsections.
  for (std::size_t begin; (begin = result.find("[uncertainty")) != std::string::npos;) {
    const std::size_t end = result.find("\n[", begin);
    result.erase(begin, end == std::string::npos ? end : end + 1 - begin);
  }
  while (result.ends_with("\n\n")) result.pop_back();
  return result + to_toml(uncertainty);
}

}  // namespace arlab

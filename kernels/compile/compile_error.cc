#include "kernels/compile/compile_error.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/compile/compiler.h"

namespace arlab::kernels {
namespace {

/// Takes ":25" off the end, or "(25)", if it is there.
std::string take_number(std::string_view& from) {
  const bool in_parentheses = from.ends_with(')');
  const std::string_view rest = from.substr(0, from.size() - (in_parentheses ? 1 : 0));
  const std::size_t before = rest.rfind(in_parentheses ? '(' : ':');
  if (before == rest.npos || before + 1 == rest.size()) return {};
  const std::string_view digits = rest.substr(before + 1);
  if (digits.find_first_not_of("0123456789") != digits.npos) return {};
  from = rest.substr(0, before);
  return std::string(digits);
}

/// Device code has its own standard library, which is called so (device_std.h).
std::string with_standard_names(std::string text) {
  constexpr std::string_view kOurs = "arlab_std";
  for (std::size_t at = text.find(kOurs); at != text.npos; at = text.find(kOurs, at)) {
    text.replace(at, kOurs.size(), "std");
  }
  return text;
}

}  // namespace

CompileError compile_error_in(std::string_view log) {
  const std::string line = first_error(log);
  for (const std::string_view mark : {": error: ", ": fatal error: ", ": catastrophic error: "}) {
    const std::size_t at = line.find(mark);
    if (at == line.npos) continue;
    std::string_view file = std::string_view(line).substr(0, at);
    const std::string last = take_number(file);
    const std::string number = take_number(file);
    std::string text = with_standard_names(line.substr(at + mark.size()));
    if (last.empty()) return {"", "", std::move(text)};
    return {std::string(file), number.empty() ? last : number, std::move(text)};
  }
  return {"", "", with_standard_names(line)};
}

std::string text_of(const CompileError& error, const CodecHeader& header, bool is_ours) {
  if (error.file.empty()) return fmt::format("{}: {}", header.file, error.text);
  if (is_ours) {
    return fmt::format("{}: {} ({}:{})", place_of(header), error.text, error.file, error.line);
  }
  const bool is_header = error.file == header.files.front().first;
  return fmt::format("{}:{}: {}", is_header ? header.file : error.file, error.line, error.text);
}

std::string text_of(const CompileError& error, const CodecHeader& header) {
  const bool is_ours = std::ranges::none_of(
      header.files, [&](const auto& file) { return file.first == error.file; });
  return text_of(error, header, is_ours);
}

}  // namespace arlab::kernels

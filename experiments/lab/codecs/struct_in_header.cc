#include "experiments/lab/codecs/struct_in_header.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "reference/error.h"

namespace arlab::lab {
namespace {

bool is_of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Splits a text into words and single characters; comments, literals and lines of the preprocessor are left out.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  /// Empty at the end.
  std::string_view next() {
    while (skip_one()) {
    }
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_of_word(text_[at_])) ++at_;
    if (at_ == begin && at_ < text_.size()) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::size_t line() const {
    return 1 +
           static_cast<std::size_t>(std::count(text_.begin(), text_.begin() + to_end(at_), '\n'));
  }

 private:
  static std::ptrdiff_t to_end(std::size_t at) { return static_cast<std::ptrdiff_t>(at); }

  bool skip_one() {
    const std::string_view rest = text_.substr(at_);
    if (rest.empty()) return false;
    if (rest.starts_with("//")) return skip_to("\n");
    if (rest.starts_with("/*")) return skip_to("*/");
    if (rest.front() == '#' && begins_line()) return skip_directive();
    if (rest.starts_with("R\"")) return skip_raw();
    if (rest.front() == '"' || rest.front() == '\'') return skip_literal(rest.front());
    if (std::isspace(static_cast<unsigned char>(rest.front())) == 0) return false;
    ++at_;
    return true;
  }
  bool skip_to(std::string_view end) {
    const std::size_t found = text_.find(end, at_);
    at_ = found == text_.npos ? text_.size() : found + end.size();
    return true;
  }
  bool begins_line() const {
    const std::size_t before = text_.substr(0, at_).find_last_not_of(" \t");
    return before == text_.npos || text_[before] == '\n';
  }
  bool skip_directive() {
    do {
      skip_to("\n");
    } while (at_ >= 2 && at_ < text_.size() && text_[at_ - 2] == '\\');
    return true;
  }
  bool skip_raw() {
    const std::size_t open = std::min(text_.find('(', at_), text_.size());
    const std::string end = ")" + std::string(text_.substr(at_ + 2, open - at_ - 2)) + "\"";
    return skip_to(end);
  }
  bool skip_literal(char quote) {
    // In numbers: 1'000.
    if (quote == '\'' && at_ > 0 && is_of_word(text_[at_ - 1])) return ++at_, true;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    at_ = std::min(at_ + 1, text_.size());
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// A scope that a brace has opened.
struct Scope {
  bool is_namespace = false;
  std::string name;  ///< the namespace's or struct's
  std::size_t line = 0;
  bool is_codec = false;  ///< a struct that speaks of what codecs have
};

/// The scope that a brace opens behind these words; of a struct, only where it is no template.
Scope scope_behind(const std::vector<std::string>& words, std::size_t line) {
  const auto word = [&](const char* text) { return std::ranges::find(words, text); };
  const auto name_behind = [&](auto at) {
    std::string name;
    for (++at; at != words.end() && *at != ":" && *at != "final"; ++at) name += *at;
    return name;
  };
  if (const auto at = word("namespace"); at != words.end()) {
    std::string name;
    for (auto each = at + 1; each != words.end(); ++each) name += *each;
    return {true, name, line};
  }
  const auto at = std::ranges::find_first_of(words, std::vector<std::string>{"struct", "class"});
  if (at == words.end() || word("template") != words.end() || word("enum") != words.end())
    return {};
  return {false, name_behind(at), line};
}

class StructFinder {
 public:
  explicit StructFinder(std::string_view text) : words_(text) {}

  std::vector<FoundStruct> find() {
    for (std::string_view word = words_.next(); !word.empty(); word = words_.next()) take(word);
    return std::move(found_);
  }

 private:
  void take(std::string_view word) {
    if (word == "{") return open();
    if (word == "}") return close();
    if (word == ";") return behind_.clear();
    if (word == "kBlock" || word == "quantize") name_codec();
    if (word == "struct" || word == "class") line_ = words_.line();
    behind_.emplace_back(word);
  }
  void open() {
    scopes_.push_back(scope_behind(behind_, line_));
    behind_.clear();
  }
  void close() {
    behind_.clear();
    if (scopes_.empty()) return;
    const Scope scope = std::move(scopes_.back());
    scopes_.pop_back();
    const bool is_outer = std::ranges::all_of(scopes_, &Scope::is_namespace);
    if (is_outer && scope.is_codec) found_.push_back({path() + scope.name, scope.line});
  }
  /// The outermost struct that is open.
  void name_codec() {
    const auto open = std::ranges::find(scopes_, false, &Scope::is_namespace);
    if (open != scopes_.end() && !open->name.empty()) open->is_codec = true;
  }
  std::string path() const {
    std::string path;
    for (const Scope& scope : scopes_) path += scope.name.empty() ? "" : scope.name + "::";
    return path;
  }

  Words words_;
  std::vector<Scope> scopes_;
  std::vector<std::string> behind_;  ///< words since the last ; or brace
  std::size_t line_ = 0;             ///< where the last struct begins
  std::vector<FoundStruct> found_;
};

}  // namespace

FoundStruct struct_in_header(std::string_view text, std::string_view file) {
  const std::vector<FoundStruct> found = StructFinder(text).find();
  if (found.empty()) {
    fail(
        "{}: there is no struct of a codec in it, with kBlock and quantize(); arlab new codec NAME "
        "--header FILE.h writes one",
        file);
  }
  if (found.size() > 1) {
    fail(
        "{}:{}: struct {} is a second codec beside struct {} (line {}): allowed is one in a header",
        file, found[1].line, found[1].name, found[0].name, found[0].line);
  }
  return found.front();
}

}  // namespace arlab::lab

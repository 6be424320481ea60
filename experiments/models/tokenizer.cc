#include "experiments/models/tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <queue>
#include <tuple>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "reference/error.h"

namespace arlab::models {
namespace {

constexpr TokenId kNone = UINT32_MAX;

std::string utf8(std::uint32_t code) {  // below 0x800
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

/// Each byte as a character that can be seen: those that can stand for themselves, the others for
/// the characters from 256 on, in their order.
const std::array<std::string, 256>& characters_of_bytes() {
  static const std::array<std::string, 256> characters = [] {
    std::array<std::string, 256> all;
    std::uint32_t next = 256;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      all[byte] = utf8(visible ? byte : next++);
    }
    return all;
  }();
  return characters;
}

std::uint64_t pair_of(TokenId left, TokenId right) { return std::uint64_t{left} << 32 | right; }

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 128> text = {};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

const char* const kCutsOfGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::pair<std::vector<std::string>, bool> named_cuts(std::string_view name,
                                                     const std::string& source) {
  const std::string of_llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (name == "smollm") return {{R"(\p{N})", kCutsOfGpt2}, false};
  if (name == "gpt-2") return {{kCutsOfGpt2}, false};
  if (name == "llama-bpe") return {{of_llama3}, true};
  fail("{}: its pre-tokenizer is {}: allowed are smollm, gpt-2, llama-bpe", source, quote(name));
}

/// A compiled regular expression.
class Tokenizer::Expression {
 public:
  Expression(const std::string& pattern, const std::string& source) : source_(source) {
    int error = 0;
    PCRE2_SIZE where = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP, &error, &where, nullptr);
    if (code_ == nullptr) {
      fail("{}: the regular expression {} of its tokenizer: {}", source, quote(pattern),
           message_of(error));
    }
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);
  }
  ~Expression() { pcre2_code_free(code_); }
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;

  /// Calls use(piece) for the pieces of the text, none of them empty. `name`: whose text it is.
  template <class Use>
  void cut(std::string_view text, std::string_view name, Use use) const {
    const Match match(code_);
    std::size_t done = 0;
    std::size_t at = 0;
    std::uint32_t options = 0;
    while (at < text.size()) {
      const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                    at, options | PCRE2_NOTEMPTY, match.data, nullptr);
      options = PCRE2_NO_UTF_CHECK;  // the first call has looked
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found <= PCRE2_ERROR_UTF8_ERR1 && found >= PCRE2_ERROR_UTF8_ERR21) {
        fail("{}: not text in UTF-8: byte {}: {}", name, pcre2_get_startchar(match.data),
             message_of(found));
      }
      if (found < 0) fail("{}: its tokenizer cannot cut {}: {}", source_, name, message_of(found));
      const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(match.data);
      if (ends[0] > done) use(text.substr(done, ends[0] - done));
      if (ends[0] < at || ends[1] <= ends[0]) {
        fail("{}: its tokenizer's regular expression matches backwards", source_);
      }
      use(text.substr(ends[0], ends[1] - ends[0]));
      done = at = ends[1];
    }
    if (done < text.size()) use(text.substr(done));
  }

 private:
  struct Match {
    explicit Match(const pcre2_code* code)
        : data(pcre2_match_data_create_from_pattern(code, nullptr)) {
      if (data == nullptr) throw std::bad_alloc();
    }
    ~Match() { pcre2_match_data_free(data); }
    Match(const Match&) = delete;
    Match& operator=(const Match&) = delete;
    pcre2_match_data* data;
  };

  std::string source_;
  pcre2_code* code_;
};

Tokenizer::Tokenizer(TokenizerDescription description) : description_(std::move(description)) {
  const std::string& source = description_.source;
  for (std::size_t id = 0; id < description_.tokens.size(); ++id) {
    ids_.try_emplace(description_.tokens[id], static_cast<TokenId>(id));
  }
  for (const std::string& character : characters_of_bytes()) {
    const auto found = ids_.find(character);
    // A byte that the text does not have may be missing.
    bytes_.push_back(found == ids_.end() ? kNone : found->second);
  }
  for (std::size_t order = 0; order < description_.merges.size(); ++order) {
    const auto& [left, right] = description_.merges[order];
    const auto l = ids_.find(left);
    const auto r = ids_.find(right);
    const auto both = ids_.find(left + right);
    if (l == ids_.end() || r == ids_.end() || both == ids_.end()) {
      fail("{}: merge {} joins {} and {}: these, and both together, must be tokens", source, order,
           quote(left), quote(right));
    }
    merges_.try_emplace(pair_of(l->second, r->second),
                        Merge{static_cast<std::uint32_t>(order), both->second});
  }
  for (const std::string& cut : description_.cuts) {
    cuts_.push_back(std::make_shared<const Expression>(cut, source));
  }
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, std::string_view name) const {
  std::vector<std::string_view> pieces = {text};
  for (const auto& cut : cuts_) {
    std::vector<std::string_view> smaller;
    for (const std::string_view piece : pieces) {
      cut->cut(piece, name, [&](std::string_view part) { smaller.push_back(part); });
    }
    pieces = std::move(smaller);
  }
  std::vector<TokenId> ids;
  for (const std::string_view piece : pieces) add_piece(piece, ids, text, name);
  return ids;
}

void Tokenizer::add_piece(std::string_view piece, std::vector<TokenId>& ids, std::string_view text,
                          std::string_view name) const {
  if (description_.whole_pieces_first) {
    std::string written;
    for (const char byte : piece)
      written += characters_of_bytes()[static_cast<unsigned char>(byte)];
    if (const auto found = ids_.find(written); found != ids_.end()) {
      ids.push_back(found->second);
      return;
    }
  }

  // The parts as a list in which merges make the right one disappear.
  struct Part {
    TokenId id;
    std::size_t before;
    std::size_t after;
  };
  std::vector<Part> parts;
  parts.reserve(piece.size());
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const auto byte = static_cast<unsigned char>(piece[i]);
    if (bytes_[byte] == kNone) {
      fail("{}: byte {} is 0x{:02x}, for which the tokenizer of {} has no token", name,
           piece.data() + i - text.data(), byte, description_.source);
    }
    parts.push_back({bytes_[byte], i - 1, i + 1});
  }

  // Merges that are possible: the most urgent first, of these the leftmost.
  struct Candidate {
    std::uint32_t order;
    std::size_t at;
    std::uint64_t pair;
    TokenId result;
    bool operator>(const Candidate& other) const {
      return std::tie(order, at) > std::tie(other.order, other.at);
    }
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto propose = [&](std::size_t at) {
    if (at >= parts.size() || parts[at].after >= parts.size()) return;
    const std::uint64_t pair = pair_of(parts[at].id, parts[parts[at].after].id);
    const auto merge = merges_.find(pair);
    if (merge != merges_.end())
      candidates.push({merge->second.order, at, pair, merge->second.result});
  };
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) propose(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Part& left = parts[best.at];
    if (left.id == kNone || left.after >= parts.size()) continue;
    Part& right = parts[left.after];
    if (pair_of(left.id, right.id) != best.pair) continue;  // one of them was merged meanwhile
    left.id = best.result;
    right.id = kNone;
    left.after = right.after;
    if (left.after < parts.size()) parts[left.after].before = best.at;
    propose(left.before);
    propose(best.at);
  }
  for (const Part& part : parts) {
    if (part.id != kNone) ids.push_back(part.id);
  }
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  static const std::unordered_map<std::string, char> bytes = [] {
    std::unordered_map<std::string, char> all;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      all.emplace(characters_of_bytes()[byte], static_cast<char>(byte));
    }
    return all;
  }();
  std::string text;
  for (const TokenId id : ids) {
    if (id >= size()) fail("token {}: there are {}", id, size());
    const std::string& token = description_.tokens[id];
    for (std::size_t i = 0; i < token.size();) {
      const std::size_t length = (static_cast<unsigned char>(token[i]) & 0xE0) == 0xC0 ? 2 : 1;
      const auto found = bytes.find(token.substr(i, length));
      if (found != bytes.end())
        text += found->second;
      else
        text += token.substr(i, length);
      i += length;
    }
  }
  return text;
}

}  // namespace arlab::models

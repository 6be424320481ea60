// Byte-level BPE, the tokenizer of most language models: text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace arlab::models {

using TokenId = std::uint32_t;

/// A model file's description of its tokenizer.
struct TokenizerDescription {
  std::string source;                                       ///< for messages: the file
  std::vector<std::string> tokens;                          ///< by id, bytes written as GPT-2 does
  std::vector<std::pair<std::string, std::string>> merges;  ///< the most urgent first
  /// How text is cut before merging: what a regular expression (PCRE2, with Unicode) matches is a
  /// piece, and what lies between matches; the next expression cuts these pieces.
  std::vector<std::string> cuts;
  /// A piece that is a token as a whole is that token, whatever the merges would make of it.
  bool whole_pieces_first = false;
};

/// The pattern at which GPT-2 cuts text.
extern const char* const kCutsOfGpt2;

/// The cuts that llama.cpp knows under a name ("smollm", "gpt-2", "llama-bpe"); with whether whole
/// pieces go first. Throws InvalidInput for others.
std::pair<std::vector<std::string>, bool> named_cuts(std::string_view name,
                                                     const std::string& source);

/// Text is text: what looks like a control token ("<|im_start|>") is cut and merged as all else.
class Tokenizer {
 public:
  /// Throws InvalidInput where merges and tokens do not fit each other.
  explicit Tokenizer(TokenizerDescription description);

  /// Throws InvalidInput for text that is not UTF-8 or has a byte without a token. `name`: whose text it is.
  std::vector<TokenId> encode(std::string_view text, std::string_view name) const;

  /// Throws InvalidInput for ids that are not there.
  std::string decode(std::span<const TokenId> ids) const;

  std::size_t size() const { return description_.tokens.size(); }

 private:
  struct Merge {
    std::uint32_t order;
    TokenId result;
  };
  class Expression;

  /// Adds the tokens of a piece of `text`, which is `name`'s.
  void add_piece(std::string_view piece, std::vector<TokenId>& ids, std::string_view text,
                 std::string_view name) const;

  TokenizerDescription description_;
  std::unordered_map<std::string, TokenId> ids_;
  std::unordered_map<std::uint64_t, Merge> merges_;  ///< by both ids
  std::vector<TokenId> bytes_;                       ///< the token of each byte
  std::vector<std::shared_ptr<const Expression>> cuts_;
};

}  // namespace arlab::models
